"""Follow docs/deployment.md word by word on two hosts and write down what it printed.

Blocks fenced as ``bash HOST`` are run on that host, ``bash HOST background`` are
started there and left running, in the order of the page. ``make guide`` writes
deploy/guide-transcript.md.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.harness.flower import ROOT, environment
from deploy.harness.network import Host, LoopbackHost, Network
from deploy.harness.processes import (
    Supervisor,
    end_in_order_on_sigterm,
    listening,
    until,
)
from wallflower.protocol.errors import UnavailableError

PAGE = ROOT / "docs" / "deployment.md"
TRANSCRIPT = ROOT / "deploy" / "guide-transcript.md"
_FENCE = re.compile(
    r"^```bash (\w+)( background)?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of the page."""

    host: str
    background: bool
    script: str


@dataclass(frozen=True, slots=True)
class Done:
    """A block and what it printed."""

    block: Block
    output: str
    seconds: float


def blocks(page: str) -> list[Block]:
    """Find the blocks that name a host."""
    return [
        Block(host, bool(background), script)
        for host, background, script in _FENCE.findall(page)
    ]


def follow(page: str, folder: Path) -> Iterator[Done]:
    """Run every block in order on fresh hosts; a failing one ends it."""
    (folder / "deploy").symlink_to(ROOT / "deploy")
    home = folder / "home"
    variables = environment(
        home, {"WALLFLOWER_BIN": str(Path(sys.executable).parent), "COLUMNS": "88"}
    )
    del variables["FLWR_HOME"]
    with Network(["operator", "clinics"]) as network, Supervisor(folder) as supervisor:
        hosts: Mapping[str, Host] = {
            "authority": LoopbackHost("authority"),
            **network.hosts,
        }
        for number, block in enumerate(blocks(page)):
            started = time.monotonic()
            host = hosts[block.host]
            command = ["bash", "-euo", "pipefail", "-c", block.script]
            if block.background:
                process = supervisor.start(
                    f"{number}-{block.host}",
                    host,
                    command,
                    environment=variables,
                    folder=folder,
                )
                if block.host == "operator":
                    until("the operator", lambda h=host: listening(h, 443), 60)  # type: ignore[misc]
                    until("SuperLink", lambda h=host: listening(h, 8143), 60)  # type: ignore[misc]
                output = process.text()
            else:
                output = _run(host, command, variables, folder)
            yield Done(block, tidy(output, folder), time.monotonic() - started)


def _run(
    host: Host, command: list[str], variables: Mapping[str, str], folder: Path
) -> str:
    done = subprocess.run(
        host.command(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(variables),
        cwd=folder,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError(
            f"a block of the guide failed with {done.returncode} on {host.name}:\n"
            f"{command[-1]}\n{done.stdout[-3000:]}"
        )
    return done.stdout


def tidy(output: str, folder: Path) -> str:
    """Take away colours, cursor moves and this run's temporary folder."""
    plain = _COLOUR.sub("", output).replace(str(folder), "~")
    lines = [line.rpartition("\r")[2].rstrip() for line in plain.splitlines()]
    return "\n".join(lines).strip()


def transcript(steps: list[Done]) -> str:
    """Write what was run where, and what came back."""
    parts = [
        "# Deployment: the guide, followed",
        "",
        "Written by `make guide`, which runs every block of",
        "[deployment.md](../docs/deployment.md) in order on two hosts made of network "
        "namespaces:",
        "operator 10.77.0.1, clinics 10.77.0.2. Nothing was left out.",
    ]
    for step in steps:
        where = step.block.host + (
            ", in the background" if step.block.background else ""
        )
        shown = "\n".join(
            f"{'$' if index == 0 else '>'} {line}"
            for index, line in enumerate(step.block.script.strip().splitlines())
        )
        parts += ["", f"**{where}** ({step.seconds:.0f} s)", "", "```console", shown]
        parts += [step.output] if step.output else []
        parts += ["```"]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Follow the guide and write the transcript."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="work here and keep it")
    arguments = parser.parse_args()
    end_in_order_on_sigterm()
    steps: list[Done] = []
    with contextlib.ExitStack() as stack:
        folder = arguments.folder
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="wf-guide-")
            folder = Path(stack.enter_context(temporary))
        folder.mkdir(parents=True, exist_ok=True)
        for step in follow(PAGE.read_text(encoding="utf-8"), folder):
            sys.stdout.write(transcript([step]).partition("left out.\n")[2])
            sys.stdout.flush()
            steps.append(step)
    TRANSCRIPT.write_text(transcript(steps), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
