"""Nobody is charged, or shown an arm, for a contribution that cannot be sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.node.test_node import cohort, play, site
from wallflower.protocol.wire.node_pb2 import Task

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
