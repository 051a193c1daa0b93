"""Exact numbers from what people type.

Privacy parameters are rationals: ``0.1`` in a config file means 1/10, not the double
nearest to it, because a float must never decide what noise a user adds.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from wallflower.protocol.errors import InputError

# Bounds that keep exact arithmetic affordable; far outside anything meaningful.
_LARGEST_TERM = 10**12
_MOST_DIGITS = 400  # before or behind the point; 1e99999999 would fill the memory
_NO_NUMBER = (ValueError, ZeroDivisionError, InvalidOperation, OverflowError)


def exact(parameter: str, value: object) -> Fraction:
    """Read a rational exactly from an int, Fraction, Decimal, float or text.

    A float is read as its shortest decimal form, which is what its author typed.

    Examples
    --------
    >>> exact("epsilon", 0.1), exact("epsilon", "1/3"), exact("epsilon", "2.5e-1")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 4))
    """
    allowed = "a finite decimal or fraction such as 0.5 or 1/3"
    if isinstance(value, bool):
        raise InputError(parameter, value, allowed)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(parameter, value, allowed)
        value = repr(value)
    if not isinstance(value, int | str | Decimal | Fraction):
        raise InputError(parameter, value, allowed)
    try:
        number = _fraction(value)
    except _NO_NUMBER:
        raise InputError(parameter, value, allowed) from None
    if max(abs(number.numerator), number.denominator) > _LARGEST_TERM:
        raise InputError(
            parameter, value, f"numerator and denominator at most {_LARGEST_TERM:.0e}"
        )
    return number


def _fraction(value: int | float | str | Decimal | Fraction) -> Fraction:
    """Convert exactly; raise ValueError before a huge exponent is written out."""
    if isinstance(value, str) and "/" not in value:
        value = Decimal(value)
    if isinstance(value, Decimal) and abs(value.adjusted()) > _MOST_DIGITS:
        raise ValueError
    return Fraction(value)


def positive(parameter: str, value: object) -> Fraction:
    """Read a rational that must be greater than zero."""
    number = exact(parameter, value)
    if number <= 0:
        raise InputError(parameter, value, "greater than 0")
    return number


def probability(parameter: str, value: object) -> Fraction:
    """Read a rational strictly between zero and one."""
    number = exact(parameter, value)
    if not 0 < number < 1:
        raise InputError(parameter, value, "strictly between 0 and 1")
    return number


def whole(
    parameter: str, value: object, *, at_least: int, at_most: int | None = None
) -> int:
    """Read an integer within bounds (``1e6`` and ``"1_000"`` are integers too)."""
    allowed = f"a whole number of at least {at_least}" + (
        "" if at_most is None else f" and at most {at_most}"
    )
    if isinstance(value, bool) or not isinstance(
        value, int | float | str | Decimal | Fraction
    ):
        raise InputError(parameter, value, allowed)
    try:
        number = _fraction(value)
    except _NO_NUMBER:
        raise InputError(parameter, value, allowed) from None
    if number.denominator != 1 or number < at_least:
        raise InputError(parameter, value, allowed)
    if at_most is not None and number > at_most:
        raise InputError(parameter, value, allowed)
    return int(number)


def round_up(value: float | Fraction, digits: int = 4) -> str:
    """Write a privacy loss with `digits` decimals, never smaller than it is.

    Examples
    --------
    >>> round_up(0.10001, 3), round_up(0.5, 3), round_up(Fraction(1, 3), 2)
    ('0.101', '0.5', '0.34')
    """
    if isinstance(value, Fraction):
        units = math.ceil(value * 10**digits)
        return format(Decimal(units).scaleb(-digits).normalize(), "f")
    if math.isinf(value):
        return "∞"
    step = Decimal(1).scaleb(-digits)
    exact_value = Decimal(value)
    # A double that prints as 0.1 is meant as 0.1 although it lies above it by 5e-18.
    short = Decimal(repr(value))
    rounded = short.quantize(step, rounding="ROUND_CEILING")
    if rounded < exact_value and short != rounded:
        rounded += step
    return format(rounded.normalize(), "f")


def round_up_digits(value: float, digits: int) -> float:
    """Return the least decimal number of so many digits that is not below `value`.

    Examples
    --------
    >>> round_up_digits(0.0421, 2), round_up_digits(3.7e-6, 2)
    (0.043, 3.7e-06)
    """
    short = Decimal(repr(float(value)))  # 0.1 is meant as 0.1, as in `round_up`
    step = Decimal(1).scaleb(short.adjusted() + 1 - digits)
    return float(short.quantize(step, rounding="ROUND_CEILING"))


def signed_percent(part: float, digits: int = 3) -> str:
    """Write a relative difference in percent, to so many digits or to whole percent.

    Examples
    --------
    >>> signed_percent(0.4321, 2), signed_percent(-0.05), signed_percent(14.503)
    ('+43 %', '−5 %', '+1,450 %')
    """
    percents = 100 * part
    whole = abs(percents) >= 10**digits
    text = f"{percents:+,.0f}" if whole else f"{percents:+.{digits}g}"
    return f"{text} %".replace("-", "−")


def counted(number: int, thing: str) -> str:
    """Count things, one of them in the singular.

    Examples
    --------
    >>> counted(1, "arm"), counted(2000, "arm"), counted(3, "batch")
    ('1 arm', '2,000 arms', '3 batches')
    >>> counted(0, "entry"), counted(397, "day")
    ('0 entries', '397 days')
    """
    if number == 1:
        return f"1 {thing}"
    if thing[-1] == "h":
        many = f"{thing}es"
    elif thing[-1] == "y" and thing[-2] not in "aeiou":
        many = f"{thing[:-1]}ies"
    else:
        many = f"{thing}s"
    return f"{number:,} {many}"
