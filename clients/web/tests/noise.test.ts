/** A million draws against the law: χ² with a false-alarm rate of 10⁻⁶ for each law. */
import { ok } from "node:assert/strict";
import { test } from "node:test";
import { heads, type Law } from "../src/laws.js";
import { Fraction } from "../src/rational.js";
import { Sampler } from "../src/table.js";

const DRAWS = 1_000_000;
const LAWS: Record<string, Law> = {
  "dist-dp": { kind: "difference", shape: new Fraction(1, 308), rate: new Fraction(1, 20) },
  "local-dp": { kind: "difference", shape: new Fraction(1), rate: new Fraction(1, 20) },
  "dist-rdp": { kind: "skellam", variance: new Fraction(125) },
  "dist-cdp": { kind: "gaussian", variance: new Fraction(125) },
};

/** Words of a seed (splitmix64): the same test every time. */
function seeded(seed: bigint): () => bigint {
  const mask = (1n << 64n) - 1n;
  return () => {
    seed = (seed + 0x9e3779b97f4a7c15n) & mask;
    let z = seed;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & mask;
    return z ^ (z >> 31n);
  };
}

/** P(X = k) and the rest beyond, in cells with at least five draws expected. */
function cellsOf(law: Law): { last: number; masses: number[] } {
  const { low, bits } = heads(law, 60, 110);
  const head = low.map((one) => Number(one >> BigInt(bits - 60)) / 2 ** 60);
  let last = head.findIndex((one) => (1 - one) * DRAWS < 10);
  last = last < 0 ? head.length - 1 : last;
  return { last, masses: head.slice(0, last + 1).map((one, k) => one - (k ? head[k - 1]! : 0)) };
}

for (const [name, law] of Object.entries(LAWS)) {
  test(`a million draws of ${name} follow the law`, (context) => {
    const sampler = new Sampler(law);
    const words = seeded(20260717n);
    const { last, masses } = cellsOf(law);
    const counts = new Array<number>(2 * last + 3).fill(0);
    for (let i = 0; i < DRAWS; i++) {
      const x = Number(sampler.draw(words));
      const place = Math.min(Math.max(x, -last - 1), last + 1);
      counts[place + last + 1]!++;
    }
    let [square, cells, restCount, restMass] = [0, 0, 0, 1];
    counts.forEach((count, i) => {
      const k = Math.abs(i - last - 1);
      const mass = k > last ? 0 : k ? masses[k]! / 2 : masses[0]!;
      if (mass * DRAWS < 5) return void (restCount += count);
      square += (count - mass * DRAWS) ** 2 / (mass * DRAWS);
      restMass -= mass;
      cells++;
    });
    if (restMass * DRAWS >= 5) {
      square += (restCount - restMass * DRAWS) ** 2 / (restMass * DRAWS);
      cells++;
    }
    // Wilson and Hilferty: the cube root of χ²/k is nearly normal; 4.75 deviations are 10⁻⁶.
    const freedom = cells - 1;
    const score = ((square / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / Math.sqrt(2 / (9 * freedom));
    context.diagnostic(`${name}: χ² = ${square.toFixed(1)} at ${freedom} degrees, score ${score.toFixed(2)}`);
    ok(score < 4.75, `χ² ${square} at ${freedom} degrees of freedom`);
  });
}
