"""What a page states: the verdict, and what a privacy researcher needs beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wallflower.planning.collusion import collusion_effect
from wallflower.policy_text import describe_gap, describe_purpose
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.numbers import counted, round_up
from wallflower.protocol.privacy.mechanism import mechanism_class
from wallflower.protocol.privacy.sentences import MUST_BE_HONEST, percent, power, small
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.shuffle.plan import MIXED
from wallflower.protocol.secure_sum.threat import Threat, committee_size, graph_size
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.results.cohorts import UNDER_WAY
from wallflower.results.endings import (
    RetiredArm,
    index_outcome,
    join_words,
    margin_meaning,
    winner_meaning,
)
from wallflower.results.history import ArmRow, History
from wallflower.results.missing import MissingPeople
from wallflower.results.result import ENDINGS, RunResult
from wallflower.strategy.bandit.policy import EliminationReason
from wallflower.strategy.run.common_nodes import LEFT_OUT
from wallflower.strategy.run.verify import Check
from wallflower.strategy.store.journal import Journal

REASONS = {
    "no-answer": "did not answer in time",
    "cohort-void": "answered, but the cohort gave no sum",
    "budget-exceeded": "had no budget left, and saw no arm",
    "node-failed": "the node failed",
    UNDER_WAY: "the round is not finished",
    "unstated": "the node did not say why",
    LEFT_OUT: "the node vanished in another arm’s cohort of the round",
    "server-stopped": "the server was stopped in between",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out, in a headline, a label and sentences."""

    headline: str
    label: str
    tone: str  # good, open or bad
    sentences: tuple[str, ...]


def verdict(
    history: History, checks: Sequence[Check], *, running: bool = False
) -> Verdict:
    """Say which arm is best, or what is known instead; never a winner so far.

    `running`: a server works on the run, and what is not known yet is no failure.
    """
    if not all(check.holds for check in checks):
        return Verdict(
            "This record does not hold.",
            "not verified",
            "bad",
            (
                "What it says does not follow from what was written down, so nothing "
                "is concluded from it and nothing is promised. The checks that fail "
                "are listed at the end.",
            ),
        )
    result = history.result
    names = result.config.experiment.arms
    chance = f"{round_up(100 * result.risk, 2)}\N{NO-BREAK SPACE}%"
    risk = f"The chance that a better one was dropped is at most {chance}."
    if result.retired:
        risk = (
            f"For each, the chance that it fell to one that is no better is at most "
            f"{chance}."
        )
    by_hand = tuple(_by_hand(one) for one in result.retired)
    missing = result.missing
    holds = tuple(filter(None, [missing.describe(result.winner, "“”")]))
    if not history.arms:
        return _without_a_round(result, by_hand, running=running)
    fallen = [row for row in history.arms if row.fell and not row.retired]
    if missing.by_margin and result.last is not None:
        headline, meaning = margin_meaning(
            result.config, result.last, chance, "“”", retired=bool(result.retired)
        )
        headline = missing.qualify(headline)
        return Verdict(headline, *_label_verdict(missing), (meaning, *holds, *by_hand))
    if result.winner is not None and result.retired and result.last is not None:
        headline, meaning = winner_meaning(
            f"“{result.winner}”", result.last.views, chance
        )
        headline = missing.qualify(headline)
        return Verdict(headline, *_label_verdict(missing), (*holds, *by_hand, meaning))
    if result.winner is not None:
        measured = result.config.reward_range
        sentences = [_fall(row, names, measured) for row in fallen[-1:]]
        return Verdict(
            missing.qualify(f"“{result.winner}” is the best of {len(names)} arms."),
            *_label_verdict(missing),
            (*holds, *sentences, risk, "Decided arms never come back."),
        )
    last = history.arms[-len(names) :]
    left = [f"“{row.arm}”" for row in last if row.active]
    stand = f"{len(left)} of {len(names)} arms are left."
    learnt = (
        f"Out {'is' if len(fallen) == 1 else 'are'} "
        f"{join_words([f'“{row.arm}”' for row in fallen])}: {risk[0].lower()}{risk[1:]}"
        if fallen
        else f"No arm {'is ruled out so far' if running else 'could be ruled out'}."
        if result.decides
        else describe_purpose(result.config.policy.name)
    )
    if result.finished is None:
        return Verdict(
            missing.qualify(
                f"Under way: {len(left)} of {len(names)} arms are in the race."
                if running
                else f"Not finished: {stand}"
            ),
            _label(result, running=running),
            "open",
            (learnt, *holds, *by_hand),
        )
    if not result.decides and result.last is not None:
        headline, meaning = index_outcome(result.config, result.last.views, "“”")
        return Verdict(headline, "finished", "good", (meaning, *by_hand))
    why = ENDINGS.get(result.finished, result.finished)
    needed, stranded = result.still_needed(), result.stranded()
    return Verdict(
        missing.qualify(f"Undecided: {stand}"),
        "undecided",
        "open",
        (
            f"{join_words(left)} cannot be told apart by what the people asked have "
            f"shown; the run ended because {why}.",
            *(() if stranded is None else (stranded.describe_end(),)),
            learnt,
            *holds,
            *by_hand,
            *(() if needed is None else (needed.sentence,)),
        ),
    )


