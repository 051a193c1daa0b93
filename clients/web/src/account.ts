/** What one user has spent over all runs: guarantees of all kinds as one (ε, δ). */
import { Fraction, ZERO } from "./rational.js";
import { precisionFor } from "./mechanism.js";

export interface Cost {
  kind: "pure" | "renyi" | "concentrated";
  epsilon: Fraction;
  precision: bigint; // g, which the curve of Skellam noise needs; 0 elsewhere
  delta: Fraction; // of its own: of noise that is cut off; else 0
}

/** Different costs, each with its number. */
export type Spends = [Cost, number][];

const GRID = 10 ** 6;
const LARGEST_EXPONENT = 500;
const LARGEST_EXCESS = new Fraction(1n, 10n ** 8n);
const SENTENCE_DELTA = 1e-6;
export const PROVED_DELTA = new Fraction(1n, 1n << 40n);
export const SMALLEST_PROVED_DELTA = new Fraction(1n, 10n ** 9n);

export function sameCost(one: Cost, other: Cost): boolean {
  return (
    one.kind === other.kind &&
    one.precision === other.precision &&
    one.epsilon.compare(other.epsilon) === 0 &&
    one.delta.compare(other.delta) === 0
  );
}

/** Most that any cohort of at least so many users costs at an ε. */
export function largestCost(cost: Cost, epsilon: Fraction, smallest: bigint): Cost {
  const { kind, delta } = cost;
  if (kind === "renyi") return { kind, epsilon, precision: precisionFor(epsilon, smallest), delta };
  const raised = kind === "concentrated" ? epsilon.plus(LARGEST_EXCESS) : epsilon;
  return { kind, epsilon: raised, precision: 0n, delta };
}

export function plus(spends: Spends, cost: Cost): Spends {
  const known = spends.findIndex(([one]) => sameCost(one, cost));
  if (known < 0) return [...spends, [cost, 1]];
  return spends.map(([one, number], i) => [one, i === known ? number + 1 : number]);
}

/** Smallest ε such that all spends together are (ε, δ)-DP; undefined: no bound. */
export function totalEpsilon(spends: Spends, delta: Fraction): Fraction | undefined {
  const pure = spends.filter(([cost]) => cost.kind === "pure");
  const curves = spends.filter(([cost]) => cost.kind !== "pure");
  pure.sort(([left], [right]) => right.epsilon.compare(left.epsilon) || right.delta.compare(left.delta));
  let best: Fraction | undefined;
  let [added, left] = [ZERO, delta];
  for (let i = 0; i <= pure.length; i++) {
    if (i) {
      const [cost, number] = pure[i - 1]!;
      added = added.plus(cost.epsilon.times(new Fraction(number)));
      left = left.minus(cost.delta.times(new Fraction(number)));
    }
    if (left.top <= 0n) continue;
    const rest = converted([...pure.slice(i), ...curves], left.toNumber());
    const sum = rest && added.plus(rest);
    if (sum && (!best || sum.compare(best) < 0)) best = sum;
  }
  return best ?? oneByOne(spends, delta);
}

/** Add up spends that are converted each by itself: basic composition. */
function oneByOne(spends: Spends, delta: Fraction): Fraction | undefined {
  const count = spends.reduce((sum, [, number]) => sum + number, 0);
  const share = delta.over(new Fraction(count)).toNumber();
  let sum = ZERO;
  for (const [cost, number] of spends) {
    const alone = converted([[cost, 1]], share);
    if (!alone) return undefined;
    sum = sum.plus(alone.times(new Fraction(number)));
  }
  return sum;
}

function converted(spends: Spends, delta: number): Fraction | undefined {
  if (!spends.length) return ZERO;
  const own = spends.map(([cost]) =>
    cost.kind === "pure" ? cost.epsilon.toNumber() : approximateEpsilon([[cost, 1]], SENTENCE_DELTA),
  );
  for (let [epsilon, margin] = [0, 1 / GRID]; epsilon <= LARGEST_EXPONENT; margin *= 2) {
    const lost = spends.reduce(
      (sum, [cost, number], i) =>
        sum + number * cost.delta.toNumber() * Math.exp(Math.max(0, epsilon - own[i]!)),
      0,
    );
    if (delta - lost <= 0) return undefined;
    const needed = approximateEpsilon(spends, delta - lost);
    if (needed <= epsilon || !lost) {
      return Number.isFinite(needed) ? new Fraction(Math.ceil(needed * GRID) + 1, GRID) : undefined;
    }
    epsilon = needed + margin;
  }
  return undefined;
}

/** Smallest ε of (ε, δ)-DP over orders of the added Rényi curves. */
export function approximateEpsilon(spends: Spends, delta: number): number {
  const at = (logarithm: number): number => {
    const order = 1 + Math.exp(logarithm);
    const sum = spends.reduce((total, [cost, number]) => total + number * renyi(cost, order), 0);
    return Math.max(0, sum - Math.log(order * delta) / (order - 1) + Math.log1p(-1 / order));
  };
  let centre = -6;
  for (let k = 1; k < 199; k++) if (at(-6 + 0.1 * k) < at(centre)) centre = -6 + 0.1 * k;
  let best = Infinity;
  for (let k = -50; k <= 50; k++) best = Math.min(best, at(centre + 0.002 * k));
  return best;
}

function renyi({ kind, epsilon, precision }: Cost, order: number): number {
  const square = epsilon.toNumber() ** 2;
  const gaussian = (order * square) / 2;
  if (kind === "pure") return Math.min(epsilon.toNumber(), gaussian);
  if (kind === "concentrated") return gaussian;
  const g = Number(precision);
  const scaled = (alpha: number): number => {
    const first = ((2 * alpha - 1) * square ** 2) / (4 * g ** 2) + (3 * square ** 2) / (2 * g ** 3);
    return (alpha - 1) * ((alpha * square) / 2 + Math.min(first, (3 * square) / (2 * g)));
  };
  // Between two integers the divergence lies below the chord.
  const below = Math.floor(order);
  const above = order - below;
  return ((1 - above) * scaled(below) + above * scaled(below + 1)) / (order - 1);
}
