"""Remember by identity: the same object, not one that is equal.

Exact numbers are slow to hash, and what a cohort is calibrated to is full of them.
Whoever asks about the very object that was asked about before need not hash it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class Same(Generic[Value]):
    """A key that stands for one object and keeps it alive.

    Examples
    --------
    >>> one, equal = [1], [1]
    >>> Same(one) == Same(one), Same(one) == Same(equal)
    (True, False)
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value
