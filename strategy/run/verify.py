"""Does the record hold? Replay a journal and recompute everything it claims.

Nothing is believed that can be computed: a fresh policy gets the sums and must come to
the same decisions, every cohort's floor follows from who was invited, the guarantee
from how often the busiest user was asked. The chain shows what was changed afterwards,
and heads kept elsewhere (in the events, or printed) show what was cut off.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from wallflower.protocol.cohort import cohort_mechanism, to_range, to_rational
from wallflower.protocol.errors import JournalError, WallflowerError
from wallflower.protocol.numbers import counted
from wallflower.protocol.privacy.honest_floor import cohort_floor
from wallflower.protocol.secure_sum.backends import backend_modulus
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.run.arriving.deck import find_unfair_seats
from wallflower.strategy.run.replay import RecordedFacts, agree, decisions
from wallflower.strategy.run.spending import Spending
from wallflower.strategy.store import event_log
from wallflower.strategy.store.chain import Entry, unknown_heads
from wallflower.strategy.store.entries import (
    DEALT,
    INVITED,
    ROUND,
    SUMMED,
    VOID,
    CohortRecord,
)
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister


def verify(journal: Journal, heads: Sequence[str] = ()) -> tuple[Check, ...]:
    """Run every check; a journal that cannot even be read raises JournalError.

    `heads` of the chain were kept elsewhere; those in the events are looked at anyway.
    """
    links = journal.entries()
    record = (
        run_check(
            "nothing was changed after it was written",
            _describe_entries(links, journal),
            journal.breaks(),
        ),
        _heads(links, heads, journal),
    )
    try:
        evidence = _evidence(journal, links)
    except (JournalError, DecodeError, LookupError, TypeError, ValueError):
        if record[0].holds:
            raise
        return record  # the chain says where; there is nothing to replay
    return (*record, *_check_replay(evidence))


def _describe_entries(links: Sequence[Entry], journal: Journal) -> str:
    """Say how many entries were looked at, and what an archive took from them."""
    many = counted(len(links), "entry")
    if not journal.is_archived:
        return many
    return (
        f"{many}; of {journal.count_unsalted():,} an archive removed the names: only "
        "what is left in their place is checked"
    )


def _evidence(journal: Journal, links: Sequence[Entry]) -> RecordedFacts:
    """Read all that the checks look at."""
    invited: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for cohort_id, node_id, users in journal.invitations():
        invited[cohort_id][node_id] = users
    cohorts, register = journal.cohorts(), SeatRegister(journal.database)
    return RecordedFacts(
        config=journal.config,
        cohorts=cohorts,
        specs={one.cohort_id: CohortSpec.FromString(one.spec) for one in cohorts},
        invited=invited,
        rounds=journal.rounds(),
        returned={(cohort_id, node_id) for cohort_id, node_id, _ in journal.returned()},
        blame=journal.blame(),
        members={member for one in journal.dealings() for member in one.members},
        keys=_keys_by_round(journal),
        retired={one.arm: one for one in journal.retired()},
        meetings=journal.meetings(),
        links=links,
        seated={one.cohort_id: one for one in register.seated()},
        read_seats=register.read_seats,
    )


def _heads(links: Sequence[Entry], heads: Sequence[str], journal: Journal) -> Check:
    """Seek every head that was kept elsewhere; say what the events lack."""
    written, damaged = event_log.read_heads(journal.run_dir, journal.told_bytes)
    kept = [*heads, *written]
    rounds = {entry.link for entry in links if entry.kind == ROUND}
    looked_at = (
        f"{counted(len(set(kept)), 'head')}; {event_log.FILE_NAME} has those of "
        f"{len(rounds & set(written))} of {counted(len(rounds), 'round')}"
    )
    if damaged:
        looked_at += f", {counted(damaged, 'line')} of it cut or changed"
    return run_check(
        "every head kept elsewhere is in the chain: nothing was cut off",
        looked_at,
        (f"no entry has the head {head}" for head in unknown_heads(links, kept)),
    )


def _keys_by_round(journal: Journal) -> Mapping[int, Sequence[int]]:
    """Say which keys there were when each round was written, by the chain."""
    sizes = {one.dealing_id: one.nodes for one in journal.dealings() if not one.reason}
    dealt: list[int] = []
    found: dict[int, Sequence[int]] = {}
    for entry in journal.entries():
        if entry.kind == DEALT and entry.subject in sizes:
            dealt.append(sizes[entry.subject])
        elif entry.kind == ROUND:
            found[int(entry.subject)] = tuple(dealt)
    return found


def _check_replay(evidence: RecordedFacts) -> tuple[Check, ...]:
    cohorts, rounds = len(evidence.cohorts), len(evidence.rounds)
    looked_at = f"{counted(cohorts, 'cohort')}, {counted(rounds, 'round')}"
    if evidence.retired:
        looked_at += f", {counted(len(evidence.retired), 'arm')} retired by hand"
    arrived = (
        (("seats were given in turn to all arms, one to a person", find_unfair_seats),)
        if evidence.seated
        else ()
    )
    return tuple(
        run_check(name, looked_at, check(evidence))
        for name, check in (
            *arrived,
            ("no user is over budget", _participations),
            ("arms were assigned evenly inside every node", find_unbalanced),
            ("cohorts were asked on the experiment's terms", _terms),
            ("every released sum is over its floor", _floors),
            ("decisions follow from the sums", decisions),
            ("the guarantee is what was spent", _guarantee),
            ("void cohorts name who caused them, or say that it is unknown", _blame),
        )
    )


def _blame(evidence: RecordedFacts) -> Iterator[str]:
    for cohort in evidence.cohorts:
        findings = evidence.blame.get(cohort.cohort_id, ())
        if cohort.state == VOID and not findings:
            yield f"cohort {cohort.cohort_id} is void and nobody says why"
        invited = evidence.invited.get(cohort.cohort_id, {})
        for one in findings:
            if one.party and one.party not in invited.keys() | evidence.members:
                yield f"cohort {cohort.cohort_id} blames {one.party}, not invited to it"


def _participations(evidence: RecordedFacts) -> Iterator[str]:
    most = evidence.config.privacy.max_participations
    often: Counter[tuple[str, str]] = Counter()
    for cohort in evidence.cohorts:
        for node_id, users in evidence.used(cohort.cohort_id).items():
            if len(set(users)) != len(users):
                yield f"cohort {cohort.cohort_id}: node {node_id} has a user twice"
            often.update((node_id, user) for user in users)
    for (node_id, user), times in often.items():
        if times > most:
            yield f"user {node_id}/{user} was invited {times} times; allowed {most}"


def _terms(evidence: RecordedFacts) -> Iterator[str]:
    config = evidence.config
    expected = {
        "mechanism": config.privacy.mechanism,
        "epsilon": to_rational(config.privacy.epsilon),
        "scale": to_rational(config.privacy.scale),
        "backend": config.secure_sum.backend,
        "proved_inputs": config.secure_sum.inputs == "proved",
        "threat": config.secure_sum.threat.to_wire(),
        "reward_range": to_range(config.reward_range),
        "window_ms": config.window.stated_ms,
        "admission": "" if config.visitors is None else config.visitors.admission,
    }
    for cohort in evidence.cohorts:
        spec = evidence.specs[cohort.cohort_id]
        where = f"cohort {cohort.cohort_id}"
        for name, value in expected.items():
            if getattr(spec, name) != value:
                yield f"{where}: {name} is not the experiment's"
        if (spec.cohort_id, spec.batch, spec.arm) != (
            cohort.cohort_id,
            cohort.batch,
            cohort.arm,
        ):
            yield f"{where}: its description is another cohort's"
        least = cohort_mechanism(spec).modulus
        if spec.modulus != backend_modulus(spec.backend, least):
            yield f"{where}: modulus {spec.modulus} does not follow from its size"


def _floors(evidence: RecordedFacts) -> Iterator[str]:
    secure_sum, arrive = evidence.config.secure_sum, evidence.config.visitors
    for cohort in evidence.cohorts:
        spec = evidence.specs[cohort.cohort_id]
        where = f"cohort {cohort.cohort_id}"
        asked = evidence.invited.get(cohort.cohort_id, {})
        sizes = {node_id: len(users) for node_id, users in asked.items()}
        seats = evidence.seated.get(cohort.cohort_id)
        floor = cohort_floor(
            # Everybody who arrives is a node of their own; a server that was killed
            # may have had no time to open their seats.
            list(sizes.values()) if arrive is None else [1] * spec.cohort_size,
            secure_sum.corrupt,
            secure_sum.dropout,
        )
        stated = (spec.cohort_size, spec.honest_floor, spec.quorum)
        if stated != (floor.cohort_size, floor.honest_floor, floor.quorum):
            yield f"{where}: states n, h, quorum {stated}, invitations give {floor}"
        if (cohort.state == SUMMED) != (cohort.result is not None):
            yield f"{where}: {cohort.state}, but with or without a sum"
        if cohort.result is None:
            continue
        result = cohort.result
        if not set(result.nodes) <= sizes.keys():
            yield f"{where}: a node is in the sum that was not asked"
        for node_id in result.nodes:
            if (cohort.cohort_id, node_id) in evidence.returned:
                yield f"{where}: node {node_id} is in the sum, its users are returned"
        most = sum(sizes.get(node_id, 0) for node_id in result.nodes)
        least = floor.quorum
        if seats is not None:  # all who answered are in the sum, and nobody else
            most = seats.counts.answered
            least = max(least, most)
        if not least <= result.survivors <= most:
            yield (
                f"{where}: {result.survivors} users in the sum; quorum {floor.quorum}, "
                f"invited on its nodes, or answered on its seats, {most}"
            )


def _guarantee(evidence: RecordedFacts) -> Iterator[str]:
    often: Counter[tuple[str, str]] = Counter()
    asked, most = Spending(), 0
    cohorts = iter(sorted(evidence.cohorts, key=lambda cohort: cohort.round_number))
    pending = next(cohorts, None)
    for record in evidence.rounds:
        while pending is not None and pending.round_number <= record.number:
            invited = evidence.invited.get(pending.cohort_id, {})
            asked.add(evidence.specs[pending.cohort_id], len(invited))
            for node_id, users in evidence.used(pending.cohort_id).items():
                for user in users:
                    often[node_id, user] += 1
                    most = max(most, often[node_id, user])
            pending = next(cohorts, None)
        stated = asked.compute(
            most,
            test_mode=evidence.config.test_mode,
            keys=evidence.keys[record.number],
        )
        if not agree(stated.as_json(), record.spent.as_json()):
            yield f"round {record.number}: states another guarantee than was spent"


MOST_PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Check:
    """One claim of a journal: what was looked at, and what is wrong with it."""

    name: str
    looked_at: str
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems


def run_check(name: str, counted: str, found: Iterable[str]) -> Check:
    """Collect problems; one that stops the check is a problem too."""
    problems: list[str] = []
    try:
        for problem in found:
            problems.append(problem)
            if len(problems) >= MOST_PROBLEMS_SHOWN:
                break
    except (WallflowerError, ArithmeticError, LookupError, TypeError, ValueError) as e:
        problems.append(f"the record cannot be replayed ({type(e).__name__}: {e})")
    return Check(name, counted, tuple(problems))


def find_unbalanced(evidence: RecordedFacts) -> Iterator[str]:
    """Yield what is uneven in who got which arm."""
    draws: defaultdict[int, list[CohortRecord]] = defaultdict(list)
    rounds: defaultdict[int, list[CohortRecord]] = defaultdict(list)
    for cohort in evidence.cohorts:
        if cohort.cohort_id not in evidence.seated:
            draws[cohort.draw].append(cohort)
        rounds[cohort.round_number].append(cohort)
    for number, cohorts in sorted(draws.items()):
        asked = [evidence.invited.get(one.cohort_id, {}) for one in cohorts]
        yield from _within(f"draw {number}", cohorts, asked)
    for number, cohorts in sorted(rounds.items()):
        yield from _together(f"round {number}", cohorts)
    yield from _redrawn(evidence)


def _within(
    where: str,
    cohorts: Sequence[CohortRecord],
    asked: Sequence[Mapping[str, tuple[str, ...]]],
) -> Iterator[str]:
    """Compare the cohorts of one draw."""
    if len({cohort.round_number for cohort in cohorts}) > 1:
        yield f"{where} has cohorts of several rounds"
    if len({cohort.arm for cohort in cohorts}) < len(cohorts):
        yield f"{where} has two cohorts of one arm"
    sizes = [sum(map(len, users.values())) for users in asked]
    if max(sizes) > min(sizes):
        yield f"{where}: its cohorts have {min(sizes)} to {max(sizes)} people"
    for node_id in sorted(set().union(*asked)):
        given = [users.get(node_id, ()) for users in asked]
        fewest, most = min(map(len, given)), max(map(len, given))
        if most > fewest + 1:
            yield (
                f"{where}: node {node_id} gives {fewest} people to one arm and {most} "
                "to another"
            )
        person, times = Counter(u for users in given for u in users).most_common(1)[0]
        if times > 1:
            yield f"{where}: user {node_id}/{person} is in {times} of its cohorts"


def _together(where: str, cohorts: Sequence[CohortRecord]) -> Iterator[str]:
    """Check that a round's first draw has all of its arms."""
    first = min(cohort.draw for cohort in cohorts)
    drawn = {cohort.arm for cohort in cohorts if cohort.draw == first}
    for arm in sorted({cohort.arm for cohort in cohorts} - drawn):
        yield f"{where}: arm {arm} was not drawn together with the others"


def _redrawn(evidence: RecordedFacts) -> Iterator[str]:
    """Check that every cohort of an arm was void before its next one was drawn."""
    cohorts = {cohort.cohort_id: cohort for cohort in evidence.cohorts}
    open_cohorts: dict[tuple[int, int], str] = {}  # by round and arm
    for entry in evidence.links:
        if entry.kind not in (INVITED, VOID):
            continue
        cohort = cohorts[entry.subject]
        place = (cohort.round_number, cohort.arm)
        if entry.kind == VOID:
            open_cohorts.pop(place, None)
            continue
        if place in open_cohorts:
            yield (
                f"cohort {cohort.cohort_id} was drawn although {open_cohorts[place]} "
                "was not void"
            )
        open_cohorts[place] = cohort.cohort_id
