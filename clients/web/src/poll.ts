/** The wire: one POST to arrive, one to answer (the Connect protocol's unary call). */
import type { Identity } from "./identity.js";
import { arrivalTranscript } from "./identity.js";
import { VisitorPoll, VisitorReply } from "./gen/messages.js";
import { create, decode, encode } from "./wire.js";

const PATH = "/wallflower.v1.VisitorService/Poll";
const VERSION = 1;
const LARGEST_REPLY = 4 * 2 ** 20;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
const REQUEST_MS = 20_000;

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

/** Send a poll once. `keepalive` lets it outlive the page. */
export function send(server: string, body: Uint8Array, keepalive = false): Promise<Response> {
  return fetch(new URL(PATH, server), {
    method: "POST",
    headers: { "Content-Type": "application/proto", "Connect-Protocol-Version": "1" },
    body: body as Uint8Array<ArrayBuffer>,
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    referrerPolicy: "no-referrer",
    keepalive,
    ...(keepalive ? {} : { signal: AbortSignal.timeout(REQUEST_MS) }),
  });
}

/** Send a poll until it has a reply that is final, or until `deadline` (ms); else undefined. */
export async function exchange(
  server: string,
  body: Uint8Array,
  deadline = Infinity,
): Promise<VisitorReply | undefined> {
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    const reply = await once(server, body).catch(() => undefined);
    if (reply && !reply.refused?.again) return reply;
    const wait = pause * (0.5 + Math.random());
    if (performance.now() + wait > deadline) return undefined;
    await pauseFor(wait);
  }
}

async function once(server: string, body: Uint8Array): Promise<VisitorReply | undefined> {
  const response = await send(server, body);
  if (!response.ok || Number(response.headers.get("Content-Length")) > LARGEST_REPLY) return undefined;
  return decode(VisitorReply, new Uint8Array(await response.arrayBuffer()));
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
