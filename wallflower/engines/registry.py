"""The engines that can carry an experiment, by name.

An engine gets a prepared run (config, run directory, journal, listener for events) and
drives it to its end; what is real in each stands in docs/running.md. Modules are
imported only when their engine is asked for: Flower and Ray are heavy.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.files.sections import one_of
from wallflower.strategy.config import ExperimentConfig

_Listener = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EngineJob:
    """What `wallflower run` and `wallflower resume` hand to an engine.

    Attributes
    ----------
    config : as in the file, or as the journal kept it.
    run_dir : holds ``journal.sqlite``; every engine writes only below it.
    run_id : the directory's name.
    listen : awaited with every event of `strategy.store.events`.
    options : what the command line passed on to this engine only.
    """

    config: ExperimentConfig
    run_dir: Path
    run_id: str
    listen: _Listener
    options: tuple[tuple[str, str], ...] = ()


# Runs a job until the experiment is over; the journal in `run_dir` is the result. It is
# resumed by calling it again.
Engine = Callable[[EngineJob], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine, what it refuses before a run begins, and the options it takes."""

    run: Engine
    check: Callable[[ExperimentConfig], None] = lambda config: None
    options: tuple[str, ...] = ()


# name → "module:attribute"; the attribute is an `EngineSpec`.
ENGINES: dict[str, str] = {
    "fast": "wallflower.engines.fast:FAST",
    "local": "wallflower.engines.local:LOCAL",
    "simulation": "wallflower.engines.flower:SIMULATION",
    "deployment": "wallflower.engines.flower:DEPLOYMENT",
    "serve": "wallflower.engines.visitors:SERVE",
}


def find_engine(name: str) -> EngineSpec:
    """Import and return an engine; an unknown name is refused with the near miss."""
    one_of("engine", name, tuple(ENGINES))
    module, _, attribute = ENGINES[name].partition(":")
    spec: EngineSpec = getattr(importlib.import_module(module), attribute)
    return spec


def check_options(name: str, options: Sequence[tuple[str, str]]) -> None:
    """Refuse an option that the engine does not know, before anything begins."""
    known = find_engine(name).options
    for option, _ in options:
        if option not in known:
            allowed = ", ".join(known) or f"none on engine {name}"
            raise InputError("option", f'"{option}"{nearest(option, known)}', allowed)
