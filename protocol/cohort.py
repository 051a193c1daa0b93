"""From a cohort's public description to the mechanism both sides calibrate.

The server sends a CohortSpec; the client derives g, τ, m and its own noise from it and
believes none of the derived numbers. Every field is checked here, with its name in the
error, because the message comes from a server that is not trusted.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.canonical import LONGEST_NAME
from wallflower.protocol.numbers import exact
from wallflower.protocol.privacy.mechanism import (
    CohortMechanism,
    mechanism_class,
    mechanism_named,
)
from wallflower.protocol.privacy.pure import MIXABLE, PURELY_SHUFFLED, MixedCohort
from wallflower.protocol.rewards.outcome_window import LONGEST_WINDOW_S
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.visitors import check_admission
from wallflower.protocol.wire.cohort_pb2 import CohortSpec, Rational, Threat
from wallflower.protocol.wire.cohort_pb2 import RewardRange as WireRange

_LARGEST_UINT64 = 2**64 - 1
_LONGEST_NUMBER = 30  # characters of an end of a range
# A modulus must fit the signed 64-bit arithmetic of vectorised sums.
LARGEST_MODULUS = 2**62
_MOST_BYTES = 8192  # of a description: five names, and numbers


def to_rational(value: Fraction) -> Rational:
    """Write a non-negative fraction to the wire; raises where it does not fit.

    Examples
    --------
    >>> from_rational("epsilon", to_rational(Fraction(1, 10)))
    Fraction(1, 10)
    """
    if value < 0 or max(value.numerator, value.denominator) > _LARGEST_UINT64:
        raise InputError(
            "rational", value, "at least 0, numerator and denominator below 2^64"
        )
    return Rational(numerator=value.numerator, denominator=value.denominator)


def from_rational(name: str, message: Rational) -> Fraction:
    """Read a fraction from the wire; `name` is the field, for the error."""
    if message.denominator == 0:
        given = f"{message.numerator}/0"
        raise InputError(name, given, "a fraction with a denominator other than 0")
    return Fraction(message.numerator, message.denominator)


def to_range(agreed: RewardRange) -> WireRange:
    """Write the range of outcomes for a cohort's public description."""
    return WireRange(low=str(agreed.low), high=str(agreed.high), unit=agreed.unit)


def from_range(spec: CohortSpec) -> RewardRange:
    """Return the range of outcomes that a cohort states; raises InputError."""
    if not spec.HasField("reward_range"):
        return DEFAULT_RANGE
    stated = spec.reward_range
    return _read_range(stated.low, stated.high, stated.unit)


# Every stage of every cohort of a run states the same one.
@lru_cache(maxsize=64)
def _read_range(low: str, high: str, unit: str) -> RewardRange:
    for end in (low, high):
        if len(end) > _LONGEST_NUMBER:
            raise InputError("range", f"{len(end)} characters", "two short numbers")
    return RewardRange(exact("range", low), exact("range", high), unit)


def cohort_mechanism(spec: CohortSpec) -> CohortMechanism:
    """Calibrate the mechanism a spec describes; raises InputError naming the field.

    The modulus may exceed ng + 2τ + 1 (a back-end may need a prime) but never fall
    below it: too small a modulus would garble sums of honest users.
    """
    check_names(spec)
    check_threat(spec.threat)
    check_pairing(spec.mechanism, spec.backend)
    check_admission(spec)
    mechanism = mechanism_named(
        spec.mechanism,
        from_rational("epsilon", spec.epsilon),
        from_rational("scale", spec.scale),
    )
    cohort = mechanism.for_cohort(
        spec.cohort_size,
        spec.honest_floor,
        from_rational("wrap_probability", spec.wrap_probability),
    )
    if not spec.honest_floor <= spec.quorum <= spec.cohort_size:
        allowed = f"from honest_floor {spec.honest_floor} to n = {spec.cohort_size}"
        raise InputError("quorum", spec.quorum, allowed)
    if not cohort.modulus <= spec.modulus <= LARGEST_MODULUS:
        allowed = f"from ng + 2τ + 1 = {cohort.modulus} to 2^62"
        raise InputError("modulus", spec.modulus, allowed)
    if spec.backend == SHUFFLE and cohort.radix is None:
        return MixedCohort.of(cohort)
    return cohort


def check_pairing(mechanism: str, backend: str) -> None:
    """Refuse a mechanism whose promise rests on another kind of sum.

    What `shuffle-dp` says, and whom it says is trusted, is of a shuffler. A shuffled
    batch tells more than the sum: `dist-dp` pays for that with a δ (`MixedCohort`), and
    of the other mechanisms nothing is proved.
    """
    shuffled = mechanism_class(mechanism).shuffled
    if shuffled and backend != SHUFFLE:
        raise InputError("backend", backend, f"{SHUFFLE} with {mechanism}")
    if backend == SHUFFLE and not shuffled and mechanism != MIXABLE:
        raise InputError(
            "mechanism", mechanism, f"{PURELY_SHUFFLED} or {MIXABLE} with {SHUFFLE}"
        )


def check_names(spec: CohortSpec) -> None:
    """Refuse a spec without its names, or with unreasonably long ones."""
    for field in ("run_id", "cohort_id", "mechanism", "backend"):
        value: str = getattr(spec, field)
        if not 0 < len(value) <= LONGEST_NAME:
            given = f"{len(value)} characters long"
            raise InputError(field, given, f"1 to {LONGEST_NAME} characters")
    if len(spec.arm_name) > LONGEST_NAME or not spec.arm_name.isprintable():
        given = f"{len(spec.arm_name)} characters long"
        raise InputError(
            "arm_name", given, f"printable, at most {LONGEST_NAME} characters"
        )
    if (size := spec.ByteSize()) > _MOST_BYTES:  # with fields that nobody knows
        raise InputError("description", f"{size} bytes long", f"at most {_MOST_BYTES}")
    if spec.batch < 1:
        raise InputError("batch", spec.batch, "at least 1")
    if spec.window_ms > 1000 * LONGEST_WINDOW_S:
        raise InputError("window_ms", spec.window_ms, "at most a week")


def check_threat(threat: Threat) -> None:
    """Refuse fractions of corrupt or lost nodes outside [0, 1)."""
    for field, message in (("corrupt", threat.corrupt), ("dropout", threat.dropout)):
        # An absent message means none; a present one must be a fraction.
        if threat.HasField(field):
            fraction = from_rational(f"threat.{field}", message)
            if fraction >= 1:
                raise InputError(f"threat.{field}", fraction, "below 1")
