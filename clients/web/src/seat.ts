/** A seat whose arm is shown: it gives one answer, at a time that no outcome decides. */
import { equal } from "./bytes.js";
import { InputError, Refusal } from "./errors.js";
import type { Progress } from "./store.js";

export interface Arm {
  number: number;
  name: string;
}

export interface Seat {
  /** What to show; null where the server cannot be reached: show whatever you like. */
  readonly arm: Arm | null;
  /** Whether this person counts. */
  readonly measured: boolean;
  /** Why not: a word of the server's, or a code of this client's refusals. */
  readonly reason: string;
  /** ε that this browser spent so far, this seat included, at the policy's δ. */
  readonly spent: number | null;
  /** State the outcome, once; NaN: not known. Resolves to "taken", or to why it is in no sum. */
  answer(outcome: number): Promise<string>;
}

/** What an open seat needs of its visitor. */
export interface Outside {
  arm: Arm;
  spent: number | null;
  windowMs: number; // 0: an answer leaves as soon as there is one
  leftMs: number; // until what is not known is not waited for any more
  resumes: boolean; // leaving the page sends nothing
  seal(outcome: number | undefined): Uint8Array;
  keep(progress: Progress): Promise<void>;
  deliver(progress: Progress): Promise<string>;
  hurry(progress: Progress): Promise<unknown>;
}

export class OpenSeat implements Seat {
  readonly measured = true;
  readonly reason = "";
  readonly arm: Arm;
  readonly spent: number | null;
  readonly finished: Promise<string>;
  private resolve!: (became: Promise<string>) => void;
  private outcome: number | undefined;
  private prepared: Uint8Array | Refusal | undefined;
  private given = false;
  private readonly timer: ReturnType<typeof setTimeout>;
  private readonly endsAt: number;

  constructor(
    private readonly progress: Progress,
    private readonly outside: Outside,
  ) {
    this.arm = outside.arm;
    this.spent = outside.spent;
    this.finished = new Promise((resolve) => (this.resolve = resolve));
    this.endsAt = performance.now() + outside.leftMs;
    this.timer = setTimeout(() => this.finish(), outside.leftMs);
    // Sealing may take longer than a page has that is being left: it is done beforehand.
    setTimeout(() => this.prepare(), 0);
    addEventListener("pagehide", () => this.leave());
  }

  answer(outcome: number): Promise<string> {
    if (typeof outcome !== "number") return Promise.reject(new InputError("an outcome is no number"));
    if (this.outcome === undefined && !this.given) {
      this.outcome = outcome;
      this.prepared = undefined;
      const { windowMs, resumes } = this.outside;
      // A page that is left has no time to write what the next one is to send.
      if (resumes || !windowMs) this.finish(windowMs ? this.endsAt : 0);
      else setTimeout(() => this.prepare(), 0);
    }
    return this.finished;
  }

  /** Seal what is known now; of all that is prepared one answer is ever given. */
  private prepare(): Uint8Array | Refusal {
    try {
      this.prepared ??= this.outside.seal(this.outcome);
    } catch (error) {
      // Whatever fails, such as the platform's generator: the page goes on, and nothing leaves.
      this.prepared = error instanceof Refusal ? error : new Refusal("not-possible");
    }
    return this.prepared;
  }

  /** Return the one answer, or why there is none; undefined where it was given before. */
  private give(): Progress | undefined {
    if (this.given) return undefined;
    this.given = true;
    clearTimeout(this.timer);
    const answer = this.prepare();
    this.outcome = this.prepared = undefined;
    if (!(answer instanceof Refusal)) return { ...this.progress, stage: "answered", answer };
    return { ...this.progress, stage: "closed", reason: answer.code };
  }

  /** What became of the seat; where the ledger cannot be written nothing leaves. */
  private end(became: Promise<string>): void {
    this.resolve(
      became.catch((error: unknown) => {
        if (error instanceof Refusal) return error.code;
        throw error;
      }),
    );
  }

  private finish(at = 0): void {
    const given = this.give();
    if (given) this.end(this.settle(given, at));
  }

  /** On disk before it leaves: a page that comes later sends these very bytes. */
  private async settle(given: Progress, at = 0): Promise<string> {
    await this.outside.keep(given);
    if (given.stage === "closed") return given.reason;
    if (at) await pauseUntil(at);
    return this.outside.deliver(given);
  }

  /** The page goes: its answer leaves at once, and the next page gives none. */
  private leave(): void {
    const { resumes, hurry } = this.outside;
    // The site's next page goes on, and sends what is known at the end of the window.
    if (resumes) return;
    const given = this.give();
    if (!given) return;
    if (given.stage === "answered") void hurry(given).catch(() => undefined);
    // Nothing is written now: work on the disk of a page that is set aside, and not closed,
    // would hold up the next one. A page that is shown again goes on from here.
    this.end(shownAgain().then(() => this.settle(given)));
  }
}

/** Refuse to end a seat that another page ended: two answers would tell the outcome. */
export function checkFirst(known: Progress | undefined, given: Progress): void {
  const same = known && equal(known.arrival, given.arrival);
  if (same && known.stage !== "open") throw new Refusal("cohort-already-answered");
}

function shownAgain(): Promise<unknown> {
  return new Promise((resolve) => addEventListener("pageshow", resolve, { once: true }));
}

/** Wait until a moment of this page's clock that runs evenly (ms). */
function pauseUntil(at: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, at - performance.now())));
}
