"""A piece is shown to be one of many by a few digests."""

from __future__ import annotations

import pytest

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.secure_sum.sealed import tree


def pieces(count: int) -> list[bytes]:
    return [bytes([index]) * 32 for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 136])
def test_every_piece_leads_to_the_root_at_its_own_place_alone(count: int) -> None:
    listed = pieces(count)
    root, ways = tree.root(listed), tree.paths(listed)
    for index, (piece, way) in enumerate(zip(listed, ways, strict=True)):
        assert tree.climb(piece, index, count, way) == root
        assert tree.climb(b"other", index, count, way) != root
        neighbour = listed[index - 1]
        if count > 1:
            assert tree.climb(neighbour, index, count, way) != root


def test_another_order_number_or_content_has_another_root() -> None:
    listed = pieces(5)
    roots = {
        tree.root(listed),
        tree.root(listed[::-1]),
        tree.root(listed[:-1]),
        tree.root([*listed, listed[-1]]),
        tree.root([*listed[:-1], b"x"]),
    }
    assert len(roots) == 5


def test_an_inner_node_is_no_piece() -> None:
    """Else a server could show a digest it computed as somebody's share."""
    one, two, three, four = pieces(4)
    left = tree.paths([one, two, three, four])[2][32:]
    right = tree.paths([one, two, three, four])[0][32:]
    assert tree.root([left, right]) != tree.root([one, two, three, four])


def test_a_way_of_another_length_is_refused() -> None:
    listed = pieces(5)
    way = tree.paths(listed)[1]
    for wrong in (way[:-1], way + b"x", b""):
        with pytest.raises(MalformedMessageError, match="path"):
            tree.climb(listed[1], 1, 5, wrong)
