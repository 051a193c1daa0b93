"""How values become the texts of the journal's tables.

A policy's state is written by difference: a round writes what it changed. A change has
the keys whose values are new. Where both values are mappings, it has the change of the
one to the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from wallflower.protocol.secure_sum.session import Finding
from wallflower.strategy.bandit.policy import ArmView, EliminationReason
from wallflower.strategy.store.entries import DealingRecord, SumRecord

# A round's state is whole, or what changed since the round before.
_WHOLE, _CHANGED = "whole", "changed"
_Json: TypeAlias = Mapping[str, Any]


def state_text(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Write a policy's state by what changed since the round before."""
    changes = None if before is None else find_changes(before, after)
    row = {_WHOLE: after} if changes is None else {_CHANGED: changes}
    return json.dumps(row, separators=(",", ":"))


def state_from(before: Mapping[str, Any] | None, text: str) -> dict[str, Any]:
    """Read back what `state_text` wrote; `before` is the state of the round before."""
    row = json.loads(text)
    value = row[_WHOLE] if _WHOLE in row else row[_CHANGED]
    if not isinstance(value, dict) or (before is None and _WHOLE not in row):
        raise ValueError("a state that is no state, or changes of none")
    return value if before is None or _WHOLE in row else apply_changes(before, value)


def views_from(text: str) -> tuple[ArmView, ...]:
    """Read the arms as they stood after a round."""
    views = []
    for fields in json.loads(text):
        reason = fields.pop("reason")
        found = None if reason is None else EliminationReason(**reason)
        views.append(ArmView(**fields, reason=found))
    return tuple(views)


def sum_text(result: SumRecord) -> str:
    """Write a sum as JSON."""
    return json.dumps(
        {
            # Text: JSON readers elsewhere take large integers for doubles.
            "released": None if result.released is None else str(result.released),
            "modulus": str(result.modulus),
            "total": str(result.total),
            "precision": result.precision,
            "survivors": result.survivors,
            "nodes": result.nodes,
        }
    )


def sum_from(
    cohort_id: str, losses: Mapping[str, int], text: str | None
) -> SumRecord | None:
    """Read back what `sum_text` wrote; a cohort without a sum has None."""
    if text is None:
        return None
    value = json.loads(text)
    return SumRecord(
        cohort_id=cohort_id,
        released=None if value["released"] is None else int(value["released"]),
        modulus=int(value["modulus"]),
        total=int(value["total"]),
        precision=value["precision"],
        survivors=value["survivors"],
        nodes=tuple(value["nodes"]),
        losses=losses,
    )


def dealing_row(record: DealingRecord) -> tuple[str | int, ...]:
    """Write a dealing as its row."""
    findings = [(one.party, one.kind, one.word) for one in record.findings]
    return (
        record.dealing_id,
        record.nodes,
        record.reason,
        json.dumps(record.dealers),
        json.dumps(record.members),
        json.dumps(findings),
    )


def dealing_from(row: Sequence[Any]) -> DealingRecord:
    """Read back what `dealing_row` wrote."""
    dealing_id, nodes, reason, dealers, members, findings = row
    return DealingRecord(
        dealing_id=dealing_id,
        nodes=nodes,
        reason=reason,
        dealers=tuple(json.loads(dealers)),
        members=tuple(json.loads(members)),
        findings=tuple(Finding(*one) for one in json.loads(findings)),
    )


def find_changes(before: _Json, after: _Json) -> dict[str, Any] | None:
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


def apply_changes(before: _Json, changes: _Json) -> dict[str, Any]:
    """Return the mapping that `find_changes` was given as the later one.

    What did not change is shared with `before`, which stays as it is.
    """
    after = dict(before)
    for key, value in changes.items():
        old = after.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        after[key] = apply_changes(old, value) if both and old is not None else value
    return after
