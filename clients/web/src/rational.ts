/** Exact fractions: privacy parameters are rationals, and no float decides what a user sends. */
import { InputError } from "./errors.js";

export class Fraction {
  readonly top: bigint;
  readonly bottom: bigint; // above 0, and without a common divisor

  constructor(top: bigint | number, bottom: bigint | number = 1n) {
    let [n, d] = [BigInt(top), BigInt(bottom)];
    if (d < 0n) [n, d] = [-n, -d];
    const common = divisor(n < 0n ? -n : n, d);
    this.top = n / common;
    this.bottom = d / common;
  }

  plus(other: Fraction): Fraction {
    return new Fraction(this.top * other.bottom + other.top * this.bottom, this.bottom * other.bottom);
  }

  minus(other: Fraction): Fraction {
    return this.plus(new Fraction(-other.top, other.bottom));
  }

  times(other: Fraction): Fraction {
    return new Fraction(this.top * other.top, this.bottom * other.bottom);
  }

  over(other: Fraction): Fraction {
    return new Fraction(this.top * other.bottom, this.bottom * other.top);
  }

  /** Negative, zero or positive as this is below, equal to or above the other. */
  compare(other: Fraction): number {
    const [left, right] = [this.top * other.bottom, other.top * this.bottom];
    return left < right ? -1 : left > right ? 1 : 0;
  }

  atMost(other: Fraction): boolean {
    return this.compare(other) <= 0;
  }

  floor(): bigint {
    return floorDivide(this.top, this.bottom);
  }

  ceil(): bigint {
    return -floorDivide(-this.top, this.bottom);
  }

  /** Rounded; exact to a last digit where both parts are below 2^53. */
  toNumber(): number {
    const [n, d] = [Number(this.top), Number(this.bottom)];
    if (Number.isFinite(n) && Number.isFinite(d) && d < 2 ** 1000) return n / d;
    const shift = BigInt(Math.max(0, bitLength(this.bottom) - 1000));
    return Number(this.top >> shift) / Number(this.bottom >> shift);
  }

  toString(): string {
    return this.bottom === 1n ? `${this.top}` : `${this.top}/${this.bottom}`;
  }
}

export const ZERO = new Fraction(0n);
export const ONE = new Fraction(1n);

function divisor(left: bigint, right: bigint): bigint {
  while (right) [left, right] = [right, left % right];
  return left || 1n;
}

export function floorDivide(top: bigint, bottom: bigint): bigint {
  const quotient = top / bottom;
  return top % bottom < 0n ? quotient - 1n : quotient;
}

export function bitLength(value: bigint): number {
  const text = value.toString(16);
  return value ? 4 * (text.length - 1) + 32 - Math.clz32(parseInt(text[0]!, 16)) : 0;
}

/** ⌊√value⌋ */
export function squareRoot(value: bigint): bigint {
  if (value < 2n) return value;
  let guess = 1n << BigInt((bitLength(value) + 1) >> 1);
  for (;;) {
    const next = (guess + value / guess) >> 1n;
    if (next >= guess) return guess;
    guess = next;
  }
}

const LARGEST_TERM = 10n ** 12n;
const NUMBER =
  /^\s*([-+]?)(?=[\d.])(\d*|\d+(?:_\d+)*)(?:\/(\d+(?:_\d+)*)|(?:\.(\d*|\d+(?:_\d+)*))?(?:e([-+]?\d{1,3}))?)\s*$/i;

/** Read a number as Python's `exact` does: 0.1 is 1/10, "1/3" is 1/3. */
export function exact(value: string | number | Fraction): Fraction {
  if (value instanceof Fraction) return value;
  const found = NUMBER.exec(String(value));
  const plain = (text: string | undefined) => (text ?? "").replaceAll("_", "");
  const [whole, decimal] = [plain(found?.[2]), plain(found?.[4])];
  const bottom = BigInt(plain(found?.[3]) || 1);
  if (!found || !(whole + decimal) || !bottom) throw new InputError("no number");
  const exponent = Number(found[5] ?? 0) - decimal.length;
  const scale = 10n ** BigInt(Math.abs(exponent));
  const top = BigInt(`${found[1]}1`) * BigInt(whole + decimal);
  const number = exponent < 0 ? new Fraction(top, scale * bottom) : new Fraction(top * scale, bottom);
  const size = number.top < 0n ? -number.top : number.top;
  if (size > LARGEST_TERM || number.bottom > LARGEST_TERM) throw new InputError("a number too long");
  return number;
}
