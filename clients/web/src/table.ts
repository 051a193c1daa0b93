/** Exact draws: min{x : F(x) > U} for a uniform U that is drawn 63 bits at a time. */
import { heads, type Law, thresholds } from "./laws.js";

/** Gives independent uniform words of 64 bits. */
export type Words = () => bigint;

const WORD = 63n;

/** The platform's generator; each call is one of its own, and nothing of it is kept. */
export const systemWords: Words = () => crypto.getRandomValues(new BigUint64Array(1))[0]!;

/** A law with its table, built whole: time must not tell how large the noise is. */
export class Sampler {
  readonly thresholds: BigUint64Array;
  private readonly steps: number;

  constructor(private readonly law: Law) {
    this.thresholds = thresholds(law);
    this.steps = Math.floor(Math.log2(this.thresholds.length)) + 1;
  }

  /** Draw a magnitude by a fixed number of steps and give it a fair sign. */
  draw(words: Words): bigint {
    const word = words();
    const first = word >> 1n;
    const table = this.thresholds;
    const end = table.length - 1;
    let value = 0;
    for (let step = 2 ** (this.steps - 1); step >= 1; step /= 2) {
      const place = value + step - 1;
      value += step * Number(table[place < end ? place : end]! < first);
    }
    if (table[value < end ? value : end] === first) value = this.refine(first, value, words);
    return word & 1n ? -BigInt(value) : BigInt(value);
  }

  /** Decide min{x ≥ candidate : F(x) > U} for a U that starts with `start`. */
  private refine(start: bigint, candidate: number, words: Words): number {
    for (let known = 2n * WORD; ; known += WORD) {
      start = (start << WORD) | (words() >> 1n);
      const found = heads(this.law, Number(known) + 32, Number(known) + 112);
      const scale = BigInt(found.bits) - known;
      const [low, high] = [start << scale, (start + 1n) << scale];
      for (; candidate < found.low.length; candidate++) {
        if (high <= found.low[candidate]!) return candidate;
        if (low < found.high[candidate]!) break; // F lies inside what is known of U
      }
    }
  }
}

const LARGEST_PRECISION = 1n << 62n;

/** Round x in [0, 1] to ⌊xg⌋ + Ber(xg − ⌊xg⌋), exactly: a double is a dyadic rational. */
export function encodeReward(reward: number, precision: bigint, words: Words): bigint {
  if (!(reward >= 0 && reward <= 1) || precision < 1n || precision > LARGEST_PRECISION) {
    throw new RangeError("a reward is not within range (not shown)");
  }
  const [number, places] = dyadic(reward);
  const product = (number * precision) << 64n;
  const scaled = product >> places;
  const [word, rest] = [words(), scaled & 0xffffffffffffffffn];
  const result = (scaled >> 64n) + (word < rest ? 1n : 0n);
  const beyond = product - (scaled << places);
  // Once in 2^64 the word agrees with all bits of a longer fraction.
  if (!beyond || word !== rest) return result;
  return result + (bernoulli(beyond, 1n << places, words) ? 1n : 0n);
}

/** x = number / 2^places with a number of 53 bits. */
function dyadic(x: number): [bigint, bigint] {
  if (!x) return [0n, 0n];
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const exponent = (bits >> 52n) & 0x7ffn;
  const fraction = bits & 0xfffffffffffffn;
  return exponent ? [fraction | (1n << 52n), 1075n - exponent] : [fraction, 1074n];
}

/** True with probability exactly numerator/denominator. */
function bernoulli(numerator: bigint, denominator: bigint, words: Words): boolean {
  const common = lowestBit(numerator);
  const bound = denominator / common;
  return uniform(bound, words) < numerator / common;
}

function lowestBit(value: bigint): bigint {
  return value & -value;
}

/** Exactly uniform on 0 … bound−1, for a power of two. */
function uniform(bound: bigint, words: Words): bigint {
  const length = bound.toString(2).length - 1;
  const count = Math.ceil(length / 64);
  let value = 0n;
  for (let i = 0; i < count; i++) value = (value << 64n) | words();
  return value >> BigInt(64 * count - length);
}
