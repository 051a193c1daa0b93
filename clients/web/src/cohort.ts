/** A cohort's public description: what it means, and what everything of it is bound to. */
import { digest, lengthOf, sha256, utf8 } from "./bytes.js";
import { InputError } from "./errors.js";
import { CohortSpec, type Rational } from "./gen/messages.js";
import { type Mechanism, MECHANISMS, mechanismOf } from "./mechanism.js";
import { exact, Fraction, ONE, ZERO } from "./rational.js";
import { encode } from "./wire.js";

export const LONGEST_NAME = 200;
export const LONGEST_WINDOW_S = 7 * 86_400;
const LARGEST_MODULUS = 1n << 62n;
const MOST_BYTES = 8192;
const LONGEST_NUMBER = 30;
const LONGEST_UNIT = 20;

export function fractionOf(message: Rational | undefined): Fraction {
  if (!message?.denominator) throw new InputError("a fraction without a denominator");
  return new Fraction(message.numerator, message.denominator);
}

/** Calibrate what a description says; raises InputError where it must not be believed. */
export function cohortMechanism(spec: CohortSpec): Mechanism {
  checkNames(spec);
  for (const part of [spec.threat?.corrupt, spec.threat?.dropout]) {
    if (part && ONE.atMost(fractionOf(part))) throw new InputError("a threat");
  }
  if (!MECHANISMS.includes(spec.mechanism) || spec.backend !== "sealed") {
    throw new InputError("a mechanism and a secure sum that do not go together");
  }
  checkAdmission(spec);
  const [size, floor] = [spec.cohortSize, spec.honestFloor];
  const mechanism = mechanismOf({
    name: spec.mechanism,
    epsilon: fractionOf(spec.epsilon),
    scale: fractionOf(spec.scale),
    size,
    floor,
    wrap: fractionOf(spec.wrapProbability),
  });
  if (spec.quorum < floor || spec.quorum > size) throw new InputError("a quorum");
  const room = spec.modulus - size * mechanism.precision - 1n;
  if (spec.modulus > LARGEST_MODULUS || room < 0n || !mechanism.fits(room / 2n)) {
    throw new InputError("a modulus below ng + 2τ + 1, or above 2^62");
  }
  return mechanism;
}

function checkNames(spec: CohortSpec): void {
  const names = [spec.runId, spec.cohortId, spec.mechanism, spec.backend];
  const good =
    names.every((name) => name && lengthOf(name) <= LONGEST_NAME) &&
    isName(spec.armName) &&
    encode(CohortSpec, spec).length <= MOST_BYTES &&
    spec.batch >= 1 &&
    spec.windowMs <= BigInt(1000 * LONGEST_WINDOW_S);
  if (!good) throw new InputError("a description without its names, or too long");
}

/** Whether a text may be an arm's name. */
export function isName(text: string): boolean {
  return lengthOf(text) <= LONGEST_NAME && isPrintable(text);
}

function isPrintable(text: string): boolean {
  return !/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(text);
}

const MOST_SEATS = (1n << 32n) - 1n;

function checkAdmission({ admission, threat, cohortSize }: CohortSpec): void {
  if (!["", "enrolled", "invited", "open"].includes(admission)) throw new InputError("admission");
  if (admission === "open" && threat?.maliciousServer) throw new InputError("admission");
  if (admission && cohortSize > MOST_SEATS) throw new InputError("more seats than can be stated");
}

/** The range of outcomes: low is 0, high is 1, beyond is clipped. */
export interface RewardRange {
  low: Fraction;
  high: Fraction;
  unit: string;
}

export function makeRange(low: string | number, high: string | number, unit = ""): RewardRange {
  const range = { low: exact(low), high: exact(high), unit };
  const ordered = range.low.toNumber() < range.high.toNumber();
  if (!ordered || lengthOf(unit) > LONGEST_UNIT || !isPrintable(unit) || unit !== unit.trim()) {
    throw new InputError("a range of outcomes");
  }
  return range;
}

export const DEFAULT_RANGE: RewardRange = { low: ZERO, high: ONE, unit: "" };

export function rangeOf(spec: CohortSpec): RewardRange {
  const stated = spec.rewardRange;
  if (!stated) return DEFAULT_RANGE;
  for (const end of [stated.low, stated.high]) {
    if (lengthOf(end) > LONGEST_NUMBER) throw new InputError("a number too long");
  }
  return makeRange(stated.low, stated.high, stated.unit);
}

export function sameRange(one: RewardRange, other: RewardRange): boolean {
  const { low, high, unit } = one;
  return low.compare(other.low) === 0 && high.compare(other.high) === 0 && unit === other.unit;
}

/** The place of an outcome in [0, 1], clipped; what is no number counts as `ifUnknown`. */
export function placeInRange(range: RewardRange, outcome: unknown, ifUnknown: number): number {
  if (typeof outcome !== "number" || !Number.isFinite(outcome)) return ifUnknown;
  const [low, high] = [range.low.toNumber(), range.high.toNumber()];
  return (Math.min(Math.max(outcome, low), high) - low) / (high - low);
}

/** Digest of every field of a description, as a JSON list of names and integers. */
export function specDigest(spec: CohortSpec): Uint8Array {
  const { threat, rewardRange } = spec;
  const fields: (string | bigint | number)[] = [
    spec.runId, spec.cohortId, spec.armName, spec.mechanism, spec.backend,
    spec.batch, spec.arm, spec.cohortSize, spec.honestFloor, spec.quorum, spec.modulus,
    Number(threat?.maliciousServer ?? false), Number(spec.provedInputs),
    rewardRange?.low ?? "", rewardRange?.high ?? "", rewardRange?.unit ?? "",
    spec.windowMs, spec.admission,
  ];
  for (const part of [spec.epsilon, spec.scale, spec.wrapProbability, threat?.corrupt, threat?.dropout]) {
    fields.push(part?.numerator ?? 0n, part?.denominator ?? 0n);
  }
  const written = fields.map((one) => (typeof one === "string" ? ascii(one) : String(one)));
  return sha256(utf8(`wallflower/v1/cohort[${written.join(",")}]`));
}

/** A JSON text of ASCII letters, as Python writes it. */
function ascii(text: string): string {
  return JSON.stringify(text).replace(
    /[\x7f-\uffff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

export function contextOf(spec: CohortSpec, roster: Uint8Array, size: number): Uint8Array {
  return digest("wallflower/v1/context", specDigest(spec), roster, size);
}

/** What stands in place of a roster where people take seats. */
export const SEATS = sha256(utf8("wallflower/v1/seats"));

export function isDealing(spec: CohortSpec): boolean {
  return !spec.mechanism;
}
