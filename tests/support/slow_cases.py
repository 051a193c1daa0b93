"""Mark some cases of a parametrized test as slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def slow(*values: Any) -> list[ParameterSet]:
    """Return cases that only `make test-all` runs."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def slow_but(kept: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Return the values as cases, all of them slow but those that are kept."""
    quick = list(kept)
    return [v if v in quick else pytest.param(v, marks=pytest.mark.slow) for v in values]
