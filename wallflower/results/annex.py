"""What an ethics board or a privacy researcher asks for beyond the sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.mechanism import mechanism_class
from wallflower.protocol.privacy.sentences import MUST_BE_HONEST, percent, power
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.shuffle.plan import MIXED
from wallflower.protocol.secure_sum.threat import Threat, committee_size, graph_size
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.results.result import RunResult
from wallflower.strategy.run.spending import own_delta
from wallflower.strategy.store.journal import Journal

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
class GroupRow:
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
    """Named facts, the groups, who sees what, and how many nodes share a key."""

    facts: tuple[tuple[str, str], ...]
    groups: tuple[GroupRow, ...]
    sees: tuple[tuple[str, str], ...]
    dealt: int  # nodes among which the key of sealed sums was dealt; 0: none was


def annex_of(journal: Journal, result: RunResult) -> Annex:
    """Gather it from the record."""
    asked = journal.count_invited()
    # The shares of sealed sums are those of the run's latest key.
    dealt = [one.nodes for one in journal.dealings() if not one.reason]
    groups = sorted(
        {
            _group(
                CohortSpec.FromString(cohort.spec), len(asked[cohort.cohort_id]), dealt
            )
            for cohort in journal.cohorts()
        },
        key=lambda row: (row.people, row.nodes),
    )
    return Annex(
        tuple(_facts(result)),
        tuple(groups),
        _sees(result, groups),
        dealt[-1] if dealt else 0,
    )


def _group(spec: CohortSpec, nodes: int, dealt: Sequence[int]) -> GroupRow:
    threat = Threat.from_wire(spec.threat)
    size, among = _SIZES.get(spec.backend), nodes
    if spec.backend == SEALED:
        among = dealt[-1] if dealt else 0
    sizes = None if size is None or not among else size(threat, among)
    return GroupRow(
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
            "one person, one outcome: the record with her outcome replaced by any "
            "other in [0, 1] must look almost the same",
        ),
        (
            "Mechanism",
            f"{privacy.mechanism}. {mechanism_class(privacy.mechanism).noise}"
            + _MIXED * (sums.shuffle == MIXED),
        ),
    ]
    kind = str(spent.get("kind", "none"))
    own = float(own_delta(spent))
    with_delta = f", with δ = {power(own)}" if own else ""
    facts.append(("Guarantee", _KINDS[kind] + with_delta))
    if spent.get("epsilon") is not None:
        delta = float(spent["privacy-delta"]) + own  # as `promise_of` adds them
        facts += [
            ("ε of one participation", round_up(Fraction(spent["epsilon"]))),
            (
                "In all",
                (
                    f"ε = {round_up(Fraction(spent['total-epsilon']))}, "
                    f"δ = {power(own) if own else 0}"
                    if spent["total-epsilon"]
                    else f"ε = {spent['approximate-epsilon']} at δ = {power(delta)}"
                ),
            ),
            (
                "As (ε, δ)",
                f"ε = {spent['approximate-epsilon']} at δ = {power(delta)}, computed "
                "exactly from the noise; δ is added to every probability, it is not "
                "the chance that the promise fails",
            ),
        ]
    times = int(spent.get("participations", 0))
    if kind != "none":
        facts.append(
            (
                "Composition",
                (
                    "parallel: nobody is in two groups, so the promise of one group is "
                    "that of the experiment"
                    if times <= 1
                    else f"sequential over the {times} groups of the busiest person"
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
                f"up to {percent(sums.corrupt)} of a group's nodes working with the "
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


def _sees(result: RunResult, groups: Sequence[GroupRow]) -> tuple[tuple[str, str], ...]:
    """Say who sees what, from the person outwards."""
    trust = str(result.spent.get("trust", "distributed"))
    least = min((row.quorum for row in groups), default=0)
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
        "her outcome; it leaves only with noise in it"
        if trust != "server"
        else "her outcome; it goes to the server as it is"
    )
    return (
        ("The person and her node", own),
        middle,
        ("The record", f"noised sums, each of at least {least:,} people"),
        ("This page", "estimates, intervals and counts made from those sums"),
    )


def _must_be_honest(result: RunResult) -> str:
    if result.config.test_mode:
        return "nothing protects: the noise comes from a known seed"
    return MUST_BE_HONEST[str(result.spent.get("trust", "nobody"))]
