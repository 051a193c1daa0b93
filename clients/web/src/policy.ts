/** What a person agreed to; the server is not asked. */
import { SMALLEST_PROVED_DELTA } from "./account.js";
import { cohortMechanism, fractionOf, type RewardRange, rangeOf, sameRange } from "./cohort.js";
import { InputError, Refusal, TermsRefusal } from "./errors.js";
import type { CohortSpec } from "./gen/messages.js";
import { type Mechanism, MECHANISMS } from "./mechanism.js";
import { exact, Fraction, ONE, ZERO } from "./rational.js";

type Number_ = string | number;

/** A person's terms, as the page states them; what is left out has the default. */
export interface PolicyOptions {
  /** ε of one experiment's cohort (1). */
  largestEpsilon?: Number_;
  /** ε of everything this browser ever takes part in, by its ledger (1). */
  largestTotalEpsilon?: Number_;
  /** δ of that total (1/1000000). */
  privacyDelta?: Number_;
  /** How often in one run (1). */
  largestParticipations?: number;
  /** Different prices within 30 days (5). */
  largestPrices?: number;
  /** People in a cohort (20). */
  smallestCohort?: number;
  /** Nodes in a cohort. */
  smallestNodes?: number;
  /** Trustees that made the key (5). */
  smallestTrustees?: number;
  /** Names of the trustees; needed where people are enrolled and the server may lie. */
  trustees?: string[];
  /** The part of a cohort that carries the noise (1/2). */
  smallestFloorFraction?: Number_;
  /** The part that may collude with the server (1/10). */
  smallestCorrupt?: Number_;
  /** Insist on withstanding a server that lies; where nothing is said, with an enrolment key. */
  maliciousServer?: boolean;
  mechanisms?: string[];
  backends?: string[];
  /** Names of the arms that may be shown; any. */
  arms?: string[];
}

export interface Policy {
  largestEpsilon: Fraction;
  largestTotalEpsilon: Fraction;
  privacyDelta: Fraction;
  largestParticipations: number;
  largestPrices: number;
  smallestCohort: bigint;
  smallestNodes: number | undefined;
  smallestTrustees: number;
  trustees: string[];
  smallestFloorFraction: Fraction;
  smallestCorrupt: Fraction;
  maliciousServer: boolean;
  mechanisms: string[];
  backends: string[];
  arms: string[] | undefined;
}

export function makePolicy(options: PolicyOptions, enrolled: boolean): Policy {
  const policy: Policy = {
    largestEpsilon: exact(options.largestEpsilon ?? 1),
    largestTotalEpsilon: exact(options.largestTotalEpsilon ?? 1),
    privacyDelta: exact(options.privacyDelta ?? "1/1000000"),
    largestParticipations: whole(options.largestParticipations ?? 1, 1),
    largestPrices: whole(options.largestPrices ?? 5, 1),
    smallestCohort: BigInt(whole(options.smallestCohort ?? 20, 2)),
    smallestNodes: options.smallestNodes === undefined ? undefined : whole(options.smallestNodes, 2),
    smallestTrustees: whole(options.smallestTrustees ?? 5, 2),
    trustees: [...new Set(options.trustees ?? [])],
    smallestFloorFraction: exact(options.smallestFloorFraction ?? "1/2"),
    smallestCorrupt: exact(options.smallestCorrupt ?? "1/10"),
    maliciousServer: options.maliciousServer ?? enrolled,
    mechanisms: options.mechanisms ?? MECHANISMS,
    backends: options.backends ?? ["sealed"],
    arms: options.arms,
  };
  const { privacyDelta, smallestFloorFraction, smallestCorrupt } = policy;
  const fractions = [smallestFloorFraction, smallestCorrupt];
  const good =
    policy.largestEpsilon.compare(ZERO) > 0 &&
    policy.largestTotalEpsilon.compare(ZERO) > 0 &&
    privacyDelta.compare(ZERO) > 0 &&
    privacyDelta.compare(ONE) < 0 &&
    fractions.every((one) => ZERO.atMost(one) && one.atMost(ONE));
  if (!good) throw new InputError("a policy with a number out of its range");
  return policy;
}

function whole(value: number, least: number): number {
  if (!Number.isSafeInteger(value) || value < least) throw new InputError(`a number below ${least}`);
  return value;
}

/** Calibrate what the description says, or refuse it by name. */
export function checkTerms(
  policy: Policy,
  range: RewardRange,
  windowMs: number,
  spec: CohortSpec,
): Mechanism {
  const stated = understood(() => rangeOf(spec));
  if (!sameRange(stated, range)) throw new TermsRefusal("range-differs");
  if (spec.windowMs < BigInt(windowMs)) throw new TermsRefusal("window-too-short");
  if (!policy.mechanisms.includes(spec.mechanism)) throw new TermsRefusal("mechanism-not-allowed");
  checkArms(policy, [spec.armName]);
  if (!policy.backends.includes(spec.backend)) throw new TermsRefusal("backend-not-allowed");
  const mechanism = understood(() => cohortMechanism(spec));
  if (!mechanism.epsilon.atMost(policy.largestEpsilon)) throw new TermsRefusal("epsilon-too-large");
  if (spec.cohortSize < policy.smallestCohort) throw new TermsRefusal("cohort-too-small");
  checkTrust(policy, spec);
  if (spec.provedInputs && policy.privacyDelta.compare(SMALLEST_PROVED_DELTA) < 0) {
    throw new TermsRefusal("delta-too-small");
  }
  return mechanism;
}

/** A person takes part in all of an experiment's arms or in none. */
export function checkArms(policy: Policy, names: string[]): void {
  if (policy.arms && !names.every((name) => policy.arms!.includes(name))) {
    throw new TermsRefusal("arm-not-allowed");
  }
}

function checkTrust(policy: Policy, spec: CohortSpec): void {
  const least = policy.smallestFloorFraction;
  const [size, floor] = [new Fraction(spec.cohortSize), new Fraction(spec.honestFloor)];
  if (!least.times(size).atMost(floor)) throw new TermsRefusal("floor-too-low");
  const { threat } = spec;
  const corrupt = threat?.corrupt ? fractionOf(threat.corrupt) : ZERO;
  const believed = policy.maliciousServer && !threat?.maliciousServer;
  if (believed || !policy.smallestCorrupt.atMost(corrupt)) throw new TermsRefusal("threat-too-weak");
  const room = new Fraction(spec.quorum - spec.honestFloor);
  if (!corrupt.times(size).atMost(room)) throw new TermsRefusal("quorum-too-low");
}

function understood<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof InputError) throw new TermsRefusal("bad-cohort", error.message);
    if (error instanceof RangeError) throw new Refusal("not-possible", error.message);
    throw error;
  }
}
