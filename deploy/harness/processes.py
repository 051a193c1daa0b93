"""Processes of the laboratory: started in a group, logged to a file, always stopped.

Each process leads a group of its own, so that what it starts (a SuperNode's executor,
a ClientApp) is stopped with it, by process id and never by name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from deploy.harness.network import Host
from wallflower.protocol.errors import UnavailableError


class Process:
    """One running command and its log."""

    def __init__(
        self, name: str, popen: subprocess.Popen[bytes], log: Path, command: list[str]
    ) -> None:
        self.name = name
        self.log = log
        self.command = command
        self._popen = popen
        self._asked = False

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; UnavailableError names the log when it does not come."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                f"{self.name} still runs after {timeout_s:g} s; its log: {self.log}"
            ) from None

    def kill(self) -> None:
        """SIGKILL the whole group: the machine lost power."""
        self._signal(signal.SIGKILL)
        self._popen.wait(timeout=10)

    def stop(self, patience_s: float = 5.0) -> None:
        """Ask the group to end, then insist."""
        self.ask_to_end()
        if self._popen.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience_s)
        self._signal(signal.SIGKILL)
        self._popen.wait(timeout=10)

    def ask_to_end(self) -> None:
        """SIGTERM the group, once: some take a second one for impatience."""
        if not self._asked and self._popen.poll() is None:
            self._asked = True
            self._signal(signal.SIGTERM)

    def signal_leader(self, number: signal.Signals) -> None:
        """Signal the leading process alone."""
        os.kill(self.pid, number)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return

    def text(self) -> str:
        """What it has written so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")


class Supervisor:
    """Starts processes on hosts and stops all of them when left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, Process] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        """Nothing to do: processes come later."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything, youngest first; all of them end at the same time."""
        youngest_first = list(reversed(self.processes.values()))
        for process in youngest_first:
            process.ask_to_end()
        for process in youngest_first:
            process.stop()

    def start(
        self,
        name: str,
        host: Host,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path | None = None,
    ) -> Process:
        """Run a command on a host; a second one of the same name appends to its log."""
        command = host.command(arguments)
        log = self.folder / f"{name}.log"
        with log.open("ab") as sink:
            popen = subprocess.Popen(
                command,
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(environment),
                cwd=folder,
            )
        process = Process(name, popen, log, command)
        self.processes[name] = process
        return process


def until(
    what: str,
    condition: Callable[[], bool],
    timeout_s: float,
    pause_s: float = 0.05,
) -> float:
    """Wait for a condition; gives the seconds it took."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise UnavailableError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(pause_s)
    return time.monotonic() - started


def listening(host: Host, port: int) -> bool:
    """Return whether a TCP port answers, asked from the host itself."""
    if host.command([]) == []:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((host.address, port)) == 0
    wanted = f":{port} "
    listed = subprocess.run(
        host.command(["ss", "-Hltn"]), capture_output=True, text=True, check=False
    )
    return wanted in listed.stdout


def descendants(pid: int, word: str) -> list[psutil.Process]:
    """Return the descendants of a process whose command line has `word`."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in family if word in command_line(process)]


def command_line(process: psutil.Process) -> str:
    """Return a process's command line, or nothing when it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def end_in_order_on_sigterm() -> None:
    """Turn SIGTERM into an ordinary exit, so that every context is left properly."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


# Below those that Linux gives to whoever asks for any: nobody gets one by chance.
_PORTS = range(10_000, 30_000)


def free_port() -> int:
    """Return a loopback port that is free and is given to nobody else by the system.

    Drawn at random, so that processes which look at the same time differ.
    """
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = secrets.choice(_PORTS)
            probe.bind(("127.0.0.1", port))
            return port
