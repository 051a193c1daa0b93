import { sha256 as hash } from "@noble/hashes/sha2.js";

const encoder = new TextEncoder();

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

export function concat(...parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

export function equal(left: Uint8Array, right: Uint8Array): boolean {
  return compare(left, right) === 0;
}

/** Order as Python orders bytes, and texts by their UTF-8: as it orders texts. */
export function compare(left: Uint8Array, right: Uint8Array): number {
  const shorter = Math.min(left.length, right.length);
  for (let i = 0; i < shorter; i++) {
    if (left[i] !== right[i]) return left[i]! - right[i]!;
  }
  return left.length - right.length;
}

export function compareTexts(left: string, right: string): number {
  return compare(utf8(left), utf8(right));
}

/** Whether texts ascend strictly: sorted, and none of them twice. */
export function ascend(texts: string[]): boolean {
  return texts.every((text, i) => !i || compareTexts(texts[i - 1]!, text) < 0);
}

export function toHex(body: Uint8Array): string {
  return Array.from(body, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Uint8Array {
  const pairs = text.match(/../g) ?? [];
  return Uint8Array.from(pairs, (pair) => parseInt(pair, 16));
}

export function toBigInt(body: Uint8Array): bigint {
  return body.length ? BigInt(`0x${toHex(body)}`) : 0n;
}

/** Big-endian, in so many bytes. */
export function fromBigInt(value: bigint, size: number): Uint8Array {
  return fromHex(value.toString(16).padStart(2 * size, "0"));
}

export function randomBytes(size: number): Uint8Array {
  return crypto.getRandomValues(new Uint8Array(size));
}

export function sha256(...parts: Uint8Array[]): Uint8Array {
  return hash(concat(...parts));
}

/** How many characters a text has as Python counts them. */
export function lengthOf(text: string): number {
  return [...text].length;
}

/** Write values so that no two different sequences give the same bytes. */
export function canonical(...values: (string | Uint8Array | number | bigint)[]): Uint8Array {
  const parts: Uint8Array[] = [];
  for (const value of values) {
    const raw = value instanceof Uint8Array ? value : utf8(String(value));
    const kind = value instanceof Uint8Array ? "b" : typeof value === "string" ? "s" : "i";
    parts.push(utf8(kind), fromBigInt(BigInt(raw.length), 8), raw);
  }
  return concat(...parts);
}

/** SHA-256 of the canonical form. */
export function digest(...values: (string | Uint8Array | number | bigint)[]): Uint8Array {
  return sha256(canonical(...values));
}
