/**
 * Laws of one user's noise, known exactly: enclosures of P(|X| ≤ k), k = 0, 1, …
 *
 * Masses come from positive recurrences that run from far out towards zero, where they are
 * stable. How the outermost two values are related is known up to an interval only. So the
 * recurrence runs twice, from both ends of it: the true masses are a positive combination of
 * both runs, and a quotient of two positive linear functions of them, such as the sum of some
 * by the sum of all, lies between the quotients of the runs (as a mediant does). Each step
 * back brings the two nearer to each other. No value of a special function is needed, and a
 * start that was too near shows itself: the ends do not meet.
 *
 * Rounding: each step rounds numbers of at least `guard` bits down, and their relative errors
 * add up. ROUNDINGS bounds the floors and rounded constants of a step.
 */
import { decay, exponential } from "./fixed.js";
import { bitLength, Fraction, ONE } from "./rational.js";

/** The difference of two Pólya(shape, e^−rate) draws; shape 1 is discrete Laplace noise. */
export interface Difference {
  kind: "difference";
  shape: Fraction;
  rate: Fraction;
}

/** The difference of two Poisson(variance/2) draws. */
export interface Skellam {
  kind: "skellam";
  variance: Fraction;
}

/** P(x) ∝ e^(−x²/(2·variance)). */
export interface Gaussian {
  kind: "gaussian";
  variance: Fraction;
}

export type Law = Difference | Skellam | Gaussian;

/** low[k] ≤ 2^bits · P(|X| ≤ k) ≤ high[k]. */
export interface Heads {
  bits: number;
  low: bigint[];
  high: bigint[];
}

interface Runs {
  runs: bigint[][]; // masses of X at 0, 1, …, each run on a scale of its own
  accuracy: number; // bits of relative accuracy that are proven
  beyond: Fraction; // mass above the last place, in terms of the mass there, at most
}

const ROUNDINGS = 8;
// Masses: 0.1 s of a page's time, noise of cohorts of ten million people. A server may ask for more.
const LONGEST = 2 ** 18;

/** Enclose the heads of |X| where what is left out is about 2^−tail, to about `guard` bits. */
export function heads(law: Law, tail: number, guard: number): Heads {
  const { runs, accuracy, beyond } = masses(law, tail, guard);
  const bits = accuracy + 8;
  const [low, high]: [bigint[], bigint[]] = [[], []];
  for (const run of runs) {
    let total = 0n;
    for (const mass of run) total += mass;
    total = 2n * total - run[0]!;
    const last = run[run.length - 1]!;
    const most = total + (2n * last * beyond.top) / beyond.bottom + 1n;
    // Times 1 ± 2^−accuracy twice, for the sum and for the total.
    const scale = BigInt(bitLength(total) + bits);
    const slack = BigInt(accuracy - 2);
    const up = (1n << scale) / total + 1n;
    const down = (1n << scale) / most;
    const shift = scale - BigInt(bits);
    let sum = -run[0]!;
    for (let k = 0; k < run.length; k++) {
      sum += 2n * run[k]!;
      const upper = (sum * up) >> shift;
      const lower = (sum * down) >> shift;
      const above = upper + (upper >> slack) + 2n;
      const below = lower - (lower >> slack) - 2n;
      if (high[k] === undefined || above > high[k]!) high[k] = above;
      if (low[k] === undefined || below < low[k]!) low[k] = below;
    }
  }
  return { bits, low, high };
}

function masses(law: Law, tail: number, guard: number): Runs {
  if (law.kind === "difference") return differences(law, tail, guard);
  return law.kind === "skellam" ? skellams(law, tail, guard) : gaussians(law, tail, guard);
}

function accuracyAfter(steps: number, guard: number): number {
  return guard - Math.ceil(Math.log2(steps * ROUNDINGS)) - 2;
}

function checkLength(steps: number): number {
  if (!(steps <= LONGEST)) throw new RangeError("noise too wide to be listed here");
  return Math.ceil(steps);
}

