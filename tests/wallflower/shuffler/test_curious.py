"""Honest but curious: what server and shuffler each have does not link anybody.

The link would be from a node to one of its messages. The server knows names and
encrypted batches, the shuffler their messages; neither may have both. The tests search
logs, files and all living objects; freed memory is not wiped (docs/shuffling.md).
"""

from __future__ import annotations

import gc
import itertools
import signal
from pathlib import Path

import pytest

from tests.support.shuffled_sums import (
    KEY,
    ShuffledCohort,
    finished,
    new_shuffler,
    shuffled_spec,
    started,
)
from tests.wallflower.shuffler.test_service import asked
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.secure_sum.shuffle.plan import ShufflePlan, unnamed_info
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, OpeningKey
from wallflower.protocol.wire.shuffle_pb2 import (
    ReleaseAnswer,
    ReleaseRequest,
)

NODES = 20


def mixed(**options: object) -> ShuffledCohort:
    spec = shuffled_spec(NODES, mechanism="dist-dp", floor=16)
    return ShuffledCohort(spec, **options)  # type: ignore[arg-type]


def opened(
    cohort: ShuffledCohort, request: bytes, key: OpeningKey = KEY
) -> dict[str, bytes]:
    """Return every node's messages, as the shuffler has them in its memory."""
    server_key = ReleaseRequest.FromString(request).sealing_key
    place = unnamed_info(unwrap(cohort.answers["node-00000"]).context, server_key)
    return {party: key.open(cohort.batch(party), place) for party in cohort.parties}


def living(*roots: object) -> bytes:
    """Gather all bytes and texts that these objects lead to."""
    seen: set[int] = set()
    waiting: list[object] = list(roots)
    found: list[bytes] = []
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, bytes | bytearray):
            found.append(bytes(one))
        elif isinstance(one, str):
            found.append(one.encode())
        else:
            waiting += gc.get_referents(one)
            waiting += getattr(one, "__dict__", {}).values()
    return b"\n".join(found)


def pieces(body: bytes) -> list[bytes]:
    return [body[at : at + 16] for at in range(0, len(body) - 15, 16)]


def test_what_lives_in_the_shuffler_after_a_release_is_of_nobody(
    tmp_path: Path,
) -> None:
    cohort = mixed()
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    shuffler = new_shuffler(tmp_path)
    answer = ReleaseAnswer.FromString(shuffler.release(request))
    before, after = living([answer.messages]), living(shuffler)
    for party, body in opened(cohort, request).items():
        assert pieces(body)[0] in before  # the search finds what is there
        assert party.encode() not in after
        assert not any(piece in after for piece in pieces(body))


def test_the_shuffler_is_never_told_a_name() -> None:
    cohort = mixed()
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    assert b"node-00003" in living(server)  # the search finds what is there
    assert not any(party.encode() in request for party in cohort.parties)


def test_the_order_in_which_batches_are_told_is_not_that_of_the_nodes() -> None:
    cohort = mixed()
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    release = ReleaseRequest.FromString(request)
    # Their bytes alone decide, and those are drawn by each node for itself.
    assert list(release.unnamed) == sorted(map(cohort.batch, cohort.parties))


def test_how_many_users_a_node_has_is_told_beside_its_batch_and_not_with_it() -> None:
    cohort = ShuffledCohort(shuffled_spec(5))
    cohort.parties = {"node-00000": 1, "node-00001": 3, "node-00002": 2}
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    assert list(ReleaseRequest.FromString(request).users) == [3, 2, 1]


def test_what_the_server_keeps_has_no_message(tmp_path: Path) -> None:
    cohort = mixed()
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    kept = server.snapshot() + living(server)  # what the spool has, and memory
    assert b"node-00003" in kept
    for body in opened(cohort, request).values():
        assert not any(piece in kept for piece in pieces(body))
    shuffled = new_shuffler(tmp_path).release(request)
    assert isinstance(finished(server, shuffled), SecureSum)
    left = living(server)
    assert not any(
        piece in left
        for body in opened(cohort, request).values()
        for piece in pieces(body)
    )


def test_a_shuffled_batch_is_in_no_order_of_its_nodes(tmp_path: Path) -> None:
    cohort = mixed()
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    body = new_shuffler(tmp_path).release(request)
    shuffled = ReleaseAnswer.FromString(body).messages
    plan = ShufflePlan.of(cohort.spec, NODES)
    size, owner = plan.message_bytes, {}
    for party, lying in opened(cohort, request).items():
        for start in range(0, len(lying), size):
            owner[lying[start : start + size]] = party
    order = [owner[shuffled[at : at + size]] for at in range(0, len(shuffled), size)]
    together = sum(a == b for a, b in itertools.pairwise(order))
    # About k − 1 neighbours of one node, nearly Poisson: 27 expected, 100 has a chance
    # below 10⁻²⁵; as it was collected there would be 20 times as many.
    assert together < 100 < NODES * (plan.messages - 1)


async def test_logs_and_files_of_a_shufflers_process_name_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLFLOWER_LOGS", "json")
    home = tmp_path / "home"
    with (tmp_path / "log").open("wb") as log:
        process, place = await started(home, log=log.fileno())
        try:
            cohort = mixed(place=place)
            server, request = cohort.submitted()
            assert isinstance(request, bytes)
            outcome = finished(server, (await asked(place, request)).body)
            assert isinstance(outcome, SecureSum)
        finally:
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    key = OpeningKey(HYBRID, (home / "shuffler.key").read_bytes())
    written = (tmp_path / "log").read_bytes() + b"".join(
        str(path).encode() + path.read_bytes()
        for path in home.rglob("*")
        if path.is_file()
    )
    for party, body in opened(cohort, request, key).items():
        assert party.encode() not in written
        for piece in pieces(body):
            assert piece not in written
            assert piece.hex().encode() not in written
    # Who connected is not written down either.
    assert b"ipv4" not in written
    assert b"127.0.0.1" not in (tmp_path / "log").read_bytes()
