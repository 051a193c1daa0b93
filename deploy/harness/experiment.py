"""One experiment on a consortium: files, command line, events, verdict.

The operator's commands run as a user would type them (``wallflower run``, ``resume``,
``verify``), on the operator's host.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.harness.consortium import Consortium
from deploy.harness.flower import environment
from deploy.harness.processes import Process, until
from deploy.harness.rewards import GATE, MEANS
from wallflower.protocol.errors import UnavailableError

ARMS = ("control", "question", "number")
TRUE_MEANS = (0.45, 0.5, 0.8)
BEST = "number"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the laboratory's experiment asks for."""

    users: int = 1500  # on every node
    corrupt: str = "0.1"
    dropout: str = "0.3"
    stage_timeout_s: float = 15.0
    join_timeout_s: float = 45.0
    arms: Sequence[str] = ARMS
    means: Sequence[float] = TRUE_MEANS
    backend: str = "sealed"
    server: str = "malicious"  # what the sums withstand, and the nodes insist on
    mechanism: str = "dist-dp"
    first_batch: int = 60
    secure_sum: str = ""  # more lines of that section
    policy: str = ""  # more lines of the nodes' policy

    @property
    def truth(self) -> dict[str, float]:
        """The mean of each arm."""
        return dict(zip(self.arms, self.means, strict=True))


def write_node(built: Consortium, name: str, plan: Plan) -> None:
    """Fill a node's home: who lives there, on which terms, where rewards come from."""
    keys = built.store.nodes / name
    # Names of their own: rewards follow from the name and must differ between nodes.
    users = json.dumps([f"{name}-{number}" for number in range(plan.users)])
    (built.home_of(name) / "node.toml").write_text(
        f'[node]\nusers = {users}\nkeys = "{keys}"\n\n'
        # The laboratory runs many experiments on the same users.
        "[policy]\nlargest-epsilon = 1\nlargest-total-epsilon = 1000\n"
        "smallest-cohort = 20\nsmallest-floor-fraction = 0.2\n"
        f'mechanisms = ["{plan.mechanism}"]\n{plan.policy}'
        f"malicious-server = {str(plan.server == 'malicious').lower()}\n\n"
        '[rewards]\nsource = "callable"\n'
        'function = "deploy.harness.rewards:reward"\n'
    )


def write_experiment(
    built: Consortium, plan: Plan, nodes: int, name: str = "experiment"
) -> Path:
    """Write the operator's TOML file."""
    keys = built.store.operator
    arms = ", ".join(f'"{arm}"' for arm in plan.arms)
    path = built.folder / f"{name}.toml"
    path.write_text(
        f'[experiment]\nname = "laboratory"\narms = [{arms}]\n\n'
        f'[privacy]\nmechanism = "{plan.mechanism}"\nepsilon = 1\n\n'
        f'[policy]\nname = "elimination"\nfirst-batch = {plan.first_batch}\n\n'
        f'[secure-sum]\nbackend = "{plan.backend}"\ncorrupt = {plan.corrupt}\n'
        f'server = "{plan.server}"\n{plan.secure_sum}'
        f'dropout = {plan.dropout}\nenrolment = "{keys / "enrolment.pub"}"\n\n'
        f'[transport]\nkind = "grpc"\nhost = "{built.grpc_host}"\n'
        f"port = {built.grpc_port}\n"
        f'certificate = "{keys / "server.crt"}"\n'
        f'private-key = "{keys / "server.key"}"\n'
        f"stage-timeout-s = {plan.stage_timeout_s}\n"
        f"join-timeout-s = {plan.join_timeout_s}\n\n"
        f"[nodes]\ncount = {nodes}\nusers = {plan.users}\n"
    )
    return path


def node_environment(built: Consortium, name: str, plan: Plan) -> dict[str, str]:
    """Return what a node's reward source reads."""
    return {
        GATE: str(gate_of(built, name)),
        MEANS: json.dumps(plan.truth),
        "WALLFLOWER_LOGS": "json",
    }


def gate_of(built: Consortium, name: str) -> Path:
    """Name the file whose presence keeps a node's rewards back."""
    return built.home_of(name) / "gate"


def operator_environment(built: Consortium) -> dict[str, str]:
    """Return the environment of the operator's own commands."""
    return environment(built.operator.home, {"WALLFLOWER_LOGS": "json"})


@dataclass(slots=True)
class LabRun:
    """A run under way or over: its process, its directory, its events."""

    built: Consortium
    run_dir: Path
    process: Process
    offset: int = 0
    seen: list[dict[str, Any]] = field(default_factory=list)

    def events(self) -> list[dict[str, Any]]:
        """Return all events so far."""
        path = self.run_dir / "events.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self.offset)
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self.offset += len(whole)
            self.seen += [json.loads(line) for line in whole.splitlines()]
        return self.seen

    def until_event(self, kind: str, timeout_s: float = 240, **fields: Any) -> None:
        """Wait for an event that has these fields; a run must not end before it."""

        def here() -> bool:
            return any(
                event["event"] == kind
                and all(event.get(key) == value for key, value in fields.items())
                for event in self.events()
            )

        def over() -> bool:
            return self.process.exit_code is not None

        until(f"event {kind} {fields}", lambda: here() or over(), timeout_s)
        if not here():
            raise UnavailableError(f"the run ended before its {kind} {fields}")

    def finish(self, timeout_s: float = 180) -> int:
        """Wait for the command's end."""
        return self.process.wait(timeout_s)


def wallflower(built: Consortium, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a short `wallflower` command on the operator's host."""
    return subprocess.run(
        built.operator.host.command([sys.executable, "-m", "wallflower", *arguments]),
        capture_output=True,
        text=True,
        env=operator_environment(built),
        check=False,
        timeout=120,
    )


def start_run(built: Consortium, experiment: Path, name: str) -> LabRun:
    """Start ``wallflower run --engine deployment``."""
    run_dir = built.folder / "runs" / name
    return _start(
        built,
        run_dir,
        ["run", str(experiment), "--engine", "deployment", "--run-dir", str(run_dir)],
    )


def start_resume(built: Consortium, run_dir: Path) -> LabRun:
    """Start ``wallflower resume``."""
    return _start(built, run_dir, ["resume", str(run_dir)])


def _start(built: Consortium, run_dir: Path, arguments: list[str]) -> LabRun:
    process = built.supervisor.start(
        f"run-{run_dir.name}",
        built.operator.host,
        [sys.executable, "-m", "wallflower", *arguments, "--format", "json"],
        environment=operator_environment(built),
        folder=built.folder,
    )
    events = run_dir / "events.jsonl"
    offset = events.stat().st_size if events.exists() else 0
    return LabRun(built, run_dir, process, offset)