/**
 * A_k = P(X = k) and C_k = Σ_j q^j A_{k+j} obey, with q = e^−rate and shape R,
 *
 *     A_{k−1} = [(k−R)·A_k + R(1−q²)·C_k] / (q(k−1+R)),   C_{k−1} = A_{k−1} + q·C_k.
 *
 * A falls, so A_N ≤ C_N ≤ A_N/(1−q). Below k = R a term is negative; its lost bits are counted.
 * The loop holds D_k = R(1−q²)·C_k times the denominator of R.
 */
function differences({ shape, rate }: Difference, tail: number, guard: number): Runs {
  const [r, decayRate] = [shape.toNumber(), rate.toNumber()];
  const nats = tail * Math.LN2 + Math.min(0, Math.log(r)) + (r > 1 ? 2 * r * Math.log(tail) : 0);
  const last = checkLength(nats / decayRate + 8 + 2 * r);
  const deep = guard + 2 * Math.ceil(r > 1 ? r : 0);
  const fine = BigInt(deep + 48);
  const inverse = exponential(rate, deep + 48)[0];
  const ratio = decay(rate, deep + 48)[0];
  const squared = decay(new Fraction(2n * rate.top, rate.bottom), deep + 48)[1];
  const gap = shape.top * ((1n << fine) - squared);
  const start = 1n << BigInt(deep + 40);
  const runs: bigint[][] = [];
  let lost = 0;
  let beyond = new Fraction(rate.bottom, rate.top); // q/(1−q) < 1/rate
  for (const companion of [(gap * start) >> fine, 2n * shape.top * start]) {
    const run = [start];
    let [mass, other, missing] = [start, companion, 0];
    let factor = BigInt(last) * shape.bottom - shape.top;
    let below = factor + 2n * shape.top - shape.bottom;
    for (let k = last; k > 0; k--) {
      const part = factor * mass;
      const sum = part + other;
      if (factor < 0n) missing += lostBits(-part, other);
      mass = ((sum * inverse) >> fine) / below;
      other = (gap * mass + ratio * other) >> fine;
      run.push(mass);
      factor -= shape.bottom;
      below -= shape.bottom;
    }
    // Above shape 1 A is log-concave: its ratio at the end bounds those beyond.
    if (r > 1 && run[1]! > start) {
      const fallen = new Fraction(start, run[1]! - start);
      if (!runs.length || beyond.atMost(fallen)) beyond = fallen;
    }
    lost = Math.max(lost, missing);
    runs.push(run.reverse());
  }
  return { runs, accuracy: accuracyAfter(last, deep) - Math.ceil(lost) - 1, beyond };
}

function lostBits(negative: bigint, positive: bigint): number {
  const shift = BigInt(Math.max(0, bitLength(positive) - 60));
  const [less, more] = [Number(negative >> shift), Number(positive >> shift)];
  return Math.log2((more + less) / (more - less)) + 1e-6;
}

/**
 * b_k = e^−z I_k(z) obeys b_{k−1} = b_{k+1} + (2k/z)·b_k. The ratios r_k = b_k/b_{k−1} fall with
 * k, so that 1/r_k = 2k/z + r_{k+1} puts r_k between ρ_k = √(k²/z² + 1) − k/z and
 * 1/(2k/z + ρ_{k+1}).
 */
function skellams({ variance }: Skellam, tail: number, guard: number): Runs {
  const z = variance.toNumber();
  const last = checkLength(skellamReach(z, tail));
  const least = (k: number) => 1 / (k / z + Math.hypot(k / z, 1));
  const high = 1 / ((2 * (last + 1)) / z + least(last + 2));
  const unit = BigInt(guard + 8);
  const scaled = (value: number) => BigInt(Math.floor(value * 2 ** 52)) << (unit - 52n);
  const runs: bigint[][] = [];
  for (const first of [least(last + 1) * (1 - 1e-9), Math.min(1, high * (1 + 1e-9))]) {
    let [outer, mass] = [scaled(first), 1n << unit];
    const run = [mass];
    let factor = 2n * variance.bottom * BigInt(last);
    for (let k = last; k > 0; k--) {
      [outer, mass] = [mass, outer + (factor * mass) / variance.top];
      run.push(mass);
      factor -= 2n * variance.bottom;
    }
    runs.push(run.reverse());
  }
  const most = Math.ceil((high / (1 - high)) * (1 + 1e-9) * 2 ** 20);
  return { runs, accuracy: accuracyAfter(last, guard), beyond: new Fraction(most, 2 ** 20) };
}