def _label_verdict(missing: MissingPeople) -> tuple[str, str]:
    """Return label and tone of a verdict; a qualified one is no plain success."""
    return ("decided", "open" if missing.qualification else "good")


def _label(result: RunResult, *, running: bool) -> str:
    if result.waiting:
        return "waits for nodes"
    return "under way" if running else "not finished"


def _without_a_round(
    result: RunResult, by_hand: tuple[str, ...], *, running: bool
) -> Verdict:
    """Say that nothing is known yet and, where sums failed, why."""
    headline = "No round is finished yet."
    if not result.void:
        return Verdict(headline, _label(result, running=running), "open", by_hand)
    why = [f"{REASONS.get(word, word)} ({n:,})" for word, n in result.losses.items()]
    return Verdict(
        headline,
        "no sum so far",
        "bad",
        (
            f"{result.void} of {counted(result.cohorts, 'cohort')} gave no sum. Of "
            f"{result.invited:,} people asked {result.invited - result.answered:,} are "
            f"in none: {join_words(why)}. Who was asked is not asked again.",
            *by_hand,
        ),
    )


def describe_elimination(
    reason: EliminationReason, names: Sequence[str], measured: RewardRange
) -> str:
    """Return why an arm is out, with the arms' names and in the unit.

    Examples
    --------
    >>> reason = EliminationReason(1, 0.1359, radius=0.121)
    >>> describe_elimination(reason, ["a", "b"], RewardRange())
    '0.1359 behind “b”, where 0.121 decides'
    """
    trails = f"{describe_gap(reason.gap, measured)} behind “{names[reason.rival]}”"
    if reason.radius is not None:
        return f"{trails}, where {describe_gap(reason.radius, measured)} decides"
    if reason.chance is None:
        return trails
    return (
        f"{trails}; the chance of such sums, were it as good as any, is at most "
        f"{small(reason.chance)}"
    )


def describe_end(row: ArmRow, names: Sequence[str], measured: RewardRange) -> str:
    """Return why an arm is out; the words of a person stay as they are."""
    if row.reason is None:
        return row.note
    return describe_elimination(row.reason, names, measured)


def _fall(row: ArmRow, names: Sequence[str], measured: RewardRange) -> str:
    why = describe_end(row, names, measured)
    return f"The last rival, “{row.arm}”, fell in round {row.round}: {why}."


def _by_hand(one: RetiredArm) -> str:
    return f"“{one.arm}” was retired by hand before round {one.before_round}."


_KINDS = {
    "pure": "pure ε-differential privacy",
    "renyi": "Rényi differential privacy of Skellam noise",
    "concentrated": "½ε²-concentrated differential privacy",
    "none": "none",
}

