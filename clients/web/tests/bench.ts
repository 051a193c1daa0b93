/** What a contribution costs in a page, by part; benchmarks/web_client.py calls it in Chromium. */
import { fromHex } from "../src/bytes.js";
import { freshRandomness, inspectRequest, seal } from "../src/contribution.js";
import { encrypt, proveRange, proveSender, statementOf } from "../src/sealed.js";
import { encodeReward, Sampler } from "../src/table.js";
import { partyOf, type Values } from "./compute.js";

type Parts = Record<string, number>;

function once(given: Values): Parts {
  const parts: Parts = {};
  let at = performance.now();
  const lap = (name: string): void => {
    const now = performance.now();
    parts[name] = now - at;
    at = now;
  };
  const party = partyOf(given);
  const inspected = inspectRequest(fromHex(given.request), given.arms, party);
  lap("terms");
  const sampler = new Sampler(inspected.mechanism.noise);
  lap("table");
  const randomness = freshRandomness();
  const rounded = encodeReward(1, inspected.mechanism.precision, randomness.words);
  const value = rounded + sampler.draw(randomness.words);
  lap("noise");
  seal(inspected, party, value, randomness);
  lap("seal");
  parts.all = Object.values(parts).reduce((sum, one) => sum + one, 0);
  const { key, bound, range } = inspected;
  at = performance.now();
  const [sealed, opening] = encrypt(key, value, randomness);
  lap("… encrypt");
  const said = statementOf(bound, party.name, 1n, sealed);
  proveSender(opening, said, randomness);
  lap("… prove knowledge");
  if (range) proveRange(key, sealed, opening, range, said, randomness.scalars);
  lap("… prove range");
  return parts;
}

function quantile(sorted: number[], level: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(level * sorted.length))]!;
}

/** Median and p99 of every part over so many contributions, in milliseconds; the first apart. */
export function measure(given: Values, count: number): Record<string, number[]> {
  const first = once(given);
  const all = Array.from({ length: count }, () => once(given));
  const result: Record<string, number[]> = {};
  for (const name of Object.keys(first)) {
    const sorted = all.map((one) => one[name]!).sort((left, right) => left - right);
    result[name] = [quantile(sorted, 0.5), quantile(sorted, 0.99), first[name]!];
  }
  return result;
}

Object.assign(globalThis, { measure });
