/** What a cohort's description means: precision, noise, guarantee. All is derived here. */
import { subGammaBound } from "./fixed.js";
import { InputError } from "./errors.js";
import { type Law, tailAtMost, twoSidedBound } from "./laws.js";
import { Fraction, ONE, squareRoot, ZERO } from "./rational.js";
import { approximateEpsilon, type Cost, PROVED_DELTA } from "./account.js";

const LARGEST_COHORT = 10n ** 10n;
const LARGEST_EPSILON = new Fraction(100);
const SMALLEST_EPSILON = new Fraction(1, 1000);
const LARGEST_SCALE = new Fraction(1000);
const SMALLEST_WRAP = new Fraction(1n, 10n ** 18n);
const WIDEST_EXACT_LAPLACE = 2_000n;
const WIDEST_EXACT_NORMAL = 20_000n;
const LARGEST_EXACT_SHAPE = new Fraction(16);
const WIDEST_SHARE = 100_000n;
const LARGEST_CONVOLVED_VARIANCE = new Fraction(1n << 18n);
const GRID = 10n ** 15n;

/** What a user of a cohort adds, and what the sum of all of them may be. */
export interface Mechanism {
  size: bigint;
  epsilon: Fraction;
  precision: bigint; // g
  noise: Law; // of one user
  /** Whether the total noise passes `bound` with at most the wrap probability. */
  fits(bound: bigint): boolean;
  cost: Cost; // without what a proof of range adds
}

export interface Terms {
  name: string;
  epsilon: Fraction;
  scale: Fraction;
  size: bigint;
  floor: bigint;
  wrap: Fraction;
}

export const MECHANISMS = ["dist-dp", "dist-rdp", "dist-cdp", "local-dp"];

/** Calibrate; raises InputError where Python's registry does. */
export function mechanismOf(terms: Terms): Mechanism {
  const { name, epsilon, scale, size, floor, wrap } = terms;
  const smallest = name === "dist-cdp" ? new Fraction(3, 2) : ONE;
  const good =
    MECHANISMS.includes(name) &&
    withinTerms(epsilon) &&
    withinTerms(scale) &&
    SMALLEST_EPSILON.atMost(epsilon) &&
    epsilon.atMost(LARGEST_EPSILON) &&
    smallest.atMost(scale) &&
    scale.atMost(LARGEST_SCALE) &&
    size >= 1n &&
    size <= LARGEST_COHORT &&
    floor >= 1n &&
    floor <= size &&
    SMALLEST_WRAP.atMost(wrap) &&
    !ONE.atMost(wrap);
  if (!good) throw new InputError("a cohort's mechanism or its numbers");
  return name === "dist-dp" || name === "local-dp" ? pure(terms) : curved(terms);
}

function withinTerms(value: Fraction): boolean {
  return value.top <= 10n ** 12n && value.bottom <= 10n ** 12n;
}

/** ⌈sε√n⌉ */
export function precisionFor(epsilon: Fraction, size: bigint, scale = ONE): bigint {
  const product = scale.times(epsilon);
  const square = product.times(product).times(new Fraction(size)).ceil();
  return squareRoot(square - 1n) + 1n;
}

function pure({ name, epsilon, size, floor, wrap }: Terms): Mechanism {
  const precision = precisionFor(epsilon, size);
  const rate = epsilon.over(new Fraction(precision));
  const local = name === "local-dp";
  const shape = local ? ONE : new Fraction(1n, floor);
  const noise: Law = { kind: "difference", shape, rate };
  const total = shape.times(new Fraction(size));
  const square = new Fraction(2n).times(total).over(rate.times(rate));
  const narrow =
    total.atMost(LARGEST_EXACT_SHAPE) &&
    square.atMost(new Fraction(WIDEST_EXACT_LAPLACE ** 2n));
  const exactly = total.compare(ONE) === 0 || narrow;
  const fits = (bound: bigint): boolean =>
    exactly && !local
      ? tailAtMost({ kind: "difference", shape: total, rate }, bound, wrap)
      : subGammaBound(square, ONE.over(rate), wrap) <= bound;
  const cost = { kind: "pure", epsilon, precision: 0n, delta: ZERO } as const;
  return { size, epsilon, precision, noise, fits, cost };
}

