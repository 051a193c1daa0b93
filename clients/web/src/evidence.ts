/** The key that a cohort is sealed under; where the server may lie, from the dealers' word. */
import { ascend, compareTexts, digest, equal, lengthOf, sha256, utf8, concat } from "./bytes.js";
import { contextOf, isDealing, LONGEST_NAME } from "./cohort.js";
import { MalformedMessage, NotAuthenticated, Refusal, WrongContext } from "./errors.js";
import {
  type CohortSpec,
  DealingEvidence,
  type DealingNote,
  DealtCommittee,
  type DealerStatement,
  Roster,
  type RosterNote,
} from "./gen/messages.js";
import { drawOrder, type Point, POINT_BYTES, PROOF_BYTES, readPoint, showsKnowledge, total } from "./group.js";
import { type Trust, verifySignature } from "./identity.js";
import { type DealingSizes, dealingSizes, Threat } from "./threat.js";
import { decode } from "./wire.js";

/** What a person insists on of nodes and trustees. */
export interface Limits {
  smallestNodes: number | undefined;
  smallestTrustees: number;
  trustees: string[];
}

export function checkSize(limits: Limits, parties: number): void {
  if (parties < Math.max(2, limits.smallestNodes ?? 0)) throw new Refusal("cohort-too-small");
}

function checkName(party: string): void {
  const length = lengthOf(party);
  if (!length || length > LONGEST_NAME) throw new MalformedMessage("a party's name");
}

/** Read the parties of a roster. */
function listedParties(note: RosterNote): string[] {
  if (!note.roster.length) throw new MalformedMessage("the roster is missing");
  if (!equal(sha256(utf8("wallflower/v1/roster"), note.roster), note.digest)) {
    throw new WrongContext("the roster is not the one that was announced");
  }
  const { parties, users } = decode(Roster, note.roster);
  if (parties.length !== users.length) throw new MalformedMessage("the roster is incomplete");
  parties.forEach(checkName);
  if (!ascend(parties)) throw new MalformedMessage("the roster is unsorted or repeats itself");
  if (parties.length !== note.size) throw new MalformedMessage("the roster has another size");
  return parties;
}

/** Everything of a session that the evidence is held against. */
export interface Setting {
  spec: CohortSpec;
  trust: Trust | undefined;
  threat: Threat;
  limits: Limits;
}

export function sealingKey(note: DealingNote, setting: Setting): Point {
  if (note.name.length !== 32) throw new MalformedMessage("a dealing without a name");
  const key = readPoint(note.key);
  const { spec, threat, trust } = setting;
  if (!threat.lying || !trust) return key;
  const dealt = proven(decode(DealingEvidence, note.evidence), spec, trust);
  if (!equal(dealt.name, note.name)) throw new WrongContext("evidence about another dealing");
  if (!equal(dealt.key, note.key)) throw new NotAuthenticated("a key that the dealers did not make");
  if (!dealt.threat.equals(threat)) throw new WrongContext("a dealing for another threat");
  checkTrustees(setting, dealt.nodes);
  return key;
}

/** Refuse a key that a lying server may have had colluders make. */
function checkTrustees({ spec, threat, limits }: Setting, dealt: string[]): void {
  if (dealt.length < limits.smallestTrustees) throw new Refusal("dealing-too-small");
  const named = limits.trustees;
  const known = named.length ? dealt.every((one) => named.includes(one)) : spec.admission !== "enrolled";
  if (!known) throw new Refusal("trustees-not-known");
  const [here, anywhere] = [dealt, named].map((parties) => threat.corruptOf(BigInt(parties.length)));
  if (here! < anywhere!) throw new Refusal("dealing-too-small");
}

interface Dealt {
  name: Uint8Array;
  key: Uint8Array;
  nodes: string[];
  threat: Threat;
}

/** Derive a dealing's name and key from its evidence. */
function proven(evidence: DealingEvidence, spec: CohortSpec, trust: Trust): Dealt {
  const { spec: dealing, roster: note, committee, accepted } = evidence;
  if (!dealing || !note || !isDealing(dealing) || dealing.runId !== spec.runId) {
    throw new WrongContext("the evidence is not of a dealing of this run");
  }
  const threat = Threat.read(dealing.threat);
  const parties = listedParties(note);
  const context = contextOf(dealing, note.digest, note.size);
  const [sizes, places] = drawSeats(context, threat, parties);
  checkCommittee(committee, places);
  const head = digest(
    "wallflower/v1/dealing-terms",
    context,
    digest("wallflower/v1/dealt-committee", committee),
    sizes.threshold,
  );
  const digests = new Map<string, Uint8Array>();
  const constants: Point[] = [];
  for (const said of accepted) {
    if (digests.has(said.dealer) || !places.has(said.dealer)) {
      throw new WrongContext("a dealer was not drawn, or is listed twice");
    }
    constants.push(checkDealer(said, head, trust));
    digests.set(said.dealer, sha256(signedPart(said, head)));
  }
  if (digests.size < sizes.accepted) throw new Refusal("too-few-dealers");
  const order = [...digests.keys()].sort(compareTexts);
  const name = sha256(utf8("wallflower/v1/dealt"), head, ...order.map((dealer) => digests.get(dealer)!));
  return { name, key: total(constants).toBytes(), nodes: parties, threat };
}

/** Who may sit at which place, from 1. */
function drawSeats(
  context: Uint8Array,
  threat: Threat,
  parties: string[],
): [DealingSizes, Map<string, number>] {
  const sizes = dealingSizes(threat, parties.length);
  const drawn = drawOrder(context, parties).slice(0, sizes.members);
  return [sizes, new Map(drawn.map((party, i) => [party, i + 1]))];
}

function checkCommittee(body: Uint8Array, seats: Map<string, number>): void {
  const { members, places, keys } = decode(DealtCommittee, body);
  if (members.length !== places.length || places.length !== keys.length) {
    throw new MalformedMessage("the committee is incomplete");
  }
  const ascending = places.every((place, i) => place > (i ? places[i - 1]! : 0));
  if (!places.length || !ascending || new Set(members).size !== members.length) {
    throw new MalformedMessage("the committee repeats itself");
  }
  if (members.some((member, i) => seats.get(member) !== places[i])) {
    throw new MalformedMessage("the committee has members that were not drawn");
  }
}

/** Return a dealer's constant: it signed for it, and knows its logarithm. */
function checkDealer(said: DealerStatement, head: Uint8Array, trust: Trust): Point {
  const { constant, rest, proof, certificate, signature, dealer } = said;
  const whole = constant.length === POINT_BYTES && rest.length === 32;
  if (!whole || proof.length !== PROOF_BYTES) throw new MalformedMessage("a dealer's statement");
  if (!certificate.length || !signature.length) throw new NotAuthenticated("no certificate");
  const { publicKey } = trust.verify(dealer, certificate);
  verifySignature(publicKey, signature, signedPart(said, head));
  const point = readPoint(constant);
  if (!showsKnowledge(constant, proof, digest("wallflower/v1/dealer", head, dealer, rest))) {
    throw new MalformedMessage("a dealer does not know its own secret");
  }
  return point;
}

function signedPart({ constant, proof, rest, dealer }: DealerStatement, head: Uint8Array): Uint8Array {
  return concat(utf8("wallflower/v1/dealer-statement"), head, constant, proof, rest, utf8(dealer));
}

