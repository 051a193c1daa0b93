"""Every cohort of a run as a row: who was asked, who is in the sum, who is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wallflower.protocol.secure_sum.session import Finding
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.store.entries import StoredCohort
from wallflower.strategy.store.journal import Journal

UNDER_WAY = "under-way"


@dataclass(frozen=True, slots=True)
class CohortRow:
    """One attempt to get one arm's sum.

    Attributes
    ----------
    state : ``summed``, ``void`` or ``invited``; `why` says why it is void.
    invited : people asked, less those whose node refused before anybody saw the arm.
    in_sum : people on the nodes that are in the sum; `answered` of them did.
    losses : people who were asked and are in no sum, by reason.
    """

    cohort: str
    round: int
    batch: int
    arm: str
    attempt: int
    state: str
    why: str
    invited: int
    returned: int
    answered: int
    nodes: int
    nodes_in_sum: int
    in_sum: int
    honest_floor: int
    quorum: int
    losses: Mapping[str, int]
    findings: tuple[Finding, ...]

    @property
    def drawn(self) -> int:
        """People to whom the arm was assigned, whether they saw it or not."""
        return self.invited + self.returned

    @property
    def lost(self) -> int:
        """People who were asked and are in no sum."""
        return self.invited - self.answered


def cohort_rows(journal: Journal) -> Iterable[CohortRow]:
    """Yield every attempt to get one arm's sum, in the order of the record."""
    names = journal.config.experiment.arms
    asked = journal.count_invited()
    returned: dict[str, set[str]] = {}
    for cohort_id, node_id, _ in journal.returned():
        returned.setdefault(cohort_id, set()).add(node_id)
    blame = journal.blame()
    for cohort in journal.cohorts():
        nodes = asked.get(cohort.cohort_id, {})
        back = returned.get(cohort.cohort_id, set())
        yield _cohort(cohort, nodes, back, blame.get(cohort.cohort_id, ()), names)


def _cohort(
    cohort: StoredCohort,
    nodes: Mapping[str, int],
    returned: set[str],
    findings: Sequence[Finding],
    names: Sequence[str],
) -> CohortRow:
    spec = CohortSpec.FromString(cohort.spec)
    summed = () if cohort.result is None else cohort.result.nodes
    answered = 0 if cohort.result is None else cohort.result.survivors
    given_back = sum(nodes[node_id] for node_id in returned)
    invited = sum(nodes.values()) - given_back
    losses = Counter(cohort.losses)
    losses[cohort.reason or UNDER_WAY] += invited - answered - losses.total()
    return CohortRow(
        cohort=cohort.cohort_id,
        round=cohort.round_number,
        batch=cohort.batch,
        arm=names[cohort.arm],
        attempt=cohort.attempt,
        state=cohort.state,
        why=cohort.reason,
        invited=invited,
        returned=given_back,
        answered=answered,
        nodes=len(nodes) - len(returned),
        nodes_in_sum=len(summed),
        in_sum=sum(nodes[node_id] for node_id in summed),
        honest_floor=spec.honest_floor,
        quorum=spec.quorum,
        losses=dict(sorted((+losses).items())),
        findings=tuple(findings),
    )
