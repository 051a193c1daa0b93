"""A policy's state by difference: a round writes what it changed, not all there is.

A change has the keys whose values are new. Where both values are mappings, it has the
change of one to the other, so that what was written before is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]


def find_changes(before: Json, after: Json) -> dict[str, Any] | None:
    """Return what makes `before` into `after`; None where a key is gone.

    Examples
    --------
    >>> find_changes({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "d": 3})
    {'a': {'c': 4}}
    >>> find_changes({"a": {"b": 1}}, {"a": {}}) is None
    True
    """
    if before.keys() - after.keys():
        return None
    changes: dict[str, Any] = {}
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        changes[key] = value
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            inside = find_changes(before[key], value)
            if inside is None:
                return None
            changes[key] = inside
    return changes


def apply_changes(before: Json, changes: Json) -> dict[str, Any]:
    """Return the mapping that `find_changes` was given as the later one.

    What did not change is shared with `before`, which stays as it is.
    """
    after = dict(before)
    for key, value in changes.items():
        old = after.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        after[key] = apply_changes(old, value) if both and old is not None else value
    return after
