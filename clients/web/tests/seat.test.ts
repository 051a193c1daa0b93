/** A seat gives one answer, at a time that no outcome decides, whatever becomes of its page. */
import { deepEqual, equal, rejects, throws } from "node:assert/strict";
import { test } from "node:test";
import { checkFirst, OpenSeat, type Outside } from "../src/seat.js";
import type { Progress } from "../src/store.js";

const page = new EventTarget();
globalThis.addEventListener = page.addEventListener.bind(page) as typeof addEventListener;
const turn = () => new Promise((resolve) => setTimeout(resolve, 0));

function progressAt(stage: Progress["stage"], arrival = 1): Progress {
  const none = new Uint8Array();
  return {
    run: "run", visitor: "somebody", arrival: Uint8Array.of(arrival), stage, arm: 0, armName: "red",
    reason: "", request: none, arms: [], answer: none, openedAt: 0, resumes: false,
  };
}

/** A seat, and what it did: each kept progress and each answer that left. */
function seated(changes: Partial<Outside> = {}): { seat: OpenSeat; did: string[] } {
  const did: string[] = [];
  const note = async (what: string): Promise<void> => void did.push(what);
  const seat = new OpenSeat(progressAt("open"), {
    arm: { number: 0, name: "red" },
    spent: 1,
    windowMs: 60_000,
    leftMs: 60_000,
    resumes: false,
    seal: (outcome) => Uint8Array.of(outcome ?? 9),
    keep: ({ stage, answer }) => note(`keep ${stage} ${answer}`),
    deliver: ({ answer }) => note(`deliver ${answer}`).then(() => "taken"),
    hurry: ({ answer }) => note(`hurry ${answer}`),
    ...changes,
  });
  return { seat, did };
}

test("an answer is kept before it leaves", async () => {
  const { seat, did } = seated({ windowMs: 0 });
  equal(await seat.answer(1), "taken");
  equal(await seat.answer(0), "taken");
  deepEqual(did, ["keep answered 1", "deliver 1"]);
});

for (const outcome of [0, 1, undefined]) {
  test(`a page that is left with ${outcome} sends it and writes nothing until it is shown again`, async () => {
    const { seat, did } = seated();
    if (outcome !== undefined) void seat.answer(outcome);
    await turn();
    page.dispatchEvent(new Event("pagehide"));
    page.dispatchEvent(new Event("pagehide"));
    await turn();
    deepEqual(did, [`hurry ${outcome ?? 9}`]);
    page.dispatchEvent(new Event("pageshow"));
    equal(await seat.finished, "taken");
    deepEqual(did.slice(1), [`keep answered ${outcome ?? 9}`, `deliver ${outcome ?? 9}`]);
  });
}

test("a page that is gone on with sends nothing when it is left", async () => {
  const { seat, did } = seated({ resumes: true, leftMs: 50 });
  page.dispatchEvent(new Event("pagehide"));
  await turn();
  deepEqual(did, []);
  equal(await seat.finished, "taken");
});

test("where sealing fails nothing leaves, and the page goes on", async () => {
  const { seat, did } = seated({
    windowMs: 0,
    seal: () => {
      throw new Error("no randomness");
    },
  });
  await turn();
  equal(await seat.answer(1), "not-possible");
  deepEqual(did, ["keep closed "]);
});

test("an outcome that is no number is refused, and may be stated after all", async () => {
  const { seat, did } = seated({ windowMs: 0 });
  await rejects(seat.answer("1" as unknown as number), /no number/);
  deepEqual(did, []);
  equal(await seat.answer(1), "taken");
});

test("a seat that another page ended is not ended again", () => {
  const answered = progressAt("answered");
  checkFirst(undefined, answered);
  checkFirst(progressAt("open"), answered);
  checkFirst(progressAt("done", 2), answered); // of another arrival
  for (const stage of ["answered", "done", "closed"] as const) {
    throws(() => checkFirst(progressAt(stage), answered), { code: "cohort-already-answered" });
  }
});
