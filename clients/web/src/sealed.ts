/**
 * What a contributor sends: its integer encrypted under the run's key, a proof that it knows
 * what it sealed, and, where inputs are proved, that the integer lies in its range.
 *
 * docs/secure-sums.md has the construction; protocol/secure_sum/sealed/ranges.py why the proof
 * of range is sound.
 */
import { concat, digest, utf8 } from "./bytes.js";
import { InputError } from "./errors.js";
import {
  base,
  challengeOf,
  hashedPoint,
  mod,
  Point,
  proveKnowledge,
  type Scalars,
  scalarBytes,
  times,
  total,
} from "./group.js";

const MOST_BITS = 48;

export interface Ciphertext {
  one: Uint8Array; // r·G
  two: Uint8Array; // r·P + y·G
}

/** All that is random in a contribution, drawn at once: the same draws, the same bytes. */
export interface Draws {
  scalars: Scalars;
  fresh: Uint8Array; // 32 bytes for the nonce of the proof of knowledge
}

export function sealedContext(context: Uint8Array, dealing: Uint8Array): Uint8Array {
  return digest("wallflower/v1/sealed-context", context, dealing);
}

/** Digest of all that a contribution says; its proofs and signature are bound to it. */
export function statementOf(
  context: Uint8Array,
  sender: string,
  users: bigint,
  sealed: Ciphertext,
): Uint8Array {
  return digest("wallflower/v1/contribution", context, sender, users, sealed.one, sealed.two);
}

export interface Opening {
  randomness: bigint;
  value: bigint;
}

export function encrypt(key: Point, value: bigint, draws: Draws): [Ciphertext, Opening] {
  const randomness = draws.scalars();
  const hidden = key.multiply(randomness);
  // As (y + 2^64)·G − 2^64·G, so that zero is no special case.
  const two = total([hidden, base(value + SHIFT), base(-SHIFT)]);
  const sealed = { one: base(randomness).toBytes(), two: two.toBytes() };
  return [sealed, { randomness, value }];
}

const SHIFT = 1n << 64n;

export function proveSender(opening: Opening, said: Uint8Array, draws: Draws): Uint8Array {
  return proveKnowledge(opening.randomness, said, draws.fresh);
}

/** low … high, both allowed. */
export interface Range {
  low: bigint;
  high: bigint;
}

/** 1, 2, 4, …, with a last one that makes them add up to high − low. */
function weightsOf({ low, high }: Range): bigint[] {
  const width = high - low;
  const count = width.toString(2).length;
  if (width < 1n || count > MOST_BITS) throw new InputError("a range that cannot be proved");
  const weights = Array.from({ length: count - 1 }, (_, j) => 1n << BigInt(j));
  return [...weights, width - (1n << BigInt(count - 1)) + 1n];
}

function bitsOf(value: bigint, low: bigint, weights: bigint[]): bigint[] {
  const last = weights[weights.length - 1]!;
  const powers = weights.slice(0, -1);
  let rest = value - low;
  const top = rest > (1n << BigInt(powers.length)) - 1n ? 1n : 0n;
  rest -= top * last;
  return [...powers.map((_, j) => (rest >> BigInt(j)) & 1n), top];
}

/** Prove that a ciphertext holds a number of its range, bound to `context`. */
export function proveRange(
  key: Point,
  sealed: Ciphertext,
  opening: Opening,
  range: Range,
  context: Uint8Array,
  scalars: Scalars,
): Uint8Array {
  const weights = weightsOf(range);
  const bits = bitsOf(opening.value, range.low, weights);
  const blind = hashedPoint("range/blind");
  const each = bits.map((_, j) => hashedPoint(`range/bit/${j}`));
  const [beta, alpha, gamma, delta, rho] = Array.from({ length: 5 }, scalars) as [
    bigint, bigint, bigint, bigint, bigint,
  ];
  const a = bits.map(scalars);
  const hidden = each.map((point, j) => times(point, a[j]!));
  const spread = mod(weights.reduce((sum, weight, j) => sum + weight * a[j]!, 0n));
  const none = Point.ZERO;
  const points = [
    total([times(blind, beta), ...each.map((point, j) => (bits[j] ? point : none))]),
    total([times(blind, alpha), ...hidden]),
    total([times(blind, gamma), ...hidden.map((one, j) => (bits[j] ? one.negate() : one))]),
    total([times(blind, delta), ...hidden.map((one, j) => times(one, -a[j]!))]),
    base(rho),
    total([times(key, rho), base(spread)]),
  ];
  const body = concat(...points.map((point) => point.toBytes()));
  const limits = utf8(`${range.low},${range.high}`);
  const tag = "wallflower/v1/range";
  const e = challengeOf(tag, context, key.toBytes(), sealed.one, sealed.two, limits, body);
  const responses = [
    ...bits.map((bit, j) => e * bit + a[j]!),
    e * beta + alpha,
    e * gamma + delta,
    e * opening.randomness + rho,
  ];
  return concat(body, ...responses.map(scalarBytes));
}
