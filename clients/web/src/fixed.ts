/** Functions of exact numbers, enclosed between two integers: low ≤ 2^bits·f(x) ≤ high. */
import { bitLength, Fraction, squareRoot } from "./rational.js";

export type Enclosure = readonly [bigint, bigint];

const HALVINGS = 12n;
const SPARE = 48n;

/** e^x for 0 ≤ x ≤ 100. */
export function exponential(x: Fraction, bits: number): Enclosure {
  const work = BigInt(bits) + SPARE;
  // y ≤ x/2^12 < y + 2^−work; every term of the series is rounded down by less than one.
  const y = (x.top << work) / (x.bottom << HALVINGS);
  let sum = 0n;
  let term = 1n << work;
  let count = 0n;
  for (; term; count++) {
    sum += term;
    term = (term * y) / ((count + 1n) << work);
  }
  let [low, high] = [sum, sum + 2n * count + 4n];
  for (let i = 0n; i < HALVINGS; i++) {
    low = (low * low) >> work;
    high = ((high * high) >> work) + 1n;
  }
  return [low >> SPARE, (high >> SPARE) + 1n];
}

/** e^−x for 0 ≤ x ≤ 100. */
export function decay(x: Fraction, bits: number): Enclosure {
  const extra = Math.ceil(3 * x.toNumber());
  const [low, high] = exponential(x, bits + extra);
  const one = 1n << BigInt(2 * bits + extra);
  return [one / high, one / low + 1n];
}

/** ln x for x ≥ 1. */
export function logarithm(x: Fraction, bits: number): Enclosure {
  const work = BigInt(bits) + SPARE;
  const doublings = bitLength(x.top / x.bottom);
  // x = 2^doublings · z with 1/2 ≤ z < 1, and ln z = −2 artanh((1 − z)/(1 + z)).
  const scaled = new Fraction(x.top, x.bottom << BigInt(doublings));
  const one = new Fraction(1n);
  const [low, high] = artanh(one.minus(scaled).over(one.plus(scaled)), work);
  const [twoLow, twoHigh] = artanh(new Fraction(1n, 3n), work);
  const count = 2n * BigInt(doublings);
  return [(count * twoLow - 2n * high) >> SPARE, ((count * twoHigh - 2n * low) >> SPARE) + 1n];
}

/** Enclose artanh y for 0 ≤ y ≤ 1/3. */
function artanh(y: Fraction, work: bigint): Enclosure {
  let power = (y.top << work) / y.bottom;
  let [sum, count] = [0n, 0n];
  for (; power; count++) {
    sum += power / (2n * count + 1n);
    power = (power * y.top * y.top) / (y.bottom * y.bottom);
  }
  return [sum, sum + 3n * count + 3n];
}

/** ⌈√(2vx) + cx⌉ with x = ln(2/level): what a sub-gamma law (v, c) rarely passes. */
export function subGammaBound(variance: Fraction, tail: Fraction, level: Fraction): bigint {
  const bits = 192;
  const unit = BigInt(bits);
  const bound = (x: bigint, up: bigint): bigint => {
    const square = ((2n * variance.top * x) << unit) / variance.bottom + up;
    const linear = (tail.top * x) / tail.bottom + up;
    return squareRoot(square) + linear + up;
  };
  const [low, high] = logarithm(new Fraction(2n).over(level), bits);
  const ceil = (value: bigint) => -(-value >> unit);
  const [least, most] = [ceil(bound(low, 0n)), ceil(bound(high, 1n))];
  if (least !== most) throw new RangeError("a bound next to an integer");
  return most;
}
