/** Take part in a private experiment from a page: `join`, show the arm, `answer`. */
import { compareTexts, fromHex, randomBytes, toHex } from "./bytes.js";
import { DEFAULT_RANGE, LONGEST_WINDOW_S, makeRange, placeInRange } from "./cohort.js";
import { Contribution, inspectRequest, type Inspected, type Party } from "./contribution.js";
import { InputError, Refusal } from "./errors.js";
import { type Identity, readInvitation, Trust } from "./identity.js";
import { chargeFor, priceFor, spentSoFar } from "./ledger.js";
import { makePolicy, type PolicyOptions } from "./policy.js";
import { answerPoll, arrivalPoll, type Caller, exchange, readNoSeat, send } from "./poll.js";
import { type Arm, checkFirst, OpenSeat, type Seat } from "./seat.js";
import { BrowserStore, type Store, type Progress, UNAVAILABLE } from "./store.js";

export { Refusal } from "./errors.js";
export type { Arm, Seat } from "./seat.js";
export type { PolicyOptions } from "./policy.js";

const IMMEDIATE_MS = 60_000; // how long an outcome without a window may take
const PATIENCE_MS = 8_000; // for a seat; a page must show something
// Before a seat that is gone on with may end: sealing anew must not show by the time it takes.
const SETTLE_MS = 1_000;

export interface JoinOptions {
  /** Address of the run's server, such as "https://ab.example". */
  server: string;
  /** The run's id. */
  run: string;
  /** An invitation's text; left out where anybody may come. */
  invitation?: string;
  /** How people come to the run; "invited" with an invitation, else "open". */
  admission?: "enrolled" | "invited" | "open";
  /** The enrolment key, 64 hex digits: with it a server that lies is withstood. */
  enrolmentKey?: string;
  /** Serials of the certificates that are not believed any more (revoked.txt). */
  revoked?: string[];
  /** What the person agreed to. */
  policy?: PolicyOptions;
  /** Range and unit of outcomes; from 0 to 1. */
  range?: { low: string | number; high: string | number; unit?: string };
  /** Seconds after which outcomes are taken. Without it an answer leaves at once. */
  window?: number;
  /** The place in [0, 1] that counts where no outcome is known. */
  ifUnknown?: number;
  /**
   * When the page is left before the end of the window: "answer" sends what is known by then,
   * "resume" sends nothing, and the next page of the site that joins goes on.
   */
  leaving?: "answer" | "resume";
}

/** Ask for a seat. Charges the ledger before it gives the arm; never throws for a refusal. */
export async function join(options: JoinOptions): Promise<Seat> {
  try {
    const setting = settingOf(options);
    const store = await BrowserStore.open();
    void navigator.storage?.persist?.();
    return await new Visitor(setting, store).arrive();
  } catch (error) {
    if (error instanceof Refusal) return unmeasured(null, error.code);
    throw error;
  }
}

/** Options, read and checked. */
interface Setting {
  options: JoinOptions;
  identity: Identity | undefined;
  party: Omit<Party, "name">;
  ifUnknown: number;
}

function settingOf(options: JoinOptions): Setting {
  const { enrolmentKey = "", revoked = [], range, window, ifUnknown = 0, run } = options;
  if (enrolmentKey && !/^[0-9a-f]{64}$/.test(enrolmentKey)) throw new InputError("enrolmentKey");
  if (window !== undefined && !(window > 0 && window <= LONGEST_WINDOW_S)) throw new InputError("window");
  if (!(ifUnknown >= 0 && ifUnknown <= 1)) throw new InputError("ifUnknown");
  const identity = options.invitation ? readInvitation(options.invitation) : undefined;
  const admission = options.admission ?? (identity ? "invited" : "open");
  if ((admission === "open") === Boolean(identity)) throw new InputError("admission, invitation");
  const party = {
    run,
    admission,
    policy: makePolicy(options.policy ?? {}, enrolmentKey !== ""),
    range: range ? makeRange(range.low, range.high, range.unit) : DEFAULT_RANGE,
    windowMs: Math.ceil((window ?? 0) * 1000),
    identity,
    trust: enrolmentKey ? new Trust(fromHex(enrolmentKey), new Set(revoked.map(BigInt))) : undefined,
  };
  return { options, identity, party, ifUnknown };
}

