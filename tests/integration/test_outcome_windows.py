"""A lying server learns nothing about an outcome, on whatever way it asks.

Eight nodes with one person each in a cohort, once for every kind of outcome. The
server's whole view (codes, counts, lengths) must be the same for all kinds, and nothing
may leave before the end of the node's window.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.integration import window_rewards
from tests.integration.lying_operator import (
    NAMES,
    NODE_FILE,
    RUN,
    Liar,
    dealing,
    furnish,
    key_store,
    liar,
    reach,
)
from tests.support.slow_cases import slow_cases
from tests.support.virtual_time import run_virtually
from wallflower.engines import fast
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.privacy.honest_floor import cohort_floor
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Offer,
    Task,
    TaskAnswer,
)
from wallflower.strategy.bandit.policy import CohortRequest
from wallflower.strategy.config import ExperimentConfig, ExperimentSettings
from wallflower.strategy.run.cohort import describe_cohort

STAYING, PEOPLE = NAMES[:12], NAMES[12:]
WINDOW_S = 1.0
WINDOW_MS = 1000
FUNCTION = "tests.integration.window_rewards:outcome"
VICTIM_FILE = NODE_FILE.replace("users = 1", "users = 10").replace(
    "means = [0.5, 0.5]",
    f'source = "callable"\nfunction = "{FUNCTION}"\nwindow-s = {WINDOW_S}',
)
View = list[tuple[object, ...]]


def seen(answer: TaskAnswer) -> tuple[object, ...]:
    """All that a server has of an answer, but for what is encrypted in it."""
    return (
        answer.WhichOneof("kind"),
        answer.refusal.SerializeToString(),
        [(one.reason, one.users) for one in answer.lost],
        answer.ByteSize(),
    )


async def ask(server: Liar, name: str, task: Task) -> tuple[object, ...]:
    request = NodeRequest(run_id=RUN, tasks=[task])
    (answer,) = await server.reach(name, request)
    return seen(answer)


async def attack(server: Liar, again: Liar, name: str) -> View:
    """Ask one node with every lie; return what is seen of it."""
    message = server.session.start().messages[name]  # type: ignore[union-attr]
    hurried = type(server.spec).FromString(server.spec.SerializeToString())
    hurried.window_ms = WINDOW_MS - 1
    user = [server.user]
    view = [
        await ask(server, name, Task(task_id="t", offer=Offer(spec=hurried))),
        await ask(
            server,
            name,
            Task(
                task_id="t",
                stage=CohortStage(spec=hurried, users=user, message=message),
            ),
        ),
    ]
    assert window_rewards.shown.count(server.user) < len(PEOPLE)
    stage = Task(
        task_id="t", stage=CohortStage(spec=server.spec, users=user, message=message)
    )
    before = time.monotonic()
    view.append(await ask(server, name, stage))
    assert time.monotonic() - before >= WINDOW_S - 0.01  # of the clock's steps
    view.append(await ask(server, name, stage))
    other = again.session.start().messages[name]  # type: ignore[union-attr]
    twice = CohortStage(spec=again.spec, users=user, message=other)
    view.append(await ask(again, name, Task(task_id="t", stage=twice)))
    return view


@pytest.mark.parametrize(
    "transport", ["memory", *slow_cases("server", "polling", "flower")]
)
async def test_a_lying_server_sees_the_same_whatever_the_outcome(
    transport: str, tmp_path: Path
) -> None:
    store = key_store(tmp_path / "keys", capacity=10)
    homes = furnish(store, tmp_path / "homes", STAYING)
    homes |= furnish(store, tmp_path / "homes", PEOPLE, VICTIM_FILE)
    trust = homes[NAMES[0]].trust()
    assert trust is not None
    polling = PEOPLE if transport == "polling" else ()
    way = "server" if transport == "polling" else transport
    window_rewards.shown.clear()
    async with reach(way, homes, store, polling) as reached:
        dealt = dealing(trust, reached, STAYING)
        await dealt.to_the_end()

        async def try_kind(number: int) -> dict[str, View]:
            server, again = (
                liar(
                    "sealed",
                    trust,
                    reached,
                    keyring=dealt.keyring,
                    window_ms=WINDOW_MS,
                    user=f"u{number}",
                )
                for _ in range(2)
            )
            found = await asyncio.gather(
                *(attack(server, again, name) for name in PEOPLE)
            )
            return dict(zip(PEOPLE, found, strict=True))

        if transport == "flower":  # a node takes one message at a time
            kinds = [0, 2, 4]
            views = [await try_kind(number) for number in kinds]
        else:
            kinds = list(range(len(window_rewards.KINDS)))
            views = await asyncio.gather(*map(try_kind, kinds))
    for name in PEOPLE:
        codes = [view[0] for view in views[0][name]]
        assert codes == ["refusal", "refusal", "message", "message", "refusal"]
        assert b"window-too-short" in views[0][name][0][1]  # type: ignore[operator]
        assert b"user-repeated" in views[0][name][4][1]  # type: ignore[operator]
        for view in views[1:]:
            assert view[name] == views[0][name]
    # Each person was shown the arm once, whatever was asked of them.
    for number in kinds:
        assert window_rewards.shown.count(f"u{number}") == len(PEOPLE)


def test_by_the_nodes_clock_an_answer_leaves_at_the_end_of_the_window() -> None:
    """In virtual time to the instant, for every kind of outcome."""
    config = ExperimentConfig(
        ExperimentSettings("test", ("a", "b")),
        nodes=NodeSettings(2, 10),
        rewards=RewardSettings(source="callable", function=FUNCTION, window_s=3600),
    )
    floor = cohort_floor([1, 1], config.secure_sum.corrupt, config.secure_sum.dropout)
    cohort_request = CohortRequest(1, 0, 2, config.experiment.failure_probability)

    async def left_at(number: int) -> tuple[float, int]:
        node = fast._nodes(config)["node-0"]
        spec = describe_cohort(config, RUN, cohort_request, floor, 1)
        stage = CohortStage(spec=spec, users=[f"u{number}"])
        request = NodeRequest(run_id=RUN, tasks=[Task(task_id="t", stage=stage)])
        body = await node.handle(request.SerializeToString())
        (answer,) = NodeAnswer.FromString(body).answers
        assert answer.WhichOneof("kind") == "message"
        return asyncio.get_running_loop().time(), len(answer.lost)

    kinds = range(len(window_rewards.KINDS))
    assert {run_virtually(left_at(number)) for number in kinds} == {(3600.0, 0)}
