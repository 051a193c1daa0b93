/** A seat's request, checked whole; and the one answer to it. Nothing here waits or stores. */
import { type Cost, PROVED_DELTA } from "./account.js";
import { equal, sha256, utf8 } from "./bytes.js";
import { contextOf, isDealing, type RewardRange, SEATS } from "./cohort.js";
import { InputError, MalformedMessage, Refusal, WrongContext } from "./errors.js";
import { checkSize, type Limits, sealingKey } from "./evidence.js";
import {
  CohortSpec,
  Envelope,
  NodeAnswer,
  NodeRequest,
  OpenRequest,
  type RosterNote,
  SealAnswer,
  SealRequest,
  TaskAnswer,
} from "./gen/messages.js";
import { type Point, randomScalar, type Scalars } from "./group.js";
import type { Identity, Trust } from "./identity.js";
import { type Mechanism, truncationBound } from "./mechanism.js";
import { checkArms, checkTerms, type Policy } from "./policy.js";
import { type Draws, encrypt, proveRange, proveSender, type Range, sealedContext, statementOf } from "./sealed.js";
import { encodeReward, Sampler, systemWords, type Words } from "./table.js";
import { Threat } from "./threat.js";
import { create, decode, encode } from "./wire.js";

const LARGEST_MESSAGE = 64 * 2 ** 20;
const SEAL = 12;
const OPEN = 13;
const FIRST_STAGE = 9;
const LARGEST_VALUE = 1n << 62n;

/** Who takes part, on which terms, believing whom. */
export interface Party {
  name: string;
  run: string;
  admission: string;
  policy: Policy;
  range: RewardRange;
  windowMs: number;
  identity: Identity | undefined;
  trust: Trust | undefined;
}

/** A request that passed every check and waits for an outcome. */
export interface Inspected {
  spec: CohortSpec;
  taskId: string;
  mechanism: Mechanism;
  key: Point;
  context: Uint8Array; // of the cohort
  bound: Uint8Array; // … and of the key it is sealed under
  range: Range | undefined; // what may be proved
  capacity: bigint; // users that its certificate allows
}

/** Where the randomness of a contribution comes from; tests state it. */
export interface Randomness extends Draws {
  words: Words;
}

export function freshRandomness(): Randomness {
  return { words: systemWords, scalars: randomScalar, fresh: crypto.getRandomValues(new Uint8Array(32)) };
}

/**
 * Return the stage that a seat asks for, or refuse what is no seat of this person: one stage of
 * one cohort, for this person alone, under the admission they came by.
 */
function readSeat(body: Uint8Array, arms: string[], party: Party): Stage {
  const { runId, tasks } = decode(NodeRequest, body);
  const [task] = tasks;
  if (tasks.length !== 1 || !task?.stage) throw new WrongContext("a seat asks for one stage");
  const { spec = create(CohortSpec), users, message } = task.stage;
  if (users.length !== 1 || users[0] !== party.name) throw new WrongContext("a seat of another");
  if (spec.admission !== party.admission) throw new Refusal("bad-cohort", "another admission");
  if (!arms.includes(spec.armName)) throw new WrongContext("an arm that is not in the experiment");
  return { runId, taskId: task.taskId, spec, message };
}

interface Stage {
  runId: string;
  taskId: string;
  spec: CohortSpec;
  message: Uint8Array;
}

/** Check a seat's request completely; refuses by name. */
export function inspectRequest(body: Uint8Array, arms: string[], party: Party): Inspected {
  const { runId, taskId, spec, message } = readSeat(body, arms, party);
  checkArms(party.policy, arms);
  if (runId !== party.run || spec.runId !== runId) throw new Refusal("wrong-run");
  if (isDealing(spec)) throw new Refusal("needs-a-stream");
  const mechanism = checkTerms(party.policy, party.range, party.windowMs, spec);
  const sealing = acceptable(() => inspectMessage(message, spec, party, mechanism));
  return { spec, taskId, mechanism, capacity: party.identity?.capacity ?? 1n, ...sealing };
}

type Sealing = Pick<Inspected, "key" | "context" | "bound" | "range">;

function inspectMessage(
  message: Uint8Array,
  spec: CohortSpec,
  party: Party,
  mechanism: Mechanism,
): Sealing {
  const threat = Threat.read(spec.threat);
  const envelope = unwrap(message);
  const { stage } = envelope;
  if (stage < FIRST_STAGE || stage > OPEN) throw new WrongContext("no such stage");
  if (envelope.sender || envelope.receiver !== party.name) throw new WrongContext("other parties");
  if (stage < SEAL) throw new WrongContext("a dealing and a cohort are not the same session");
  if (stage === OPEN) {
    const { roster } = decode(OpenRequest, envelope.payload);
    checkSeats(roster ?? NO_ROSTER, envelope, spec, threat, party);
    throw new Refusal("not-a-member");
  }
  const request = decode(SealRequest, envelope.payload);
  const note = request.roster ?? NO_ROSTER;
  checkSeats(note, envelope, spec, threat, party);
  const limits = limitsOf(party.policy);
  const dealing = request.dealing ?? { name: EMPTY, key: EMPTY, evidence: EMPTY };
  const key = sealingKey(dealing, { spec, trust: party.trust, threat, limits });
  const bound = sealedContext(envelope.context, dealing.name);
  return { key, context: envelope.context, bound, range: provedRange(spec, mechanism) };
}

