"""What is told to nodes at the end of cohorts, and of a run."""

from __future__ import annotations

from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.strategy.run.requests import Closings, offer_requests


def told(closings: Closings, *, shares_only: bool) -> dict[str, list[str]]:
    return {
        request.node_id: [
            task.close.cohort_id for task in NodeRequest.FromString(request.body).tasks
        ]
        for request in closings.requests("run", shares_only=shares_only)
    }


def test_at_the_end_every_node_is_told_all_that_is_due() -> None:
    closings = Closings()
    closings.add("cohort", {"a": 1, "b": 1})
    closings.add_dealing("dealing", ["b", "c"])
    assert told(closings, shares_only=False) == {
        "a": ["cohort"],
        "b": ["cohort", "dealing"],
        "c": ["dealing"],
    }
    assert told(closings, shares_only=False) == {}


def test_shares_are_erased_also_where_nothing_else_is_told() -> None:
    closings = Closings()
    closings.add("cohort", {"a": 1, "b": 1})
    closings.add_dealing("dealing", ["b", "c"])
    assert told(closings, shares_only=True) == {
        "b": ["cohort", "dealing"],
        "c": ["dealing"],
    }


def test_what_rode_along_is_not_told_again() -> None:
    closings = Closings()
    closings.add_dealing("dealing", ["a", "b"])
    assert [task.close.cohort_id for task in closings.tasks("a")] == ["dealing"]
    assert told(closings, shares_only=True) == {"b": ["dealing"]}


def test_nodes_are_offered_what_each_of_them_is_to_agree_to() -> None:
    one, two = (CohortSpec(run_id="run", cohort_id=name) for name in ("c1", "c2"))
    asked = {"a": (one,), "b": (one, two), "c": (one,)}
    offered = {
        request.node_id: [
            task.offer.spec for task in NodeRequest.FromString(request.body).tasks
        ]
        for request in offer_requests("run", ("a", "b"), asked)
    }
    assert offered == {"a": [one], "b": [one, two], "c": [one]}
