"""Nobody is charged, or shown an arm, for a contribution that cannot be sent."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.clients.node.test_node import carry_out, cohort, play, site
from tests.support.shuffled_sums import FINGERPRINT, KEY, TOKEN
from wallflower.clients.node import upload
from wallflower.protocol.secure_sum.session import Void
from wallflower.protocol.wire.node_pb2 import Task
from wallflower.strategy.secure_sum import server_session
from wallflower.strategy.secure_sum.keyring import Deposits, ServerKeyring

USERS = ("u0", "u1", "u2")


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
async def test_more_users_than_the_roster_says_are_refused_before_they_are_charged(
    backend: str, tmp_path: Path
) -> None:
    added: list[str] = []

    def change(stage: str, task: Task) -> None:
        """Name one user more than the roster of the same cohort says, to one node."""
        if not added and stage in ("seal", "share"):
            task.stage.users.append("u7")
            added.append(task.task_id)

    async with site(tmp_path) as there:
        _, refused = await play(there, cohort(USERS, backend=backend), change)
        assert added
        ((node, code),) = refused.items()
        assert code == "too-many-users"
        assert node not in {pull.node_id for pull in there.source.pulled}
        for user in (*USERS, "u7"):
            assert await there.spent(node, user) == 0


async def test_a_shuffler_that_cannot_be_reached_is_noticed_before_people_are_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "_REACH_S", 0.2)
    monkeypatch.setattr(upload, "_PAUSES_S", ())  # who charges first fails soon
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    traffic = cohort(USERS, backend="shuffle", shuffle="mixed")
    keyring = ServerKeyring(traffic.spec.run_id)
    keyring.shuffler = KEY.public
    keyring.deposits = Deposits(address, b"", TOKEN)
    parties = {node: len(users) for node, users in traffic.users.items()}
    async with site(tmp_path, shufflers=(f"{FINGERPRINT}@{address}",)) as there:
        session = server_session(traffic.spec, parties, keyring=keyring)
        end, refused = await carry_out(there, session, traffic)
        assert isinstance(end, Void)
        assert refused == dict.fromkeys(parties, "shuffler-unreachable")
        assert there.source.pulled == []
        for node in parties:
            assert [await there.spent(node, user) for user in USERS] == [0, 0, 0]
        # Nobody was looked at: they may be asked again when it is back.
        assert traffic.returned == dict.fromkeys(parties, "shuffler-unreachable")
