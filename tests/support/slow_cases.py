"""Mark some cases of a parametrized test as slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_cases(*values: Any) -> list[Any]:
    """Return cases that only `make test-all` runs."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def slow_except(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the values as cases, all of them slow except the quick ones."""
    return [case for v in values for case in ([v] if v in quick else slow_cases(v))]
