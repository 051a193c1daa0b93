/** What this browser's person spent, and what they may still spend; where it lies is store.ts. */
import { type Cost, largestCost, plus, sameCost, type Spends, totalEpsilon } from "./account.js";
import { costOf, type Inspected } from "./contribution.js";
import { Refusal, TermsRefusal } from "./errors.js";
import type { Policy } from "./policy.js";
import { exact, Fraction } from "./rational.js";

const PRICE_WINDOW_MS = 30 * 86_400_000;

/** A cost as it is stored: fractions as text. */
export interface StoredCost {
  kind: Cost["kind"];
  epsilon: string;
  precision: string;
  delta: string;
}

export interface StoredSpend extends StoredCost {
  run: string;
  cohort: string;
  at: number;
}

export interface StoredPrice extends StoredCost {
  run: string;
  at: number;
}

export interface Accounts {
  spends: StoredSpend[];
  prices: StoredPrice[];
}

/**
 * Return a run's price where it has none yet. It is written before anything else is looked at:
 * a person who cannot pay many prices would tell what they have left.
 */
export function priceFor(
  inspected: Inspected,
  policy: Policy,
  { prices }: Accounts,
  now: number,
): StoredPrice | undefined {
  const { runId: run } = inspected.spec;
  const price = priceOf(inspected, policy);
  const known = prices.find((one) => one.run === run);
  if (known) {
    if (!sameAmount(read(known), price)) throw new TermsRefusal("price-changed");
    return undefined;
  }
  checkPrices(prices, price, policy.largestPrices, now);
  return { run, at: now, ...write(price) };
}

function priceOf(inspected: Inspected, { smallestCohort }: Policy): Cost {
  return largestCost(costOf(inspected), inspected.mechanism.epsilon, smallestCohort);
}

/** Return what must be written before the arm is shown; refuses what was not agreed to. */
export function chargeFor(
  inspected: Inspected,
  policy: Policy,
  accounts: Accounts,
  now: number,
): StoredSpend {
  const { runId: run, cohortId: cohort } = inspected.spec;
  const before = accounts.spends.filter((one) => one.run === run);
  if (before.some((one) => one.cohort === cohort)) throw new Refusal("cohort-repeated");
  if (inspected.capacity < 1n) throw new Refusal("beyond-capacity");
  if (before.length >= policy.largestParticipations) throw new Refusal("user-repeated");
  checkBudget(accounts.spends, priceOf(inspected, policy), policy);
  return { run, cohort, at: now, ...write(costOf(inspected)) };
}

/** What the person spent so far at the policy's δ; undefined: no bound. */
export function spentSoFar(spends: StoredCost[], policy: Policy): Fraction | undefined {
  return totalEpsilon(collect(spends), policy.privacyDelta);
}

function collect(spends: StoredCost[]): Spends {
  return spends.reduce<Spends>((all, one) => plus(all, read(one)), []);
}

function checkPrices(prices: StoredPrice[], price: Cost, most: number, now: number): void {
  const recent = prices.filter((one) => one.at > now - PRICE_WINDOW_MS).map(read);
  const different = recent.filter((one, i) => recent.findIndex((two) => sameAmount(one, two)) === i);
  if (different.length >= most && !different.some((one) => sameAmount(one, price))) {
    throw new TermsRefusal("too-many-prices");
  }
}

function checkBudget(spends: StoredSpend[], price: Cost, policy: Policy): void {
  const total = totalEpsilon(plus(collect(spends), price), policy.privacyDelta);
  if (!total?.atMost(policy.largestTotalEpsilon)) throw new Refusal("budget-exceeded");
}

/** Prices are told apart by kind, ε and own δ. */
function sameAmount(one: Cost, other: Cost): boolean {
  return sameCost({ ...one, precision: 0n }, { ...other, precision: 0n });
}

function write({ kind, epsilon, precision, delta }: Cost): StoredCost {
  return { kind, epsilon: `${epsilon}`, precision: `${precision}`, delta: `${delta}` };
}

function read({ kind, epsilon, precision, delta }: StoredCost): Cost {
  return { kind, epsilon: stored(epsilon), precision: BigInt(precision), delta: stored(delta) };
}

/** A stored fraction may be longer than what people type (`exact`). */
function stored(text: string): Fraction {
  const [top, bottom] = text.split("/");
  return bottom ? new Fraction(BigInt(top!), BigInt(bottom)) : exact(text);
}
