from __future__ import annotations

import dataclasses

import pytest

from deploy.harness.audit import Audit
from deploy.harness.faults import FAULTS
from deploy.harness.report import Row, table, verdict

FOUND = Audit(
    cohorts=9,
    sums=9,
    voids=0,
    sums_checked=9,
    sums_wrong=0,
    users_asked=324,
    users_twice=0,
    users_summed=324,
    nodes_by_round=(4, 3, 4),
    finished="winner",
    winner="number",
)
ROW = Row("node killed", "tally", "killed", "finished", 0, False, True, FOUND, True, 9)


def test_a_row_says_what_was_found() -> None:
    last = table([ROW]).splitlines()[-1]
    assert "| 4-3-4 | 324/324 | 0 | 9 |" in last
    assert "1 survived; wrong sums: 0 of 9" in verdict([ROW])


@pytest.mark.parametrize(
    "wrong",
    [
        {"hung": True},
        {"verified": False},
        {"shown": False},
        {"found": dataclasses.replace(FOUND, winner="control")},
        {"found": dataclasses.replace(FOUND, sums_wrong=1)},
        {"found": dataclasses.replace(FOUND, sums_checked=8)},
        {"found": dataclasses.replace(FOUND, users_twice=1)},
    ],
)
def test_a_fault_is_survived_only_if_everything_holds(wrong: dict[str, object]) -> None:
    assert ROW.good
    assert not dataclasses.replace(ROW, **wrong).good  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "shown"),
    [((4, 3, 4), True), ((3, 4), True), ((4, 4, 4), False), ((4, 3, 3), False)],
)
def test_a_node_is_back_where_a_later_batch_has_all_of_them(
    nodes: tuple[int, ...], shown: bool
) -> None:
    [fault] = [fault for fault in FAULTS if "back for" in fault.name]
    assert fault.shown(dataclasses.replace(FOUND, nodes_by_round=nodes)) is shown
