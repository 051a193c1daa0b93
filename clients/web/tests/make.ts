/** Draws inputs and writes what TypeScript makes of them, for Python to check. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { randomBytes, toBigInt, toHex } from "../src/bytes.js";
import { base, randomScalar } from "../src/group.js";
import { precisionFor } from "../src/mechanism.js";
import { Fraction, ONE } from "../src/rational.js";
import { COMPUTE, type Values } from "./compute.js";

const [, , source, folder] = process.argv as [string, string, string, string];
const EPSILONS = ["1/10", "1/3", "1/2", "1", "2"];
const NAMES = ["run-1", "größte", "日本\x7f", 'a"b\\', "😀 arm"];

function below(bound: number): number {
  return Math.floor(Math.random() * bound);
}

function pick<T>(list: T[]): T {
  return list[below(list.length)]!;
}

function words(count: number): string[] {
  return Array.from({ length: count }, () => `${toBigInt(randomBytes(8))}`);
}

function hex(value: number): string {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  return toHex(new Uint8Array(view.buffer));
}

function law(): Values {
  const [top, bottom = "1"] = pick(EPSILONS).split("/");
  const epsilon = new Fraction(BigInt(top!), BigInt(bottom));
  const size = 20 + below(4000);
  const floor = BigInt(Math.ceil(size / 2) + below(size >> 1));
  const kind = pick(["difference", "local", "skellam", "gaussian"]);
  if (kind === "difference" || kind === "local") {
    const rate = epsilon.over(new Fraction(precisionFor(epsilon, BigInt(size))));
    const shape = kind === "local" ? ONE : new Fraction(1n, floor);
    return { kind: "difference", shape: `${shape}`, rate: `${rate}` };
  }
  const ratio = new Fraction(precisionFor(epsilon, BigInt(size), new Fraction(10))).over(epsilon);
  return { kind, variance: `${ratio.times(ratio).over(new Fraction(floor))}` };
}

const laws = Array.from({ length: 30 }, law);

const DRAW: Record<string, [number, () => Values]> = {
  table: [60, () => ({ law: law() })],
  draw: [5_000, () => ({ law: pick(laws), words: words(4) })],
  round: [
    5_000,
    () => ({
      reward: hex(Math.random() * 2 ** -below(70)),
      precision: `${1 + below(2 ** (1 + below(50)))}`,
      words: words(20),
    }),
  ],
  sealing: [
    100,
    () => ({
      key: toHex(base(randomScalar()).toBytes()),
      value: `${below(2000) - 1000}`,
      context: toHex(randomBytes(32)),
      sender: pick(NAMES),
      scalars: Array.from({ length: 30 }, () => `${randomScalar()}`),
      fresh: toHex(randomBytes(32)),
      range: Math.random() < 0.5 ? ["-1000", `${1000 + below(5000)}`] : null,
    }),
  ],
  sizes: [
    300,
    () => ({
      corrupt: `${below(40)}/100`,
      dropout: `${below(30)}/100`,
      lying: Math.random() < 0.5,
      nodes: 1 + below(300),
    }),
  ],
  range: [
    2_000,
    () => ({ low: `${-below(9)}/7`, high: `${below(300)}`, unit: pick(["", "€"]), outcome: hex(Math.random() * 400 - 200) }),
  ],
  answer: [
    100,
    () => ({
      ...pick<Values>(seats).in,
      outcome: Math.random(),
      words: words(30),
      scalars: Array.from({ length: 60 }, () => `${randomScalar()}`),
      fresh: toHex(randomBytes(32)),
    }),
  ],
};

const seats = JSON.parse(readFileSync(join(source, "answer.json"), "utf8"));
mkdirSync(folder, { recursive: true });
for (const [kind, [count, draw]] of Object.entries(DRAW)) {
  const drawn = Array.from({ length: count }, draw);
  const cases = drawn.map((given) => ({ in: given, out: COMPUTE[kind]!(given) }));
  writeFileSync(join(folder, `${kind}.json`), JSON.stringify(cases));
  console.log(`${kind}: ${count} cases made by TypeScript`);
}
