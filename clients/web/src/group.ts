/**
 * The group of sealed sums, secp256k1, by @noble/curves; and proofs in it.
 *
 * BigInt arithmetic is not constant-time: how long it takes may depend on secrets. What is
 * secret here is drawn for one contribution and used once.
 */
import { schnorr } from "@noble/curves/secp256k1.js";
import { compare, digest, fromBigInt, randomBytes, sha256, toBigInt, utf8 } from "./bytes.js";
import { MalformedMessage, Refusal } from "./errors.js";

export const Point = schnorr.Point;
export type Point = InstanceType<typeof Point>;
export const ORDER = Point.Fn.ORDER;
export const POINT_BYTES = 33;
export const PROOF_BYTES = 64;

export function mod(value: bigint): bigint {
  const rest = value % ORDER;
  return rest < 0n ? rest + ORDER : rest;
}

/** Read 33 bytes; refuses another length and what is not on the curve. */
export function readPoint(body: Uint8Array): Point {
  try {
    if (body.length === POINT_BYTES) return Point.fromBytes(body);
  } catch {
    // Refused below.
  }
  throw new MalformedMessage("not a point of the group");
}

export function base(scalar: bigint): Point {
  return Point.BASE.multiply(mod(scalar));
}

/** scalar·X in variable time, for public scalars and secrets used once. */
export function times(point: Point, scalar: bigint): Point {
  return point.multiplyUnsafe(mod(scalar));
}

export function total(points: Point[]): Point {
  const sum = points.reduce((left, right) => left.add(right));
  if (sum.is0()) throw new Refusal("degenerate-sum", "points cancel each other");
  return sum;
}

export function scalarBytes(scalar: bigint): Uint8Array {
  return fromBigInt(mod(scalar), 32);
}

/** Draws scalars from 1 … q−1; another draw is due once in 2^128. */
export type Scalars = () => bigint;

export const randomScalar: Scalars = () => {
  for (;;) {
    const scalar = toBigInt(randomBytes(32));
    if (scalar && scalar < ORDER) return scalar;
  }
};

/** A point whose logarithm nobody knows: the first x that a hash hits. */
export function hashedPoint(label: string): Point {
  const known = hashed.get(label);
  if (known) return known;
  for (let attempt = 0; ; attempt++) {
    const x = sha256(utf8(`wallflower/v1/point/${label}/${attempt}`));
    try {
      const point = Point.fromBytes(Uint8Array.from([2, ...x]));
      hashed.set(label, point);
      return point;
    } catch {
      // Half of all x lie on the curve.
    }
  }
}

const hashed = new Map<string, Point>();

export function challengeOf(tag: string, ...parts: Uint8Array[]): bigint {
  return mod(toBigInt(digest(tag, ...parts)));
}

const KNOWLEDGE = "wallflower/v1/knowledge";

/** Prove knowledge of the logarithm of secret·G, bound to `context`: a BIP 340 signature. */
export function proveKnowledge(secret: bigint, context: Uint8Array, fresh: Uint8Array): Uint8Array {
  return schnorr.sign(digest(KNOWLEDGE, context), scalarBytes(secret), fresh);
}

export function showsKnowledge(point: Uint8Array, proof: Uint8Array, context: Uint8Array): boolean {
  if (proof.length !== PROOF_BYTES) return false;
  return schnorr.verify(proof, digest(KNOWLEDGE, context), point.subarray(1));
}

/** Order by a hash: who sits on a committee. */
export function drawOrder(context: Uint8Array, parties: string[]): string[] {
  const prefix = utf8("wallflower/v1/draw");
  const keyed = parties.map((party) => [sha256(prefix, context, utf8(party)), party] as const);
  return keyed.sort(([left], [right]) => compare(left, right)).map(([, party]) => party);
}
