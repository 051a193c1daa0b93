"""When a person's outcome is taken, and what counts where none is known.

Everybody who is shown an arm is in the sum. Their outcome is what is known at the end
of a window that is fixed beforehand. Where nothing is known by then, a stated value
counts. So neither the time of an answer nor the number of people in it tells anything
about an outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wallflower.protocol.errors import InputError

LONGEST_WINDOW_S = 7 * 86_400.0
IMMEDIATE_S = 60.0  # how long a source without a window may take


@dataclass(frozen=True, slots=True)
class OutcomeWindow:
    """How long outcomes are waited for, and what counts instead of a missing one.

    Attributes
    ----------
    seconds : float, optional
        An answer leaves at the end of them, never earlier. Without it the source is
        immediate: an answer leaves as soon as all outcomes are known, and after
        `IMMEDIATE_S` at the latest. Its speed must not depend on the outcomes.
    if_unknown : float
        A number in [0, 1]: the place of the stated value in the range.

    Examples
    --------
    >>> OutcomeWindow().limit_s, OutcomeWindow(3600).limit_s
    (60.0, 3600)
    >>> OutcomeWindow(3600).allows(60_000), OutcomeWindow(60).allows(3_600_000)
    (False, True)
    """

    seconds: float | None = None
    if_unknown: float = 0.0

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds <= LONGEST_WINDOW_S:
            raise InputError("window-s", self.seconds, "more than 0, at most a week")
        if not 0 <= self.if_unknown <= 1:
            raise InputError("if-unknown", self.if_unknown, "within the range")

    @property
    def limit_s(self) -> float:
        """After how long nothing more is waited for."""
        return IMMEDIATE_S if self.seconds is None else self.seconds

    @property
    def stated_ms(self) -> int:
        """What a cohort's description says; 0 without a window."""
        return 0 if self.seconds is None else math.ceil(self.seconds * 1000)

    def allows(self, stated_ms: int) -> bool:
        """Return whether a cohort with this window leaves enough time."""
        return stated_ms >= self.stated_ms


NO_WINDOW = OutcomeWindow()
