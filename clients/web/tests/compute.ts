/** What TypeScript makes of an input of a golden vector, by kind (tests/support/web/vectors.py). */
import { type Cost, totalEpsilon } from "../src/account.js";
import { fromHex, sha256, toHex } from "../src/bytes.js";
import { contextOf, DEFAULT_RANGE, makeRange, placeInRange } from "../src/cohort.js";
import { Contribution, inspectRequest, type Party } from "../src/contribution.js";
import { InputError, Refusal } from "../src/errors.js";
import { CohortSpec } from "../src/gen/messages.js";
import { readPoint } from "../src/group.js";
import { readInvitation, Trust } from "../src/identity.js";
import { chargeFor, priceFor, type StoredPrice, type StoredSpend } from "../src/ledger.js";
import { type Law, thresholds } from "../src/laws.js";
import { mechanismOf, truncationBound } from "../src/mechanism.js";
import { makePolicy } from "../src/policy.js";
import { arrivalPoll, readNoSeat, readReply } from "../src/poll.js";
import { Fraction } from "../src/rational.js";
import { encrypt, proveRange, proveSender, statementOf } from "../src/sealed.js";
import { encodeReward, Sampler, type Words } from "../src/table.js";
import { dealingSizes, Threat } from "../src/threat.js";
import { decode } from "../src/wire.js";

// A case is what a file of the other language says.
export type Values = any;

const REFUSED = { refused: true };

function fraction(text: string): Fraction {
  const [top, bottom = "1"] = text.split("/");
  return new Fraction(BigInt(top!), BigInt(bottom));
}

export function lawOf(stated: Values): Law {
  if (stated.kind === "difference") {
    return { kind: "difference", shape: fraction(stated.shape), rate: fraction(stated.rate) };
  }
  return { kind: stated.kind, variance: fraction(stated.variance) };
}

function listed(words: string[]): Words {
  const left = words.map(BigInt);
  return () => {
    const word = left.shift();
    if (word === undefined) throw new Error("the case lists too few words");
    return word;
  };
}

function double(hex: string): number {
  return new DataView(fromHex(hex).buffer).getFloat64(0);
}

function hexOf(value: number): string {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  return toHex(new Uint8Array(view.buffer));
}

const samplers = new Map<string, Sampler>();

function samplerOf(law: Values): Sampler {
  const name = JSON.stringify(law);
  const known = samplers.get(name) ?? new Sampler(lawOf(law));
  samplers.set(name, known);
  return known;
}

function costOf({ kind, epsilon, precision, delta }: Values): Cost {
  return { kind, epsilon: fraction(epsilon), precision: BigInt(precision), delta: fraction(delta) };
}

export function partyOf(given: Values): Party {
  const { enrolmentKey, invitation, range, revoked = [] } = given;
  const serials = new Set<bigint>(revoked.map(BigInt));
  return {
    name: given.visitor,
    run: given.run,
    admission: given.admission,
    policy: makePolicy(given.policy, Boolean(enrolmentKey)),
    range: range ? makeRange(range[0], range[1], range[2]) : DEFAULT_RANGE,
    windowMs: given.windowMs,
    identity: invitation ? readInvitation(invitation) : undefined,
    trust: enrolmentKey ? new Trust(fromHex(enrolmentKey), serials, () => given.now) : undefined,
  };
}