/** Chernoff's bound: the best (tail + z(cosh λ − 1))/λ over λ. */
function skellamReach(z: number, tail: number): number {
  let best = Infinity;
  for (let i = -60; i <= 20; i++) {
    const a = Math.exp(i / 8);
    best = Math.min(best, ((tail + 1) * Math.LN2 + 2 * z * Math.sinh(a / 2) ** 2) / a);
  }
  return best + 4;
}

/** w_{k+1} = w_k·ρ_k and ρ_{k+1} = ρ_k·e^(−1/σ²), from w_0 = 1 and ρ_0 = e^(−1/(2σ²)). */
function gaussians({ variance }: Gaussian, tail: number, guard: number): Runs {
  const reach = Math.sqrt(2 * variance.toNumber() * (tail + 2) * Math.LN2) + 4;
  const last = checkLength(reach);
  const bits = guard + tail + 48 + Math.ceil((2 * reach) / variance.toNumber());
  const fine = BigInt(bits);
  let step = decay(new Fraction(variance.bottom, 2n * variance.top), bits)[0];
  const ratio = decay(ONE.over(variance), bits)[0];
  const run = [1n << fine];
  for (let k = 0; k < last; k++) {
    run.push((run[k]! * step) >> fine);
    step = (step * ratio) >> fine;
  }
  // Errors of the k-th ratio add up too: k² instead of k.
  const accuracy = accuracyAfter(last, guard) - Math.ceil(Math.log2(last));
  const unit = 1n << fine;
  return { runs: [run], accuracy, beyond: new Fraction(step + 1n, unit - step - 1n) };
}

/** Call with ever more bits until an answer is certain. */
function refined<T>(law: Law, tail: number, guard: number, look: (found: Heads) => T | undefined): T {
  for (;;) {
    const answer = look(heads(law, tail, guard));
    if (answer !== undefined) return answer;
    tail += 16 + (tail >> 2);
    guard += 48;
    if (guard > 2000) throw new RangeError("an enclosure did not become tight enough");
  }
}

function bitsOf(level: Fraction): number {
  return bitLength(level.bottom / level.top);
}

/** Decide P(|X| > k) ≤ level. */
export function tailAtMost(law: Law, k: bigint, level: Fraction): boolean {
  const bits = bitsOf(level);
  return refined(law, bits + 24, bits + 48, (found) => {
    const [least, most] = scaledTail(found, level);
    const place = k < BigInt(found.low.length) ? Number(k) : found.low.length - 1;
    const one = 1n << BigInt(found.bits);
    if (one - found.low[place]! <= least) return true;
    // Beyond the list only the upper end is known.
    return one - found.high[place]! > most && place === Number(k) ? false : undefined;
  });
}

/** Smallest k with P(|X| > k) ≤ level. */
export function twoSidedBound(law: Law, level: Fraction): number {
  const bits = bitsOf(level);
  return refined(law, bits + 24, bits + 48, (found) => {
    const [least, most] = scaledTail(found, level);
    const one = 1n << BigInt(found.bits);
    const k = found.low.findIndex((low) => one - low <= least);
    if (k < 0) return undefined;
    return k === 0 || one - found.high[k - 1]! > most ? k : undefined;
  });
}

function scaledTail(found: Heads, level: Fraction): [bigint, bigint] {
  const least = (level.top << BigInt(found.bits)) / level.bottom;
  return [least, least + 1n];
}

/** c_k = ⌊2^63 P(|X| ≤ k)⌋, each floor certain, up to the first k with 2^63 − 1. */
export function thresholds(law: Law): BigUint64Array {
  const last = (1n << 63n) - 1n;
  return refined(law, 88, 112, (found) => {
    const down = BigInt(found.bits - 63);
    const table: bigint[] = [];
    for (let k = 0; k < found.low.length; k++) {
      const floor = found.low[k]! >> down;
      const other = found.high[k]! >> down;
      if (floor !== (other > last ? last : other)) return undefined;
      table.push(floor);
      if (floor === last) return BigUint64Array.from(table);
    }
    return undefined;
  });
}
