"""What a node's users agreed to; the server is not asked.

A policy is a TOML file on the node. Every request is held against it, with everything
derived from the cohort's public description and nothing taken on the server's word.
A refusal has a name that travels back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from wallflower.protocol.accounting.account import SMALLEST_PROVED_DELTA
from wallflower.protocol.cohort import (
    check_threat,
    cohort_mechanism,
    from_range,
    from_rational,
)
from wallflower.protocol.errors import InputError, TermsError
from wallflower.protocol.files.settings import read_toml, settings_from
from wallflower.protocol.identical import Same
from wallflower.protocol.numbers import positive, probability, whole
from wallflower.protocol.privacy.mechanism import (
    USUAL_SMALLEST_COHORT,
    CohortMechanism,
)
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.protocol.secure_sum.backends import (
    BACKENDS,
    SEALED,
    SHUFFLE,
    check_backend,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """The terms of a node's users.

    Attributes
    ----------
    largest_epsilon : of one cohort, the mechanism's parameter.
    largest_total_epsilon : of everything a user ever takes part in (by the ledger),
        guarantees of all kinds together, as ε of (ε, δ)-DP.
    privacy_delta : the δ of that total.
    largest_participations : of one user in one run.
    largest_prices : different prices (mechanism and ε) within 30 days at which the
        node says who has budget left.
    smallest_cohort : users in a cohort, n.
    smallest_nodes : nodes in a cohort, and in the dealing of the key that its sum is
        sealed under. Where nothing is said and the server may lie, a key must have been
        dealt among so many that all colluders of the cohort are withstood.
    smallest_trustees : nodes that made the key of a cohort whose people arrive.
    trustees : names of the nodes that may make such a key. Where people are enrolled
        and the server may lie they must be named: it could call anybody a trustee.
    smallest_floor_fraction : h/n; how many of a cohort the noise must be carried by.
    smallest_corrupt : fraction of colluding nodes the secure sum must withstand; the
        threshold of the sharing follows from it.
    malicious_server : insist on sizes that withstand a server that lies; where nothing
        is said, a node with an enrolment key does (see `enrolled`).
    mechanisms : names of the mechanisms agreed to.
    backends : names of the secure sums agreed to.
    shufflers : SHA-256, in hex, of the keys of shufflers that are believed to be run
        apart from the server; without any, nothing is sent through a shuffler.
    arms : names of the arms that users may be shown; where nothing is said, any.
    """

    largest_epsilon: Fraction = Fraction(1)
    largest_total_epsilon: Fraction = Fraction(1)
    privacy_delta: Fraction = Fraction(1, 10**6)
    largest_participations: int = 1
    largest_prices: int = 5
    smallest_cohort: int = USUAL_SMALLEST_COHORT
    smallest_nodes: int | None = None
    smallest_trustees: int = 5
    trustees: tuple[str, ...] = ()
    smallest_floor_fraction: Fraction = Fraction(1, 2)
    smallest_corrupt: Fraction = Fraction(1, 10)
    malicious_server: bool | None = None
    mechanisms: tuple[str, ...] = ("dist-dp", "dist-rdp", "dist-cdp", "local-dp")
    backends: tuple[str, ...] = BACKENDS
    shufflers: tuple[str, ...] = ()
    arms: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        positive("largest-epsilon", self.largest_epsilon)
        positive("largest-total-epsilon", self.largest_total_epsilon)
        probability("privacy-delta", self.privacy_delta)
        whole("largest-participations", self.largest_participations, at_least=1)
        whole("largest-prices", self.largest_prices, at_least=1)
        whole("smallest-cohort", self.smallest_cohort, at_least=2)
        if self.smallest_nodes is not None:
            whole("smallest-nodes", self.smallest_nodes, at_least=2)
        whole("smallest-trustees", self.smallest_trustees, at_least=2)
        for name, value in (
            ("smallest-floor-fraction", self.smallest_floor_fraction),
            ("smallest-corrupt", self.smallest_corrupt),
        ):
            if not 0 <= value <= 1:
                raise InputError(name, value, "between 0 and 1")
        for name, listed in (("mechanisms", self.mechanisms), ("arms", self.arms)):
            if listed is not None and not listed:
                raise InputError(name, "an empty list", "at least one name")
        for backend in self.backends:
            check_backend("backends", backend)
        for name in self.shufflers:
            if len(name) != 64 or set(name) - set("0123456789abcdef"):
                allowed = "the 64 hex digits that `wallflower shuffler` prints"
                raise InputError("shufflers", f'"{name}"', allowed)

    def enrolled(self) -> ClientPolicy:
        """Return the terms of a node that holds an enrolment key.

        With it a lying server can be withstood, so the node insists unless its own file
        says otherwise; the operator's file has no say.
        """
        if self.malicious_server is not None:
            return self
        return replace(self, malicious_server=True)

    def check(self, spec: CohortSpec) -> CohortMechanism:
        """Calibrate what the spec describes, or refuse it by name.

        Every stage of every node of a process asks, mostly about the same few cohorts:
        what was accepted is remembered by the whole of its bytes.
        """
        return _judge_once(Same(self), spec.SerializeToString(deterministic=True))

    def judge(self, spec: CohortSpec) -> CohortMechanism:
        """Do what `check` remembers."""
        if spec.mechanism not in self.mechanisms:
            raise TermsError(
                RefusalCode.MECHANISM_NOT_ALLOWED,
                f"{spec.mechanism[:50]} is not among {', '.join(self.mechanisms)}",
            )
        self.check_arms([spec.arm_name])
        self._check_backend(spec)
        if spec.backend == SHUFFLE and not self.shufflers:
            raise TermsError(RefusalCode.SHUFFLER_NOT_KNOWN, "no shuffler is agreed to")
        try:
            mechanism = cohort_mechanism(spec)
            epsilon = from_rational("epsilon", spec.epsilon)
        except InputError as error:
            raise TermsError(RefusalCode.BAD_COHORT, str(error)) from None
        if epsilon > self.largest_epsilon:
            raise TermsError(
                RefusalCode.EPSILON_TOO_LARGE,
                f"requested {epsilon}, allowed at most {self.largest_epsilon}",
            )
        if spec.cohort_size < self.smallest_cohort:
            raise TermsError(
                RefusalCode.COHORT_TOO_SMALL,
                f"{spec.cohort_size} users, allowed at least {self.smallest_cohort}",
            )
        self._check_trust(spec)
        may_fail = spec.proved_inputs or mechanism.guarantee().privacy_delta > 0
        if may_fail and self.privacy_delta < SMALLEST_PROVED_DELTA:
            raise TermsError(
                RefusalCode.DELTA_TOO_SMALL,
                "proofs of range and mixing cost a δ of 2⁻⁴⁰ each time; this node's "
                f"total is below {float(SMALLEST_PROVED_DELTA):g}",
            )
        return mechanism

    def check_arms(self, names: Sequence[str]) -> None:
        """Refuse an experiment with an arm that users may not be shown.

        A node that left out one arm would tilt the comparison: it takes part in all of
        an experiment's arms or in none.
        """
        for name in names:
            if self.arms is not None and name not in self.arms:
                raise TermsError(
                    RefusalCode.ARM_NOT_ALLOWED,
                    f"{name[:50]} is not among {', '.join(self.arms)}",
                )

    def check_dealing(self, spec: CohortSpec) -> None:
        """Refuse to deal a key for sums that this node's users would not agree to."""
        self._check_backend(spec)
        if spec.backend != SEALED:
            raise TermsError(
                RefusalCode.BACKEND_NOT_ALLOWED, f"{spec.backend} deals no keys"
            )
        try:
            check_threat(spec.threat)
        except InputError as error:
            raise TermsError(RefusalCode.BAD_COHORT, str(error)) from None
        self._check_threat(spec)

    def _check_backend(self, spec: CohortSpec) -> None:
        if spec.backend not in self.backends:
            raise TermsError(
                RefusalCode.BACKEND_NOT_ALLOWED,
                f"{spec.backend[:50]} is not among {', '.join(self.backends)}",
            )

    def _check_trust(self, spec: CohortSpec) -> None:
        least = self.smallest_floor_fraction
        if spec.honest_floor * least.denominator < spec.cohort_size * least.numerator:
            raise TermsError(
                RefusalCode.FLOOR_TOO_LOW,
                f"noise carried by {spec.honest_floor} of {spec.cohort_size} users, "
                f"allowed at least the fraction {least}",
            )
        corrupt = self._check_threat(spec)
        # The largest ⌈γN⌉ of N nodes hold at least γn users, whatever their sizes.
        if spec.quorum - spec.honest_floor < corrupt * spec.cohort_size:
            raise TermsError(
                RefusalCode.QUORUM_TOO_LOW,
                f"a quorum of {spec.quorum} leaves no room for corrupt users beside "
                f"{spec.honest_floor} honest ones",
            )

    def _check_threat(self, spec: CohortSpec) -> Fraction:
        """Refuse a threat that is too weak; give γ."""
        threat = spec.threat
        corrupt = (
            from_rational("corrupt", threat.corrupt)
            if threat.HasField("corrupt")
            else Fraction(0)
        )
        if corrupt < self.smallest_corrupt:
            raise TermsError(
                RefusalCode.THREAT_TOO_WEAK,
                f"withstands {corrupt} corrupt nodes, allowed at least "
                f"{self.smallest_corrupt}",
            )
        if self.malicious_server and not threat.malicious_server:
            raise TermsError(
                RefusalCode.THREAT_TOO_WEAK,
                "the server is trusted to keep to the protocol",
            )
        return corrupt