const EMPTY = new Uint8Array();
const NO_ROSTER: RosterNote = { digest: EMPTY, size: 0, roster: EMPTY };

function limitsOf({ smallestNodes, smallestTrustees, trustees }: Policy): Limits {
  return { smallestNodes, smallestTrustees, trustees };
}

/** Check a cohort of people who arrive: it has seats and lists nobody. */
function checkSeats(
  note: RosterNote,
  envelope: Envelope,
  spec: CohortSpec,
  threat: Threat,
  { policy, trust }: Party,
): void {
  if (!equal(envelope.context, contextOf(spec, note.digest, note.size))) {
    throw new WrongContext("another cohort or roster");
  }
  if (threat.lying && !trust) throw new Refusal("enrolment-required");
  if (spec.quorum < 2n) throw new Refusal("cohort-too-small");
  checkSize(limitsOf(policy), note.size);
  const seats = equal(note.digest, SEATS) && BigInt(note.size) === spec.cohortSize;
  if (!seats || note.roster.length || note.$unknown) throw new WrongContext("a roster, not seats");
  // Refuse a quorum that colluders could reach without the honest floor: one person, one seat.
  if (spec.quorum < spec.honestFloor + threat.corruptOf(spec.cohortSize)) {
    throw new Refusal("quorum-too-low");
  }
}

function provedRange(spec: CohortSpec, mechanism: Mechanism): Range | undefined {
  if (!spec.provedInputs) return undefined;
  const bound = truncationBound(mechanism);
  return { low: -bound, high: mechanism.precision + bound };
}

/** What a contribution costs its user. */
export function costOf({ mechanism, spec }: Inspected): Cost {
  return { ...mechanism.cost, delta: spec.provedInputs ? PROVED_DELTA : mechanism.cost.delta };
}

/** A seat's contribution; its table is built before the arm is shown. */
export class Contribution {
  private readonly sampler: Sampler;

  constructor(
    private readonly inspected: Inspected,
    private readonly party: Party,
  ) {
    this.sampler = acceptable(() => samplerOf(inspected.mechanism));
  }

  /** Return the answer to the seat's request: the outcome, rounded, noised and sealed. */
  answer(place: number, randomness: Randomness = freshRandomness()): Uint8Array {
    const { inspected, party, sampler } = this;
    const rounded = encodeReward(place, inspected.mechanism.precision, randomness.words);
    const value = rounded + sampler.draw(randomness.words);
    const payload = seal(inspected, party, value, randomness);
    const { context, taskId } = inspected;
    const message = wrap(SEAL, context, party.name, payload);
    const answer = create(TaskAnswer, { taskId, message });
    return encode(NodeAnswer, create(NodeAnswer, { answers: [answer] }));
  }
}

const samplers = new Map<string, Sampler>();

/** The law's table, made once for a page's experiments. */
export function samplerOf({ noise }: Mechanism): Sampler {
  const name = Object.values(noise).join();
  const sampler = samplers.get(name) ?? new Sampler(noise);
  samplers.set(name, sampler);
  return sampler;
}

/** Seal an integer; refuses one that is out of the range that can be proved. */
export function seal(
  { range, key, bound }: Inspected,
  party: Party,
  value: bigint,
  randomness: Draws & { scalars: Scalars },
): Uint8Array {
  if ((range && (value < range.low || value > range.high)) || abs(value) >= LARGEST_VALUE) {
    throw new Refusal("noise-out-of-range");
  }
  const [sealed, opening] = encrypt(key, value, randomness);
  const said = statementOf(bound, party.name, 1n, sealed);
  const proof = proveSender(opening, said, randomness);
  const answer = create(SealAnswer, { ...sealed, users: 1n, proof });
  if (range) answer.range = proveRange(key, sealed, opening, range, said, randomness.scalars);
  if (party.identity) {
    answer.certificate = party.identity.certificate;
    answer.signature = party.identity.sign(said);
  }
  return encode(SealAnswer, answer);
}

function abs(value: bigint): bigint {
  return value < 0n ? -value : value;
}

function checksum(stage: number, context: Uint8Array, sender: string, receiver: string, payload: Uint8Array): Uint8Array {
  const lengths = [stage, context.length, [...sender].length, [...receiver].length];
  const header = utf8(`${lengths.join(",")},${sender}${receiver}`);
  return sha256(header, context, payload).slice(0, 8);
}

export function wrap(stage: number, context: Uint8Array, sender: string, payload: Uint8Array): Uint8Array {
  const sum = checksum(stage, context, sender, "", payload);
  return encode(Envelope, create(Envelope, { stage, context, sender, payload, checksum: sum }));
}

function unwrap(body: Uint8Array): Envelope {
  if (body.length > LARGEST_MESSAGE) throw new MalformedMessage("a message too long");
  const envelope = decode(Envelope, body);
  const { stage, context, sender, receiver, payload } = envelope;
  if (!equal(envelope.checksum, checksum(stage, context, sender, receiver, payload))) {
    throw new MalformedMessage("a message was altered or cut short on its way");
  }
  return envelope;
}

/** What a number outside its range means inside a secure sum. */
function acceptable<T>(inspect: () => T): T {
  try {
    return inspect();
  } catch (error) {
    if (error instanceof InputError) throw new Refusal("cohort-not-acceptable", error.message);
    if (error instanceof RangeError) throw new Refusal("not-possible", error.message);
    throw error;
  }
}