/** The code with which a seat is refused, or "accepted". */
export function codeOf(given: Values): string {
  const party = partyOf(given);
  const now = Date.now();
  const spends: StoredSpend[] = [];
  const prices: StoredPrice[] = [];
  for (const past of given.history) {
    const { run, cohort } = past;
    if (cohort) spends.push({ ...past, at: now });
    const price = { ...past, precision: "0", at: now };
    if (!prices.some((one) => one.run === run)) prices.push(price);
  }
  try {
    const inspected = inspectRequest(fromHex(given.request), given.arms, party);
    priceFor(inspected, party.policy, { spends, prices }, now);
    chargeFor(inspected, party.policy, { spends, prices }, now);
    return "accepted";
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
}

function parameters(given: Values): Values {
  try {
    const mechanism = mechanismOf({
      name: given.mechanism,
      epsilon: fraction(given.epsilon),
      scale: fraction(given.scale),
      size: BigInt(given.size),
      floor: BigInt(given.floor),
      wrap: fraction(given.wrap),
    });
    return {
      precision: `${mechanism.precision}`,
      fits: given.bounds.map((one: string) => BigInt(one) >= 0n && mechanism.fits(BigInt(one))),
      truncation: given.proved ? `${truncationBound(mechanism)}` : "0",
    };
  } catch (error) {
    if (error instanceof InputError) return REFUSED;
    throw error;
  }
}

function sealing(given: Values): Values {
  const left = given.scalars.map(BigInt);
  const draws = { scalars: () => left.shift(), fresh: fromHex(given.fresh) };
  const key = readPoint(fromHex(given.key));
  const [sealed, opening] = encrypt(key, BigInt(given.value), draws);
  const said = statementOf(fromHex(given.context), given.sender, 1n, sealed);
  const made: Values = { one: toHex(sealed.one), two: toHex(sealed.two) };
  made.proof = toHex(proveSender(opening, said, draws));
  if (given.range) {
    const [low, high] = given.range.map(BigInt);
    made.range = toHex(proveRange(key, sealed, opening, { low, high }, said, draws.scalars));
  }
  return made;
}

function invitation({ text, run, arrival }: Values): Values {
  try {
    const identity = readInvitation(text);
    const caller = { server: "", run, visitor: identity.name, arrival: fromHex(arrival), identity };
    return { poll: toHex(arrivalPoll(caller)) };
  } catch (error) {
    if (error instanceof Refusal) return { code: error.code };
    throw error;
  }
}

function sizes({ corrupt, dropout, lying, nodes }: Values): Values {
  try {
    const found = dealingSizes(new Threat(fraction(corrupt), fraction(dropout), lying), nodes);
    return { sizes: [found.members, found.threshold, found.accepted] };
  } catch (error) {
    if (error instanceof InputError) return REFUSED;
    throw error;
  }
}

function range({ low, high, unit, outcome }: Values): Values {
  try {
    return { place: hexOf(placeInRange(makeRange(low, high, unit), double(outcome), 0)) };
  } catch (error) {
    if (error instanceof InputError) return REFUSED;
    throw error;
  }
}

function account({ spends, delta }: Values): Values {
  const counted = new Map<string, [Cost, number]>();
  for (const one of spends) {
    const name = JSON.stringify(costOf(one), (_, value) => (typeof value === "bigint" ? `${value}` : value));
    counted.set(name, [costOf(one), (counted.get(name)?.[1] ?? 0) + 1]);
  }
  const total = totalEpsilon([...counted.values()], fraction(delta));
  return { epsilon: total ? `${total}` : null };
}

function answer(given: Values): Values {
  const party = partyOf(given);
  const inspected = inspectRequest(fromHex(given.request), given.arms, party);
  const left = given.scalars.map(BigInt);
  const place = placeInRange(party.range, given.outcome, 0);
  const randomness = {
    words: listed(given.words),
    scalars: () => left.shift(),
    fresh: fromHex(given.fresh),
  };
  try {
    return { answer: toHex(new Contribution(inspected, party).answer(place, randomness)) };
  } catch (error) {
    if (error instanceof Refusal) return { code: error.code };
    throw error;
  }
}

function reply({ body, answering, policy }: Values): Values {
  try {
    const found = readReply(fromHex(body), answering);
    if (!found) return { again: true };
    if (!found.noSeat) return {};
    const { arm, reason } = readNoSeat(found.noSeat, makePolicy(policy, false));
    return { arm: arm.name, reason };
  } catch (error) {
    if (error instanceof Refusal) return { code: error.code };
    throw error;
  }
}

export const COMPUTE: Record<string, (given: Values) => Values> = {
  context: ({ spec, roster, size }) => ({
    context: toHex(contextOf(decode(CohortSpec, fromHex(spec)), fromHex(roster), size)),
  }),
  table: ({ law }) => {
    const table = thresholds(lawOf(law));
    return { length: table.length, sha256: toHex(sha256(new Uint8Array(table.buffer))) };
  },
  draw: ({ law, words }) => ({ value: `${samplerOf(law).draw(listed(words))}` }),
  round: ({ reward, precision, words }) => ({
    value: `${encodeReward(double(reward), BigInt(precision), listed(words))}`,
  }),
  parameters,
  sealing,
  invitation,
  sizes,
  account,
  range,
  seat: (given) => ({ code: codeOf(given) }),
  answer,
  reply,
};