function unmeasured(arm: Arm | null, reason: string, spent: number | null = null): Seat {
  return { arm, measured: false, reason, spent, answer: () => Promise.resolve(reason) };
}

class Visitor {
  private readonly run: string;

  constructor(
    private readonly setting: Setting,
    private readonly store: Store,
  ) {
    this.run = setting.options.run;
  }

  /** One tab at a time asks for the seat; whoever comes later sees what came of it. */
  async arrive(): Promise<Seat> {
    // Browsers have no locks where a page does not come over HTTPS.
    if (!navigator.locks) throw new Refusal(UNAVAILABLE);
    const name = `wallflower/${this.run}`;
    return navigator.locks.request(name, () => this.resume());
  }

  private async resume(): Promise<Seat> {
    const progress = await this.progress();
    const arm = { number: progress.arm, name: progress.armName };
    switch (progress.stage) {
      case "arriving":
        return this.ask(progress);
      case "answered":
        setTimeout(() => void this.deliver(progress), this.settled(progress)());
        return unmeasured(arm, "already-answered");
      case "done":
        return unmeasured(arm, "already-answered");
      case "closed":
        return unmeasured(arm, progress.reason);
      default:
        return this.reopen(progress, arm);
    }
  }

  /** Return the progress to go on with; a new one is written down before the first call. */
  private progress(): Promise<Progress> {
    const { identity, party } = this.setting;
    return this.store.transact(this.run, ({ progress, spends }) => {
      const times = spends.filter((one) => one.run === this.run).length;
      const over = progress && ["done", "closed"].includes(progress.stage);
      const another = identity && progress && compareTexts(identity.name, progress.visitor) !== 0;
      const again = over && progress.stage === "done" && times < party.policy.largestParticipations;
      if (progress && !another && !again) return [progress, {}];
      const visitor = identity?.name ?? progress?.visitor ?? toHex(randomBytes(16));
      const fresh = newProgress(this.run, visitor);
      return [fresh, { progress: fresh }];
    });
  }

  /** Milliseconds until the end of the progress's window; nothing leaves before. */
  private leftOf({ openedAt }: Progress): number {
    const { windowMs } = this.setting.party;
    return Math.max(0, Math.min(windowMs, openedAt + windowMs - Date.now()));
  }

  /** The same for a seat that is gone on with, counted from now and never at once. */
  private settled(progress: Progress): () => number {
    const end = performance.now() + Math.max(SETTLE_MS, this.leftOf(progress));
    return () => Math.max(0, end - performance.now());
  }

  private caller({ visitor, arrival }: Progress): Caller {
    const { options, identity } = this.setting;
    return { server: options.server, run: this.run, visitor, arrival, identity };
  }

  private async ask(progress: Progress): Promise<Seat> {
    const caller = this.caller(progress);
    const deadline = performance.now() + PATIENCE_MS;
    const reply = await exchange(caller.server, arrivalPoll(caller), false, deadline);
    if (reply?.noSeat) {
      const { arm, reason } = readNoSeat(reply.noSeat, this.setting.party.policy);
      return unmeasured(arm, reason);
    }
    if (!reply?.seat) return unmeasured(null, "unreachable");
    const { request, arms } = reply.seat;
    return this.open({ ...progress, request, arms, openedAt: Date.now(), stage: "open", resumes: this.resumes });
  }

  /** Check the seat whole, charge the ledger, and only then show the arm. */
  private async open(progress: Progress): Promise<Seat> {
    const party = { ...this.setting.party, name: progress.visitor };
    try {
      const inspected = inspectRequest(progress.request, progress.arms, party);
      const contribution = new Contribution(inspected, party);
      progress.arm = inspected.spec.arm;
      progress.armName = inspected.spec.armName;
      await this.store.transact(this.run, (state) => {
        return [undefined, { price: priceFor(inspected, party.policy, state, Date.now()) }];
      });
      const spent = await this.store.transact(this.run, (state) => {
        const spend = chargeFor(inspected, party.policy, state, Date.now());
        const all = [...state.spends, spend];
        return [spentSoFar(all, party.policy)?.toNumber() ?? null, { spend, progress }];
      });
      const { windowMs } = party;
      const left = () => (windowMs ? this.leftOf(progress) : IMMEDIATE_MS);
      return await this.seated(progress, inspected, contribution, spent, left);
    } catch (error) {
      if (!(error instanceof Refusal) || error.code === UNAVAILABLE) throw error;
      return this.decline(progress, error.code);
    }
  }

