"""Which files one reward passes through, from its source to the released sum.

``make reward-path`` runs one small experiment by memory, through the gRPC server and
through Flower's grid (its ServerApp and ClientApp, in threads) and follows one person's
reward. A file counts when one of its functions has the *value* in its hands: as an
argument, in a local variable, or as what it returns or yields. What a function that
holds the value returns is the value too, in its next form: reward → encoded → noised →
sealed → message → sum. The object a method belongs to does not count as an argument (a
session that answered once would otherwise carry the value through everything it does
later), nor does a file that merely runs meanwhile: consent, ledger and accounting never
touch it. The trail starts when the node pulls the reward and ends when the policy gets
the sum. Records (data classes) that carry the value are counted, and shown, apart:
their files have no function of their own in the way. Generated code is not counted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict
from google.protobuf.message import Message

from wallflower.clients.client_app import _loop
from wallflower.clients.client_app import app as client_app
from wallflower.engines.in_process_grid import InProcessGrid, partitions
from wallflower.engines.local import run_local
from wallflower.engines.registry import EngineJob
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
    PrivacySettings,
)
from wallflower.strategy.private_bandit import SIMULATION
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.server_app import app as server_app
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal

TAGGED = 0.7312345678901234  # the one reward that is followed; nobody else's
_NODES, _USERS = 8, 6
_BEGINS, _ENDS = "pull_rewards", "observe"
_HASH = "digest"  # what nobody gets back is no form of it
_OURS, _GENERATED = "wallflower.", "wallflower.protocol.wire."
_PUBLIC = ("modulus", "users")  # of a sum: numbers that all know before it
_SHORTEST = 16  # bytes that cannot be in another message by chance
_SMALL = 2**8  # integers up to here are one object each, whoever has them
_DEEPEST = 5


class Trail:
    """Follows the tagged reward through every thread while it is installed."""

    def __init__(self) -> None:
        self.functions: dict[str, list[str]] = {}  # by module, in order of time
        self.records: dict[str, None] = {}
        self.ended = False
        self._begun = False
        self._forms: dict[int, object] = {}  # kept, so that no id is used again
        self._cores: list[bytes] = []
        self._hashes: set[bytes] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Trail:
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def files(self) -> list[str]:
        """The files with a function that had the value, in order of time."""
        return [_file(module) for module in self.functions]

    def _seen(self, frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or self.ended:
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_OURS) or module.startswith(_GENERATED):
            return
        with self._lock:
            self._look(frame, event, result, module)

    def _look(self, frame: FrameType, event: str, result: Any, module: str) -> None:
        code = frame.f_code
        if code.co_name == _BEGINS:
            self._begun = True
        if not self._begun:
            return
        if code.co_name == _ENDS and module.startswith(f"{_OURS}strategy.bandit"):
            self.ended = True
            return
        held = any(self._is(value) for value in _locals(frame))
        if not held and not (event == "return" and self._is(result)):
            return
        if code.co_filename.startswith("<"):  # a data class's own __init__
            self.records.setdefault(module)
            return
        self._note(module, code.co_name)
        caller = frame.f_back
        if event == "call" and caller is not None and _arguments(frame, self._is):
            self._hand_over(caller)
        if event == "return" and code.co_name == _HASH:
            self._hashes.add(result)
        elif event == "return":
            self._learn(result)

    def _hand_over(self, caller: FrameType) -> None:
        """Note who hands the value on, though no variable holds it any more."""
        module = caller.f_globals.get("__name__", "")
        if module.startswith(_OURS) and not caller.f_code.co_filename.startswith("<"):
            self._note(module, caller.f_code.co_name)

    def _note(self, module: str, name: str) -> None:
        names = self.functions.setdefault(module, [])
        if name not in names:
            names.append(name)

    def _is(self, value: Any, depth: int = 0) -> bool:
        if isinstance(value, float):
            return value == TAGGED
        if id(value) in self._forms:
            return True
        if isinstance(value, bytes | bytearray):
            return any(core in value for core in self._cores)
        if isinstance(value, np.ndarray):
            return value.dtype == np.float64 and bool((value == TAGGED).any())
        if isinstance(value, Message):
            return any(core in value.SerializeToString() for core in self._cores)
        if depth == _DEEPEST:
            return False
        return any(self._is(part, depth + 1) for part in _parts(value))

    def _learn(self, result: Any, depth: int = 0) -> None:
        """Take what a holder of the value returns for its next form."""
        if isinstance(result, bool | float | str | type(None)) or depth == _DEEPEST:
            return
        if isinstance(result, int):
            if abs(result) > _SMALL:
                self._forms[id(result)] = result
        elif isinstance(result, bytes):
            self._learn_bytes(result)
        elif isinstance(result, list | tuple):
            for part in result:
                self._learn(part, depth + 1)
        elif isinstance(result, np.ndarray | Message) or _is_value(result):
            parts = list(_parts(result))
            hashed = any(isinstance(p, bytes) and p in self._hashes for p in parts)
            if hashed or self._is(result):
                return
            self._forms[id(result)] = result
            for part in parts:
                self._learn(part, depth + 1)

    def _learn_bytes(self, body: bytes) -> None:
        known = body in self._hashes or any(core in body for core in self._cores)
        if len(body) >= _SHORTEST and not known:
            self._cores.append(body)


def _is_value(thing: object) -> bool:
    """Return whether this is a value (a record, a point), not a live object."""
    return dataclasses.is_dataclass(thing) or (
        type(thing).__module__.startswith(_OURS) and hasattr(thing, "__bytes__")
    )


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | set | frozenset):
        yield from list(value)
    elif isinstance(value, dict):
        yield from list(value.values())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name not in _PUBLIC:
                yield getattr(value, field.name, None)


def _locals(frame: FrameType) -> Iterator[Any]:
    for name, value in frame.f_locals.items():
        if name not in ("self", "cls") or _is_value(value):
            yield value


def _arguments(frame: FrameType, holds: Callable[[Any], bool]) -> bool:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    names = [name for name in code.co_varnames[:count] if name not in ("self", "cls")]
    return any(holds(frame.f_locals[name]) for name in names if name in frame.f_locals)


def _file(module: str) -> str:
    inside = module.removeprefix(_OURS).replace(".", "/")
    package = Path(sys.modules[module].__file__ or "").name == "__init__.py"
    roots = ("protocol/", "clients/", "strategy/")
    home = "" if inside.startswith(roots) else _OURS.replace(".", "/")
    return f"{home}{inside}{'/__init__' if package else ''}.py"


def _reward(node: int, user: int) -> float:
    return TAGGED if (node, user) == (0, 0) else 0.25


def experiment(folder: Path, kind: str) -> ExperimentConfig:
    """Describe one round of two arms; one person's rewards are tagged.

    A fine grid makes all integers large, so that the person's are known again.
    """
    for number in range(_NODES):
        rows = [
            ",".join([f"u{user}", *[str(_reward(number, user))] * 2])
            for user in range(_USERS)
        ]
        table = folder / f"node-{number}.csv"
        table.write_text("\n".join(["user,a,b", *rows]) + "\n")
    return ExperimentConfig(
        ExperimentSettings("path", ("a", "b"), horizon=_NODES * _USERS),
        PrivacySettings("dist-rdp", scale=Fraction(1000)),
        policy=PolicySettings(first_batch=_NODES * _USERS // 2),
        transport=TransportSettings(kind),
        nodes=NodeSettings(_NODES, _USERS),
        rewards=RewardSettings(source="table", table=folder / "{node}.csv"),
    )


def follow(kind: str, folder: Path) -> Trail:
    """Run an experiment over a transport and follow the tagged reward."""
    config, run_dir = experiment(folder, kind), folder / "run"
    _loop.stop()  # a thread that was there before the trail would not be followed
    with Trail() as trail:
        if kind == "flower":
            received = {
                "config": config.canonical(),
                "run-dir": str(run_dir),
                "engine": SIMULATION,
            }
            with InProcessGrid(client_app, partitions(_NODES), received) as grid:
                server_app(
                    grid=grid, context=Context(1, 0, {}, RecordDict(), dict(received))
                )
        else:
            Journal.create(run_dir, "run", config, "local").close()
            asyncio.run(run_local(EngineJob(config, run_dir, "run", events.ignore)))
    return trail


def main() -> None:
    """Print the files of every transport, and how many there are."""
    for kind in sys.argv[1:] or ("memory", "grpc", "flower"):
        with tempfile.TemporaryDirectory() as folder:
            trail = follow(kind, Path(folder))
        print(f"\nby {kind}: {len(trail.files)} files")
        for module, names in trail.functions.items():
            print(f"  {_file(module)}  {', '.join(names)}")
        only = [_file(name) for name in trail.records if name not in trail.functions]
        print(f"  and records of {', '.join(only)}")


if __name__ == "__main__":
    main()
