from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.secure_sum.context import draw_order
from wallflower.protocol.secure_sum.secagg_plus import ring_neighbours


@given(st.integers(2, 60), st.integers(1, 70))
def test_neighbourhood_is_mutual_and_regular(nodes: int, half: int) -> None:
    order = [f"n{index}" for index in range(nodes)]
    degree = min(2 * half, nodes - 1)
    lists = {p: ring_neighbours(order, i, degree) for i, p in enumerate(order)}
    for party, neighbours in lists.items():
        assert len(set(neighbours)) == len(neighbours) == degree
        assert party not in neighbours
        assert all(party in lists[other] for other in neighbours)


def test_the_draw_depends_on_the_cohort_and_on_nobody() -> None:
    parties = [f"n{index}" for index in range(50)]
    first = draw_order(b"1" * 32, parties)
    assert sorted(first) == sorted(parties)
    assert first == draw_order(b"1" * 32, parties[::-1])
    assert first != draw_order(b"2" * 32, parties)
