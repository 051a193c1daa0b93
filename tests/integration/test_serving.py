"""`wallflower serve` from an experiment's file to its verdict, all of it processes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from deploy.harness.processes import free_port
from tests.integration.test_trustees import NAMES, invited, make_home
from tests.support.run_fixtures import command, environment, write
from wallflower.clients.host.assemble import make_node
from wallflower.clients.host.trustee import keep_trustee
from wallflower.clients.host.visitor import Person, Shown, Visitor
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.transport.visitor_calls import poll_by_http
from wallflower.engines.population import hosted_setup
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.identity.enrolment import EnrolmentKey
from wallflower.protocol.visitors import INVITED, Invitation
from wallflower.results.result import read_result
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.journal import Journal

EXPERIMENT = """
[experiment]
name = "served"
arms = ["a", "b"]
horizon = 400
[policy]
first-batch = 30
[rewards]
means = [0.02, 0.98]
[transport]
port = PORT
[visitors]
admission = "invited"
inviter = "inviter/inviter.pub"
trustees = ["TRUSTEES"]
"""


class People:
    """People with invitations who come one after another; each has a ledger entry."""

    def __init__(self, config: ExperimentConfig, url: str, folder: Path) -> None:
        seed = (folder / "inviter" / "seed").read_bytes()
        self._inviter = EnrolmentKey.from_private_bytes(seed)
        self._config, self._poll = config, poll_by_http(url)
        self._folder, self._run_id = folder, ""
        self.shown: Counter[Shown] = Counter()
        self.began = asyncio.Event()

    async def come(self, run_id: str) -> None:
        """Come until the run is over."""
        with Ledger(self._folder / "people.sqlite") as ledger:
            async with asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(self._come(run_id, ledger))

    async def _come(self, run_id: str, ledger: Ledger) -> None:
        while True:
            invitation = Invitation.issue(self._inviter, not_after=2_000_000_000)
            identity = invitation.identity
            known = {identity.node_id: identity}
            setup = hosted_setup(self._config, ledger, known.get, None)
            name, arrival = identity.node_id, secrets.token_bytes(16)
            person = Person(run_id, INVITED, name, identity, arrival)
            node = make_node(setup, name, [name])
            shown = await Visitor(person, node, setup.policy).take_part(self._poll)
            self.shown[shown] += 1
            self.began.set()
            if shown.reason == "run-over":
                return
            await asyncio.sleep(0 if shown.measured else 0.1)


@pytest.mark.slow  # starts four processes, kills and restarts one of them
async def test_an_experiment_is_served_from_its_file_to_its_verdict(
    tmp_path: Path,
) -> None:
    inviter = EnrolmentKey.generate()
    make_inviter(tmp_path / "inviter", inviter)
    text = EXPERIMENT.replace("PORT", str(free_port()))
    path = write(tmp_path, text.replace("TRUSTEES", '", "'.join(NAMES)))
    run_dir = tmp_path / "run"
    process = await asyncio.create_subprocess_exec(
        *command("serve", path, "--run-dir", run_dir, "--port", "0"),
        cwd=tmp_path,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    url = re.search(r"http://\S+", (await process.stdout.readline()).decode())
    assert url is not None
    with Journal.read(run_dir) as journal:
        run_id, config = journal.run_id, journal.config
    homes = {name: make_home(tmp_path / name, name) for name in NAMES}

    async def hold(name: str) -> str:
        invitation = await invited(run_dir, name)
        return await keep_trustee(homes[name], invitation, patience_s=60)

    people = People(config, url[0], tmp_path)
    try:
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(hold(name)) for name in NAMES]
            coming = group.create_task(people.come(run_id))
            await people.began.wait()
            kill_orchestrator(process.pid)
            await coming
        assert {task.result() for task in held} == {"finished"}
        assert people.shown[Shown("b", "run-over")] == 8
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    with Journal.read(run_dir) as journal:
        result = read_result(journal)
        assert (result.winner, result.answered) == ("b", result.invited)
        assert [p for check in verify(journal) for p in check.problems] == []
    measured = sum(n for shown, n in people.shown.items() if shown.measured)
    assert measured == result.invited


def make_inviter(folder: Path, inviter: EnrolmentKey) -> None:
    folder.mkdir()
    (folder / "inviter.pub").write_bytes(public_key_pem(inviter.public_key))
    (folder / "seed").write_bytes(inviter.private_bytes())


def kill_orchestrator(parent: int) -> None:
    for child in psutil.Process(parent).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "wallflower.serve.orchestrator" in child.cmdline():
                child.kill()