# A refusal raises, and is not remembered.
@lru_cache(maxsize=1024)
def _judge_once(policy: Same[ClientPolicy], spec: bytes) -> CohortMechanism:
    return policy.value.judge(CohortSpec.FromString(spec))


def check_range(agreed: RewardRange, spec: CohortSpec) -> None:
    """Refuse a cohort that measures outcomes in another range than was agreed to.

    The range decides what the sum means, and how much one person can move it.
    """
    try:
        stated = from_range(spec)
    except InputError as error:
        raise TermsError(RefusalCode.BAD_COHORT, str(error)) from None
    if stated != agreed:
        raise TermsError(
            RefusalCode.RANGE_DIFFERS,
            f"the cohort's range is {stated}, this node's {agreed}",
        )


def check_window(own: OutcomeWindow, spec: CohortSpec) -> None:
    """Refuse a cohort that would not wait for the end of the node's window.

    Whoever is shown an arm would be charged, and in no sum.
    """
    if not own.allows(spec.window_ms):
        raise TermsError(
            RefusalCode.WINDOW_TOO_SHORT,
            f"the cohort's window is {spec.window_ms / 1000:g} s, this node's "
            f"{own.limit_s:g} s",
        )


def load_policy(path: Path) -> ClientPolicy:
    """Read a policy file; an error names the file and the key."""
    return settings_from(ClientPolicy, read_toml(path), str(path))
