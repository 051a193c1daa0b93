/** Whom a secure sum withstands, and the sizes of a key generation that follow. */
import { InputError } from "./errors.js";
import type { Rational, Threat as WireThreat } from "./gen/messages.js";
import { Fraction, ZERO } from "./rational.js";

const PRIVACY_BITS = 40;
const CORRECTNESS_BITS = 30;
const GRINDING_BITS = 80;
const LARGEST_COHORT = 2 ** 20;
const LARGEST_DRAW = 2048;
const COMPLETE_UP_TO = 64;
const MARGIN = 1e-6; // bits; closer calls are decided by integers

export class Threat {
  constructor(
    readonly corrupt: Fraction,
    readonly dropout: Fraction,
    readonly lying: boolean,
  ) {}

  static read(message: WireThreat | undefined): Threat {
    const [corrupt, dropout] = [fraction(message?.corrupt), fraction(message?.dropout)];
    return new Threat(corrupt, dropout, message?.maliciousServer ?? false);
  }

  /** ⌈γn⌉: how many of n may collude. */
  corruptOf(nodes: bigint): bigint {
    return this.corrupt.times(new Fraction(nodes)).ceil();
  }

  equals(other: Threat): boolean {
    return (
      this.corrupt.compare(other.corrupt) === 0 &&
      this.dropout.compare(other.dropout) === 0 &&
      this.lying === other.lying
    );
  }

  get drawnBits(): number {
    return PRIVACY_BITS + (this.lying ? GRINDING_BITS : 0);
  }
}

/** An absent fraction means none; a present one is proper. */
function fraction(message: Rational | undefined): Fraction {
  if (!message) return ZERO;
  if (!message.denominator || message.numerator >= message.denominator) {
    throw new InputError("a threat is no proper fraction");
  }
  return new Fraction(message.numerator, message.denominator);
}

export interface DealingSizes {
  members: number;
  threshold: number;
  accepted: number;
}

/** Sizes of a key generation among so many nodes (protocol/secure_sum/sealed/sizes.py). */
export function dealingSizes(threat: Threat, nodes: number): DealingSizes {
  const { members, threshold } = committeeSize(threat, nodes);
  const corrupt = Number(threat.corruptOf(BigInt(nodes)));
  const drawn = nodes > COMPLETE_UP_TO && members < nodes;
  if (threat.lying) {
    const colluding = drawn
      ? new Draw(nodes, corrupt, members).smallestSafeThreshold(threat.drawnBits) - 1
      : Math.min(corrupt, members);
    return { members, threshold, accepted: Math.max(1, colluding + 1) };
  }
  if (nodes <= 3) return { members, threshold, accepted: members };
  const accepted = drawn ? neverAll(threat, nodes, members) : Math.min(corrupt, members) + 1;
  return { members, threshold, accepted };
}

function committeeSize(threat: Threat, nodes: number): { members: number; threshold: number } {
  if (!(nodes >= 2 && nodes <= LARGEST_COHORT)) throw new InputError("nodes of a cohort");
  if (nodes > COMPLETE_UP_TO) {
    for (let members = 2; members < Math.min(nodes - 1, LARGEST_DRAW); members++) {
      const threshold = thresholdAt(threat, nodes, members);
      if (threshold) return { members, threshold };
    }
  }
  return wholeCohort(threat, nodes);
}

function thresholdAt(threat: Threat, nodes: number, members: number): number | undefined {
  const corrupt = Math.min(Number(threat.corruptOf(BigInt(nodes))), nodes);
  const staying = nodes - Number(threat.dropout.times(new Fraction(nodes)).ceil());
  const safe = new Draw(nodes, corrupt, members).smallestSafeThreshold(threat.drawnBits);
  let threshold = Math.max(2, safe);
  if (threat.lying) threshold = Math.max(threshold, Math.floor((members + safe - 1) / 2) + 1);
  const kept = new Draw(nodes, staying, members);
  return kept.rarelyBelow(threshold, CORRECTNESS_BITS) ? threshold : undefined;
}