function curved({ name, epsilon, scale, size, floor, wrap }: Terms): Mechanism {
  const precision = precisionFor(epsilon, size, scale);
  const ratio = new Fraction(precision).over(epsilon);
  const variance = ratio.times(ratio).over(new Fraction(floor));
  if (!variance.atMost(new Fraction(WIDEST_SHARE ** 2n))) throw new InputError("noise too wide");
  const total = variance.times(new Fraction(size));
  const narrow = total.atMost(new Fraction(WIDEST_EXACT_NORMAL ** 2n));
  if (name === "dist-rdp") {
    const fits = (bound: bigint): boolean =>
      narrow
        ? tailAtMost({ kind: "skellam", variance: total }, bound, wrap)
        : subGammaBound(total, new Fraction(1, 3), wrap) <= bound;
    const cost = { kind: "renyi", epsilon, precision, delta: ZERO } as const;
    return { size, epsilon, precision, noise: { kind: "skellam", variance }, fits, cost };
  }
  const fits = (bound: bigint): boolean =>
    narrow ? gaussiansFit(size, variance, bound, wrap) : subGammaBound(total, ZERO, wrap) <= bound;
  const raised = concentratedEpsilon(epsilon, variance, floor);
  const cost = { kind: "concentrated", epsilon: raised, precision: 0n, delta: ZERO } as const;
  return { size, epsilon, precision, noise: { kind: "gaussian", variance }, fits, cost };
}

/** Σ_{k<n} 10·e^(−2π²σ²k/(k+1)): how far n discrete Gaussians are from a single one. */
function closeness(count: bigint, variance: Fraction): number {
  const rate = 2 * Math.PI ** 2 * variance.toNumber();
  const listed = Math.min(Number(count) - 1, 64);
  let sum = 0;
  for (let k = 1; k <= listed; k++) sum += Math.exp((-rate * k) / (k + 1));
  const others = Number(count) - 1 - listed;
  return 10 * (sum + others * Math.exp((-rate * listed) / (listed + 1))) * (1 + 1e-12);
}

/** Decide whether n discrete Gaussians together pass `bound` with at most `level`. */
function gaussiansFit(count: bigint, variance: Fraction, bound: bigint, level: Fraction): boolean {
  const sum = variance.times(new Fraction(count));
  const single: Law = { kind: "gaussian", variance: sum };
  if (count === 1n) return tailAtMost(single, bound, level);
  const factor = ONE.plus(fromDouble(Math.expm1(closeness(count, variance))));
  const surely = tailAtMost(single, bound, level.over(factor));
  if (surely || !tailAtMost(single, bound, level.times(factor))) return surely;
  // Between the two only a convolution, or Python's choice of a bound, decides.
  if (sum.atMost(LARGEST_CONVOLVED_VARIANCE)) throw new InputError("a bound that is too close");
  return subGammaBound(sum, ZERO, level) - 1n <= bound;
}

function concentratedEpsilon(epsilon: Fraction, variance: Fraction, shares: bigint): Fraction {
  if (shares === 1n) return epsilon;
  const excess = fromDouble(closeness(shares, variance));
  const grid = new Fraction(GRID);
  const half = excess.over(new Fraction(2n));
  const square = epsilon.times(epsilon).plus(half).times(grid).times(grid).ceil();
  const [sum, root] = [epsilon.plus(excess).times(grid).ceil(), squareRoot(square) + 1n];
  return new Fraction(sum < root ? sum : root, GRID);
}

function fromDouble(x: number): Fraction {
  return new Fraction(BigInt(Math.round(x * 2 ** 120)), 1n << 120n);
}

/** Where one user's noise is cut so that a proof of range costs δ ≤ 2⁻⁴⁰ in all. */
export function truncationBound(mechanism: Mechanism): bigint {
  const { cost, size } = mechanism;
  const epsilon =
    cost.kind === "pure" ? cost.epsilon.toNumber() : approximateEpsilon([[cost, 1]], 1e-6);
  if (epsilon > 64) throw new InputError("an epsilon too large for proofs of range");
  const factor = BigInt(Math.ceil(1 + Math.exp(epsilon) * (1 + 1e-9)));
  return BigInt(twoSidedBound(mechanism.noise, PROVED_DELTA.over(new Fraction(size * factor))));
}
