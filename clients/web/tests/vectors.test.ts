/** Golden vectors that Python made: the sample in tests/vectors, or a folder of many. */
import { deepEqual } from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { COMPUTE } from "./compute.js";

const folder = process.env.WALLFLOWER_VECTORS ?? "../../tests/vectors";

for (const name of readdirSync(folder).sort()) {
  const kind = name.replace(".json", "");
  test(`Python and TypeScript make the same of ${kind}`, (context) => {
    const cases = JSON.parse(readFileSync(join(folder, name), "utf8"));
    for (const one of cases) deepEqual(COMPUTE[kind]!(one.in), one.out, JSON.stringify(one.in));
    context.diagnostic(`${kind}: ${cases.length} cases made by Python, checked by TypeScript`);
  });
}