_MIXED = " It is split into random parts that a shuffler mixes with everybody's."
_SIZES = {
    "secagg-plus": graph_size,
    "sealed": committee_size,
}


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Cohorts of one size: what each sum rests on."""

    people: int
    honest_floor: int
    quorum: int
    nodes: int
    colluding: int
    helpers: int | None  # who hold shares, where anybody does
    threshold: int | None
    bits: int


@dataclass(frozen=True, slots=True)
class Annex:
    """Named facts, sizes of cohorts, who sees what, how many nodes share a key."""

    facts: tuple[tuple[str, str], ...]
    sizes: tuple[SizeRow, ...]
    sees: tuple[tuple[str, str], ...]
    dealt: int  # nodes among which the key of sealed sums was dealt; 0: none was


def annex_of(journal: Journal, result: RunResult) -> Annex:
    """Gather it from the record."""
    asked, cohorts = journal.count_invited(), journal.cohorts()
    specs = [CohortSpec.FromString(cohort.spec) for cohort in cohorts]
    # The shares of sealed sums are those of the run's latest key.
    dealt = [one.nodes for one in journal.dealings() if not one.reason]
    sizes = sorted(
        {
            _read_sizes(spec, len(asked.get(cohort.cohort_id, ())), dealt)
            for cohort, spec in zip(cohorts, specs, strict=True)
        },
        key=lambda row: (row.people, row.nodes),
    )
    return Annex(
        (*_facts(result), *_if_more_collude(result, specs)),
        tuple(sizes),
        _sees(result, sizes),
        dealt[-1] if dealt else 0,
    )


def _if_more_collude(
    result: RunResult, specs: Sequence[CohortSpec]
) -> Iterator[tuple[str, str]]:
    """Say what ε would be under a condition that does not hold."""
    if result.spent.kind == "none":
        return
    effect = collusion_effect(list({cohort_mechanism(spec): None for spec in specs}))
    if effect is not None:
        yield "If more collude", effect.sentence()


def _read_sizes(spec: CohortSpec, nodes: int, dealt: Sequence[int]) -> SizeRow:
    threat = Threat.from_wire(spec.threat)
    if spec.admission:
        nodes = spec.cohort_size  # everybody who arrives is one
    size, among = _SIZES.get(spec.backend), nodes
    if spec.backend == SEALED:
        among = dealt[-1] if dealt else 0
    sizes = None if size is None or not among else size(threat, among)
    return SizeRow(
        people=spec.cohort_size,
        honest_floor=spec.honest_floor,
        quorum=spec.quorum,
        nodes=nodes,
        colluding=threat.corrupt_nodes(nodes),
        helpers=None if sizes is None else sizes.helpers,
        threshold=None if sizes is None else sizes.threshold,
        bits=cohort_mechanism(spec).bits_per_user,
    )


def _facts(result: RunResult) -> list[tuple[str, str]]:
    config, spent = result.config, result.spent
    privacy, sums = config.privacy, config.secure_sum
    facts = [
        (
            "Unit of privacy",
            "one person, one outcome: the record with their outcome replaced by any "
            "other in [0, 1] must look almost the same",
        ),
        (
            "Mechanism",
            f"{privacy.mechanism}. {mechanism_class(privacy.mechanism).noise}"
            + _MIXED * (sums.shuffle == MIXED),
        ),
    ]
    kind, own = spent.kind, float(spent.own_delta)
    with_delta = f", with δ = {power(own)}" if own else ""
    facts.append(("Guarantee", _KINDS[kind] + with_delta))
    if spent.epsilon is not None:
        delta = spent.privacy_delta + own  # as `build_promise` adds them
        facts += [
            ("ε of one participation", round_up(spent.epsilon)),
            (
                "In all",
                (
                    f"ε = {round_up(spent.total_epsilon)}, "
                    f"δ = {power(own) if own else 0}"
                    if spent.total_epsilon
                    else f"ε = {spent.approximate_epsilon} at δ = {power(delta)}"
                ),
            ),
            (
                "As (ε, δ)",
                f"ε = {spent.approximate_epsilon} at δ = {power(delta)}, computed "
                "exactly from the noise. δ is added to every probability; it is not "
                "the chance that the promise fails.",
            ),
        ]
    times = spent.participations
    if kind != "none":
        facts.append(
            (
                "Composition",
                (
                    "parallel: nobody is in two cohorts, so the promise of one "
                    "cohort is that of the experiment"
                    if times <= 1
                    else f"sequential over the {times} cohorts of the busiest person"
                ),
            )
        )
    facts += [
        ("Must be honest", _must_be_honest(result)),
        ("Secure sum", f"{sums.backend}; {result.trust}"),
    ]
    if kind != "none":
        facts.append(
            (
                "Withstands",
                f"up to {percent(sums.corrupt)} of a cohort's nodes working with the "
                f"server and another {percent(sums.dropout)} vanishing",
            )
        )
    facts += [
        (
            "Chance of a wrong decision",
            f"at most {round_up(100 * result.risk, 2)} % in the whole "
            "experiment, the sums' wrap-around included",
        ),
        ("Not hidden", "that somebody took part, when, and which arm was shown"),
    ]
    return facts


def _sees(result: RunResult, sizes: Sequence[SizeRow]) -> tuple[tuple[str, str], ...]:
    """Say who sees what, from the person outwards."""
    trust = result.spent.trust or "distributed"
    least = min((row.quorum for row in sizes), default=0)
    if result.config.test_mode:
        middle = ("Whoever knows the seed", "every outcome")
    elif trust == "server":
        middle = ("The operator", "every outcome, and adds the noise")
    elif trust == "shuffler":
        middle = ("Shuffler and operator", "messages of everybody, mixed: not whose")
    elif trust == "nobody":
        middle = ("The operator", "each person's randomised answer")
    else:
        middle = (
            "Other nodes and the operator",
            "random-looking shares: alone they say nothing",
        )
    own = (
        "their outcome; it leaves only with noise in it"
        if trust != "server"
        else "their outcome; it goes to the server as it is"
    )
    return (
        ("The person and their node", own),
        middle,
        ("The record", f"noised sums, each of at least {least:,} people"),
        ("This page", "estimates, intervals and counts made from those sums"),
    )


def _must_be_honest(result: RunResult) -> str:
    if result.config.test_mode:
        return "nothing protects: the noise comes from a known seed"
    return MUST_BE_HONEST[result.spent.trust or "nobody"]
