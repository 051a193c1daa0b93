from __future__ import annotations

from collections import Counter

import pytest

from wallflower.protocol.wire.node_pb2 import LostUsers
from wallflower.strategy.store.losses import Reported, count_losses

ASKED = {"n1": ("a", "b", "c"), "n2": ("d", "e"), "n3": ("f",)}
ALL = tuple(ASKED)


def said(*counts: tuple[str, int]) -> list[LostUsers]:
    return [LostUsers(reason=r, users=n) for r, n in counts]


def test_everybody_in_the_sum_is_no_loss() -> None:
    assert count_losses(ASKED, ALL, 6, {}, Reported()) == {}


def test_a_node_that_is_out_loses_all_its_users_for_its_reason() -> None:
    out = {"n2": "node-gone"}
    assert count_losses(ASKED, ("n1", "n3"), 4, out, Reported()) == {"node-gone": 2}


def test_a_silent_node_gave_no_answer_whatever_the_end() -> None:
    quiet = Reported(silent={"n3"})
    assert count_losses(ASKED, ("n1", "n2"), 5, {}, quiet) == {"no-answer": 1}
    assert count_losses(ASKED, None, 0, {}, quiet) == {"no-answer": 1, "cohort-void": 5}


def test_what_nodes_say_comes_before_what_became_of_the_cohort() -> None:
    reported = Reported()
    reported.hear("n1", said(("budget-exceeded", 2)), 3)
    assert count_losses(ASKED, None, 0, {"n2": "node-gone"}, reported) == {
        "budget-exceeded": 2,
        "node-gone": 2,
        "cohort-void": 2,
    }


def test_a_node_cannot_lose_more_users_than_it_was_asked_for() -> None:
    reported = Reported()
    reported.hear("n3", said(("budget-exceeded", 4_000_000_000)), 1)
    assert reported.by_node == {"n3": Counter({"budget-exceeded": 1})}


@pytest.mark.parametrize("reason", ["<script>", "reward-late", "reward-source-failed"])
def test_a_reason_that_may_follow_from_an_outcome_is_not_kept(reason: str) -> None:
    reported = Reported()
    reported.hear("n1", said((reason, 2), ("budget-exceeded", 1)), 3)
    assert reported.by_node == {"n1": Counter({"unstated": 2, "budget-exceeded": 1})}


def test_the_counts_add_up_whatever_a_node_claims() -> None:
    lying = Reported()
    lying.hear("n1", said(("budget-exceeded", 3)), 3)
    assert count_losses(ASKED, ALL, 6, {}, lying) == {}
    assert count_losses(ASKED, ALL, 4, {}, Reported()) == {"unstated": 2}
