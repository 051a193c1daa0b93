"""The engines that can carry an experiment, by name.

An engine gets a prepared run (config, run directory, journal, listener for events) and
drives it to its end; what is real in each stands in docs/running.md. Modules are
imported only when their engine is asked for: Flower and Ray are heavy.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.files.sections import one_of
from wallflower.strategy.config import ExperimentConfig

Listener = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EngineJob:
    """What `wallflower run` and `wallflower resume` hand to an engine.

    Attributes
    ----------
    config : as in the file, or as the journal kept it.
    run_dir : holds ``journal.sqlite``; every engine writes only below it.
    run_id : the directory's name.
    listen : awaited with every event of `strategy.events`.
    options : what the command line passed on to this engine only.
    """

    config: ExperimentConfig
    run_dir: Path
    run_id: str
    listen: Listener
    options: tuple[tuple[str, str], ...] = ()


class Engine(Protocol):
    """Runs a job until the experiment is over; resumable by calling it again."""

    async def __call__(self, job: EngineJob) -> None:
        """Drive the run; the journal in `run_dir` is the result."""
        ...


# name → "module:attribute"; the attribute is an Engine.
ENGINES: dict[str, str] = {
    "fast": "wallflower.engines.fast:run_plain",
    "local": "wallflower.engines.local:run_local",
    "simulation": "wallflower.engines.simulation:run_simulation",
    "deployment": "wallflower.engines.deployment:run_deployment",
}


def engine_named(name: str) -> Engine:
    """Import and give the engine; an unknown name is refused with the near miss."""
    module, attribute = _module(name)
    engine: Engine = getattr(module, attribute)
    return engine


def engine_check(name: str) -> Callable[[ExperimentConfig], None]:
    """Give the engine's ``check``: all that can be refused before a run is begun."""
    module, _ = _module(name)
    check: Callable[[ExperimentConfig], None] | None = getattr(module, "check", None)
    return check if check is not None else lambda config: None


def check_options(name: str, options: Sequence[tuple[str, str]]) -> None:
    """Refuse an option that the engine does not know, before anything is begun."""
    module, _ = _module(name)
    known: tuple[str, ...] = getattr(module, "OPTIONS", ())
    for option, _ in options:
        if option not in known:
            allowed = ", ".join(known) or f"none on engine {name}"
            raise InputError("option", f'"{option}"{nearest(option, known)}', allowed)


def _module(name: str) -> tuple[ModuleType, str]:
    one_of("engine", name, tuple(ENGINES))
    module, _, attribute = ENGINES[name].partition(":")
    return importlib.import_module(module), attribute