function wholeCohort(threat: Threat, nodes: number): { members: number; threshold: number } {
  if (nodes <= 3) return { members: nodes, threshold: nodes };
  const colluding = Math.min(Number(threat.corruptOf(BigInt(nodes))), nodes);
  let threshold = Math.max(2, colluding + 1);
  if (threat.lying) threshold = Math.max(threshold, Math.floor((nodes + colluding) / 2) + 1);
  const dropped = Number(threat.dropout.times(new Fraction(nodes)).floor());
  if (nodes > LARGEST_DRAW || threshold > nodes - dropped) throw new InputError("no committee");
  return { members: nodes, threshold };
}

function neverAll(threat: Threat, nodes: number, members: number): number {
  const staying = nodes - Number(threat.dropout.times(new Fraction(nodes)).ceil());
  const colluding = Math.min(Number(threat.corruptOf(BigInt(nodes))), staying);
  for (let count = 1; count < members; count++) {
    if (new Draw(staying, colluding, count).rarelyAll(threat.drawnBits)) return count;
  }
  return members;
}

/** A draw of `size` of `population`, `marked` of which carry a mark: doubles find where an
 * inequality turns, integers decide it. */
class Draw {
  constructor(
    private readonly population: number,
    private readonly marked: number,
    private readonly size: number,
  ) {}

  /** log2 P[X = i] for i = 0 … size. */
  private masses(): number[] {
    const { population, marked, size } = this;
    const chosen = log2Binomials(marked, size);
    const others = log2Binomials(population - marked, size);
    const whole = log2Binomials(population, size)[size]!;
    return chosen.map((one, i) => one + others[size - i]! - whole);
  }

  /** Decide P[low ≤ X ≤ high] ≤ 2^−bits exactly. */
  private exactly(low: number, high: number, bits: number): boolean {
    const { population, marked, size } = this;
    let weight = 0n;
    for (let i = low; i <= high; i++) {
      weight += binomial(marked, i) * binomial(population - marked, size - i);
    }
    return weight << BigInt(bits) <= binomial(population, size);
  }

  /** Smallest t with P[X ≥ t] ≤ 2^−bits; at most size + 1. */
  smallestSafeThreshold(bits: number): number {
    const tails = upperTails(this.masses());
    let threshold = tails.findIndex((tail) => tail <= -bits - MARGIN);
    while (threshold > 0 && tails[threshold - 1]! <= -bits + MARGIN) {
      if (!this.exactly(threshold - 1, this.size, bits)) break;
      threshold--;
    }
    return threshold;
  }

  rarelyAll(bits: number): boolean {
    const gap = this.masses()[this.size]! + bits;
    return Math.abs(gap) < MARGIN ? this.exactly(this.size, this.size, bits) : gap < 0;
  }

  rarelyBelow(threshold: number, bits: number): boolean {
    if (threshold > this.size) return false;
    const gap = upperTails(this.masses().reverse())[this.size - threshold + 1]! + bits;
    return Math.abs(gap) < MARGIN ? this.exactly(0, threshold - 1, bits) : gap < 0;
  }
}

function log2Binomials(top: number, longest: number): number[] {
  const table = [0];
  for (let i = 1; i <= longest; i++) {
    table.push(i > top ? -Infinity : table[i - 1]! + Math.log2(top - i + 1) - Math.log2(i));
  }
  return table;
}

function binomial(top: number, chosen: number): bigint {
  if (chosen < 0 || chosen > top) return 0n;
  let value = 1n;
  for (let i = 1; i <= chosen; i++) value = (value * BigInt(top - i + 1)) / BigInt(i);
  return value;
}

/** log2 Σ_{j ≥ i} 2^masses[j] for every i, and −∞ past the end. */
function upperTails(masses: number[]): number[] {
  const tails = [-Infinity];
  for (const mass of [...masses].reverse()) {
    const [high, low] = [Math.max(mass, tails[0]!), Math.min(mass, tails[0]!)];
    tails.unshift(low === -Infinity ? high : high + Math.log2(1 + 2 ** (low - high)));
  }
  return tails;
}
