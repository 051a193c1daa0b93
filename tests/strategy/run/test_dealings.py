"""A run of sealed sums has one key, a new one when members vanish, none afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support.orchestration import Altered, World, config, world
from wallflower.clients.node.node import Node
from wallflower.engines.population import Enrolment
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.session import SENT, Finding
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.protocol.wire.node_pb2 import NodeAnswer
from wallflower.results.result import read_result
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import DealingRecord
from wallflower.strategy.store.journal import Journal


def sealed(inputs: str = "trusted", **sections: object) -> ExperimentConfig:
    return config(
        secure_sum=SecureSumSettings(backend="sealed", inputs=inputs), **sections
    )


def dealings(there: World) -> list[DealingRecord]:
    with Journal.read(there.run_dir) as journal:
        return journal.dealings()


def key_share_stores(there: World) -> dict[str, Any]:
    return {name: _keyring(node).key_shares for name, node in there.nodes.items()}


def _keyring(node: Node) -> Any:
    opener = node._parts.open_session.__self__  # type: ignore[attr-defined]
    return opener._keyring("test-run")


async def test_one_key_serves_all_cohorts_and_the_record_holds(tmp_path: Path) -> None:
    async with world(tmp_path, sealed()) as there:
        await there.run()
        ended = [e for e in there.heard if isinstance(e, events.CohortEnded)]
        assert len(ended) >= 2
        assert not [e for e in ended if e.void]
        (dealing,) = dealings(there)
        assert dealing.reason == ""
        assert dealing.nodes == len(dealing.members) == 20
        assert set(dealing.dealers) <= set(dealing.members)
        with Journal.read(there.run_dir) as journal:
            assert not [check for check in verify(journal) if check.problems]


async def test_the_runs_keys_are_gone_after_it(tmp_path: Path) -> None:
    async with world(tmp_path, sealed()) as there:
        held = []

        def look(event: events.Event) -> None:
            if isinstance(event, events.CohortEnded):
                held.append(sum(len(v) for v in key_share_stores(there).values()))

        there.react = look
        await there.run()
        assert held[0] == 20
        assert all(not key_shares for key_shares in key_share_stores(there).values())
        assert not any(_keyring(node).opening_keys for node in there.nodes.values())


async def test_a_key_whose_members_left_is_replaced_before_anybody_is_asked(
    tmp_path: Path,
) -> None:
    close = RewardSettings(means=(0.5, 0.5))  # so that there is a second round
    async with world(tmp_path, sealed(rewards=close)) as there:
        left: list[str] = []

        def leave(event: events.Event) -> None:
            # 3 of 20 open a sum; with 3 left a tenth may not vanish any more. The 3 are
            # asked last: were they asked first, nobody would notice who left.
            if isinstance(event, events.CohortAsked) and not left:
                left.extend(dealings(there)[0].members[:-3])
                for name in left:
                    _keyring(there.nodes[name]).key_shares.clear()

        there.react = leave
        await there.run()
        dealt = [e for e in there.heard if isinstance(e, events.KeyGenerated)]
        assert len(dealt) == 2
        assert not [d for d in dealings(there) if d.reason]
        ended = [e for e in there.heard if isinstance(e, events.CohortEnded)]
        assert len(ended) >= 4
        assert not [e for e in ended if e.void]


async def test_a_key_is_dealt_anew_when_more_nodes_are_there_than_it_was_made_for(
    tmp_path: Path,
) -> None:
    """Against a lying server nobody seals under a key of too few nodes."""
    lying = config(
        secure_sum=SecureSumSettings(backend="sealed", server="malicious"),
        rewards=RewardSettings(means=(0.5, 0.5)),  # so that there is a second round
    )
    async with world(tmp_path, lying, Enrolment(lying)) as there:
        for name in list(there.nodes)[10:]:
            del there.handlers[name]

        def arrive(event: events.Event) -> None:
            if isinstance(event, events.CohortAsked):
                there.handlers.update(there.nodes)

        there.react = arrive
        await there.run()
        assert [one.nodes for one in dealings(there)] == [10, 20]
        ended = [e for e in there.heard if isinstance(e, events.CohortEnded)]
        assert len(ended) >= 4
        assert not [e for e in ended if e.void]


async def test_without_a_key_nobody_is_asked_and_the_run_says_why(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, sealed()) as there:
        for name in list(there.nodes)[:19]:
            there.handlers[name] = Altered(there.nodes[name], _without("enlist"))
        with pytest.raises(UnavailableError, match="could not make a key"):
            await there.run()
        assert there.invited() == {}
        assert {d.reason for d in dealings(there)} == {"too-few-members"}


async def test_a_rogue_dealer_is_named_in_journal_and_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, polynomials = feldman.evaluate, list[Sequence[int]]()

    def crooked(f: Sequence[int], x: int) -> int:
        """The first to deal gives every member a share that is off by one."""
        polynomials.append(f)
        return honest(f, x) + (f is polynomials[0])

    monkeypatch.setattr(feldman, "evaluate", crooked)
    async with world(tmp_path, sealed()) as there:
        await there.run()
        spoilt, second = dealings(there)  # with one dealer less it is dealt anew
        assert spoilt.reason == "too-few-dealers"
        (rogue,) = {f.party for f in spoilt.findings if f.word == "wrong-share"}
        assert Finding(rogue, SENT, "wrong-share") in spoilt.findings
        assert second.reason == ""
        with Journal.read(there.run_dir) as journal:
            result = read_result(journal)
            assert not [check for check in verify(journal) if check.problems]
        assert (spoilt.dealing_id, spoilt.reason, spoilt.findings) in result.blame


async def test_who_proves_nothing_is_named_and_the_cohort_goes_on(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, sealed("proved")) as there:
        liar = next(iter(there.nodes))

        def spoil(body: bytes) -> bytes:
            answer = NodeAnswer.FromString(body)
            for task in answer.answers:
                if task.task_id.endswith("/seal"):
                    envelope = unwrap(task.message)
                    said = wire.SealAnswer.FromString(envelope.payload)
                    said.range = said.range[:-1] + bytes([said.range[-1] ^ 1])
                    task.message = wrap(
                        envelope.stage,
                        envelope.context,
                        liar,
                        "",
                        said.SerializeToString(),
                    )
            return answer.SerializeToString()

        there.handlers[liar] = Altered(there.nodes[liar], spoil)
        await there.run()
        with Journal.read(there.run_dir) as journal:
            found = journal.blame()
            summed = [c for c in journal.cohorts() if c.result is not None]
            result = read_result(journal)
        assert summed
        for cohort in summed:
            assert found[cohort.cohort_id] == [Finding(liar, SENT, "not-proved")]
            assert cohort.result is not None
            assert liar not in cohort.result.nodes
            assert cohort.losses["not-proved"] > 0
        assert result.spent.truncation_delta == Fraction(1, 2**40)
        assert "δ = 2⁻⁴⁰" in result.sentence()


def _without(stage: str) -> Any:
    def change(body: bytes) -> bytes:
        answer = NodeAnswer.FromString(body)
        for task in answer.answers:
            if task.task_id.endswith(f"/{stage}"):
                task.message = b"garbage"
        return answer.SerializeToString()

    return change
