/** The wire: one POST to arrive, one to answer (the Connect protocol's unary call). */
import { concat } from "./bytes.js";
import { MalformedMessage, Refusal } from "./errors.js";
import type { Identity } from "./identity.js";
import { arrivalTranscript } from "./identity.js";
import { isName } from "./cohort.js";
import { checkArms, type Policy } from "./policy.js";
import type { Arm } from "./seat.js";
import { type NoSeat, VisitorPoll, VisitorReply } from "./gen/messages.js";
import { create, decode, encode } from "./wire.js";

const PATH = "/wallflower.v1.VisitorService/Poll";
const VERSION = 1;
const LARGEST_REPLY = 2 ** 20;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
const REQUEST_MS = 20_000;
// What a server may say of a poll (POLL_REFUSALS in protocol/visitors.py).
const REFUSALS =
  "beyond-capacity malformed-message no-seat not-authenticated not-proved " +
  "replayed-message store-unavailable too-late wrong-context wrong-run";
const NO_SEAT = "already-answered cohort-closed no-free-seat paused run-over"; // NO_SEAT_REASONS

/** Whose calls these are. */
export interface Caller {
  server: string;
  run: string;
  visitor: string;
  arrival: Uint8Array;
  identity: Identity | undefined;
}

export function arrivalPoll({ run, visitor, arrival, identity }: Caller): Uint8Array {
  const poll = create(VisitorPoll, { version: VERSION, runId: run, visitor, arrival });
  if (identity) {
    poll.certificate = identity.certificate;
    poll.signature = identity.sign(arrivalTranscript(poll));
  }
  return encode(VisitorPoll, poll);
}

export function answerPoll({ run, visitor, arrival }: Caller, answer: Uint8Array): Uint8Array {
  return encode(VisitorPoll, create(VisitorPoll, { version: VERSION, runId: run, visitor, arrival, answer }));
}

/** Send a poll once; without a limit of time by a request that outlives the page. */
export function send(server: string, body: Uint8Array, longest?: number): Promise<Response> {
  return fetch(new URL(PATH, server), {
    method: "POST",
    headers: { "Content-Type": "application/proto", "Connect-Protocol-Version": "1" },
    body: body as Uint8Array<ArrayBuffer>,
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    referrerPolicy: "no-referrer",
    ...(longest === undefined ? { keepalive: true } : { signal: AbortSignal.timeout(longest) }),
  });
}

/**
 * Send a poll until it has a reply that is final, or until `deadline` (ms); else undefined.
 * Refuses what is no reply to it.
 */
export async function exchange(
  server: string,
  body: Uint8Array,
  answering: boolean,
  deadline = Infinity,
): Promise<VisitorReply | undefined> {
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    const left = Math.max(0, deadline - performance.now());
    const received = await once(server, body, Math.min(left, REQUEST_MS)).catch(ignoreFailure);
    const reply = received && readReply(received, answering);
    if (reply) return reply;
    const wait = pause * (0.5 + Math.random());
    if (performance.now() + wait > deadline) return undefined;
    await pauseFor(wait);
  }
}

/** A call that failed may succeed later; a reply that is too large is none. */
function ignoreFailure(error: unknown): undefined {
  if (error instanceof Refusal) throw error;
}

async function once(server: string, body: Uint8Array, ms: number): Promise<Uint8Array | undefined> {
  const response = await send(server, body, ms);
  if (!response.ok) return undefined;
  const reader = response.body!.getReader();
  const parts: Uint8Array[] = [];
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return concat(...parts);
    size += value.length;
    if (size > LARGEST_REPLY) {
      void reader.cancel();
      throw new MalformedMessage("a reply is too large");
    }
    parts.push(value);
  }
}

/** Read a reply; undefined where the same poll may succeed later. */
export function readReply(body: Uint8Array, answering: boolean): VisitorReply | undefined {
  if (body.length > LARGEST_REPLY) throw new MalformedMessage("a reply is too large");
  const reply = decode(VisitorReply, body);
  if (reply.refused) {
    if (reply.refused.again) return undefined;
    const { code } = reply.refused;
    throw new Refusal(REFUSALS.split(" ").includes(code) ? code : "protocol-violation");
  }
  if (answering ? !reply.taken : !(reply.seat || reply.noSeat)) {
    throw new MalformedMessage("a poll was answered with something else");
  }
  return reply;
}

/** What to show a person who has no seat, as far as they agreed to it. */
export function readNoSeat({ arm, armName, reason }: NoSeat, policy: Policy): { arm: Arm; reason: string } {
  if (!isName(armName)) throw new MalformedMessage("an arm's name");
  checkArms(policy, [armName]);
  const known = NO_SEAT.split(" ").includes(reason);
  return { arm: { number: arm, name: armName }, reason: known ? reason : "no-free-seat" };
}

/** Wait, or until the device is online again. */
function pauseFor(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    addEventListener("online", end);
  });
}
