"""What a node insists on before it takes part in a secure sum."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.errors import RefusalError
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.sealed.sizes import as_withstood
from wallflower.protocol.secure_sum.threat import Threat, most_corrupt_users
from wallflower.protocol.visitors import ENROLLED
from wallflower.protocol.wire.cohort_pb2 import CohortSpec


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Minima of one node; the server cannot talk it below them.

    Attributes
    ----------
    minimum_parties : nodes that a cohort, and a dealing of the key that its sum is
        sealed under, must have.
    minimum_trustees : nodes among which the key of a cohort with seats is dealt.
    trustees : names of those nodes; empty where whoever is enrolled is one.
    minimum_corrupt : fraction of colluding nodes the sum must withstand; the
        threshold follows from the threat, so this is the node's minimum threshold.
    require_malicious : refuse cohorts that trust the server to keep to the protocol.
    shufflers : SHA-256, in hex, of the shufflers' keys that are agreed to.
    """

    minimum_parties: int | None = None
    minimum_trustees: int = 2
    trustees: frozenset[str] = frozenset()
    minimum_corrupt: Fraction = Fraction(0)
    require_malicious: bool = False
    shufflers: tuple[str, ...] = ()

    def check_spec(self, spec: CohortSpec, threat: Threat, trust: Trust | None) -> None:
        """Refuse a cohort whose description already falls short."""
        if threat.malicious_server and trust is None:
            raise RefusalError(
                RefusalCode.ENROLMENT_REQUIRED,
                "a malicious server can only be withstood with an enrolment key",
            )
        if self.require_malicious and not threat.malicious_server:
            raise RefusalError(
                RefusalCode.THREAT_TOO_WEAK,
                "this node insists on withstanding a lying server",
            )
        if threat.corrupt < self.minimum_corrupt:
            raise RefusalError(
                RefusalCode.THREAT_TOO_WEAK,
                f"corrupt {threat.corrupt} is below this node's {self.minimum_corrupt}",
            )
        if spec.quorum < 2:
            raise RefusalError(
                RefusalCode.COHORT_TOO_SMALL, "a sum over one user is that user's own"
            )

    def check_size(self, parties: int) -> None:
        """Refuse a roster with too few nodes."""
        least = max(2, self.minimum_parties or 0)
        if parties < least:
            raise RefusalError(
                RefusalCode.COHORT_TOO_SMALL,
                f"{parties} nodes; this node insists on {least}",
            )

    def check_dealing(self, threat: Threat, dealt: int, nodes: int) -> None:
        """Refuse a key that a cohort's colluders may have dealt among themselves.

        A lying server chooses among whom a key is dealt. As many may collude there as
        in the whole cohort, unless the node's own minimum says how many do anywhere.
        """
        self.check_size(dealt)
        if self.minimum_parties is None and not as_withstood(threat, dealt, nodes):
            raise RefusalError(
                RefusalCode.DEALING_TOO_SMALL,
                f"a key dealt among {dealt} nodes; of the {nodes} of this cohort "
                f"{threat.corrupt_nodes(nodes)} may collude",
            )

    def check_trustees(self, spec: CohortSpec, threat: Threat, dealt: Set[str]) -> None:
        """Refuse a key that a lying server may have had colluders make.

        Trustees are other machines than the people who arrive: how many of them
        collude does not grow with the cohort. But where people are enrolled too, by
        the same authority, the server could pick a few colluders among them. So
        trustees are known by name there. As many may collude in a key as among all
        that are named: the server chooses who of them makes it.
        """
        if len(dealt) < self.minimum_trustees:
            raise RefusalError(
                RefusalCode.DEALING_TOO_SMALL,
                f"a key of {len(dealt)} trustees; at least {self.minimum_trustees}",
            )
        if not self.trustees:
            if spec.admission == ENROLLED:
                raise RefusalError(
                    RefusalCode.TRUSTEES_NOT_KNOWN,
                    "no trustee is named (policy.trustees), and anybody enrolled could "
                    "be made one",
                )
            return
        if unknown := dealt - self.trustees:
            raise RefusalError(
                RefusalCode.TRUSTEES_NOT_KNOWN,
                f"{min(unknown)[:50]} is not among policy.trustees",
            )
        if not as_withstood(threat, len(dealt), len(self.trustees)):
            raise RefusalError(
                RefusalCode.DEALING_TOO_SMALL,
                f"a key of {len(dealt)} trustees; of the {len(self.trustees)} named "
                f"{threat.corrupt_nodes(len(self.trustees))} may collude",
            )

    def check_seats(self, spec: CohortSpec, threat: Threat) -> None:
        """Refuse seats whose quorum colluders could reach: one person has one seat."""
        self._check_colluders(spec, threat.corrupt_nodes(spec.cohort_size))

    def check_quorum(
        self, spec: CohortSpec, threat: Threat, roster: dict[str, int]
    ) -> None:
        """Refuse a quorum that colluders could reach without the honest floor."""
        if not threat.malicious_server:
            return
        self._check_colluders(spec, most_corrupt_users(roster, threat.corrupt))

    def _check_colluders(self, spec: CohortSpec, colluders: int) -> None:
        needed = spec.honest_floor + colluders
        if spec.quorum < needed:
            raise RefusalError(
                RefusalCode.QUORUM_TOO_LOW,
                f"quorum {spec.quorum}; {needed} keep {spec.honest_floor} honest users",
            )