  private async decline(progress: Progress, reason: string): Promise<Seat> {
    const closed = ended(progress, "closed", reason);
    await this.store.transact(this.run, () => [undefined, { progress: closed }]);
    const known = progress.armName !== "" || progress.arm > 0;
    return unmeasured(known ? { number: progress.arm, name: progress.armName } : null, reason);
  }

  /**
   * Go on with a seat that another page took: only where leaving both sends nothing. Else its
   * answer may have left already, and a second one would tell the difference of two outcomes.
   */
  private async reopen(progress: Progress, arm: Arm): Promise<Seat> {
    const { party } = this.setting;
    const { held } = await navigator.locks.query();
    if (held?.some((lock) => lock.name === this.answering)) return unmeasured(arm, "another-tab");
    if (!progress.resumes || !this.resumes) return this.decline(progress, "page-left");
    const left = party.windowMs ? this.settled(progress) : () => IMMEDIATE_MS;
    const spent = await this.store.transact(this.run, ({ spends }) => {
      return [spentSoFar(spends, party.policy)?.toNumber() ?? null, {}];
    });
    try {
      const named = { ...party, name: progress.visitor };
      const inspected = inspectRequest(progress.request, progress.arms, named);
      const contribution = new Contribution(inspected, named);
      return await this.seated(progress, inspected, contribution, spent, left);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return this.decline(progress, error.code);
    }
  }

  private get resumes(): boolean {
    return this.setting.options.leaving === "resume";
  }

  private get answering(): string {
    return `wallflower/${this.run}/answer`;
  }

  /** Hold the right to answer for as long as this page lives. */
  private async seated(
    progress: Progress,
    inspected: Inspected,
    contribution: Contribution,
    spent: number | null,
    left: () => number,
  ): Promise<Seat> {
    const { party, ifUnknown, options } = this.setting;
    const seat = new OpenSeat(progress, {
      spent,
      windowMs: party.windowMs,
      leftMs: left(),
      resumes: this.resumes,
      seal: (outcome) => contribution.answer(placeInRange(party.range, outcome, ifUnknown)),
      keep: (answered) => this.keep(answered),
      deliver: (answered) => this.deliver(answered),
      hurry: async (answered) => {
        const poll = answerPoll(this.caller(answered), answered.answer);
        if (!this.store.lost) await send(options.server, poll);
      },
      arm: { number: inspected.spec.arm, name: inspected.spec.armName },
    });
    await new Promise<void>((held) => {
      const answered = navigator.locks.request(this.answering, () => {
        held();
        return seat.finished;
      });
      // A browser may take the lock away from a page that it sets aside: see `keep`.
      answered.catch(() => held());
    });
    return seat;
  }

  /** Write the end of a seat, unless another page was first: one answer ever leaves. */
  private keep(answered: Progress): Promise<void> {
    return this.store.transact(this.run, ({ progress: known }) => {
      checkFirst(known, answered);
      return [undefined, { progress: answered }];
    });
  }

  /** Send the one answer until the server says what became of it. */
  private async deliver(progress: Progress): Promise<string> {
    const caller = this.caller(progress);
    let reason = "taken";
    try {
      await exchange(caller.server, answerPoll(caller, progress.answer), true);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      reason = error.code;
      // No reply at all: the next page sends the same bytes.
      if (reason === "malformed-message" || reason === "protocol-violation") return reason;
    }
    const over = ended(progress, reason === "taken" ? "done" : "closed", reason);
    // Where the ledger is gone there is nothing to note.
    await this.store.transact(this.run, () => [undefined, { progress: over }]).catch(() => undefined);
    return reason;
  }
}

/** The end of a run here: what was asked and answered is forgotten. */
function ended(progress: Progress, stage: "done" | "closed", reason: string): Progress {
  const none = new Uint8Array();
  return { ...progress, stage, reason, request: none, arms: [], answer: none };
}

function newProgress(run: string, visitor: string): Progress {
  const none = new Uint8Array();
  return {
    run, visitor, arrival: randomBytes(16), stage: "arriving", arm: 0, armName: "", reason: "",
    request: none, arms: [], answer: none, openedAt: 0, resumes: false,
  };
}

