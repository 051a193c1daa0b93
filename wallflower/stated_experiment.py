"""An experiment as a file and ``--set KEY=VALUE`` state it, for `plan` and `simulate`.

``--set`` is read by the code that reads the file: keys, kinds of values, near misses
and errors are the same.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.files.settings import read_toml
from wallflower.strategy.config import (
    ExperimentConfig,
    config_from_canonical,
    config_from_table,
    load_config,
)

_USUAL_ARMS = 10
_FLAG = "--set"

Source = str | Path | ExperimentConfig  # a file, or an experiment


@dataclass(frozen=True, slots=True)
class StatedExperiment:
    """An experiment, and which parts of it somebody stated.

    A file states all of them. Without one, arms, nodes and outcomes are stated where
    ``--set`` names their keys.
    """

    config: ExperimentConfig
    states_arms: bool = True
    states_nodes: bool = True
    states_outcomes: bool = True

    @property
    def knows_nodes(self) -> bool:
        """Whether it is stated who lives where; people who arrive live nowhere."""
        return self.states_nodes and self.config.visitors is None


def read_experiment(
    source: Source | None, changes: Mapping[str, Any], usual: Mapping[str, Any]
) -> StatedExperiment:
    """Return an experiment with some of its keys changed.

    Parameters
    ----------
    source : str, Path or ExperimentConfig, optional
        A file or an experiment; without one, `usual` takes its place.
    changes : Mapping[str, Any]
        Values by key, such as ``privacy.epsilon``.
    usual : Mapping[str, Any]
        Tables of an experiment; arms may be left out.
    """
    if source is None:
        return _change_usual(changes, usual)
    config = experiment_of(source)
    if not changes:
        return StatedExperiment(config)
    if isinstance(source, ExperimentConfig):
        table = json.loads(config.canonical(), parse_float=Decimal)
        _set_keys(table, changes)
        return StatedExperiment(config_from_canonical(json.dumps(table, default=float)))
    file = Path(source)
    return StatedExperiment(_change(read_toml(file), changes, file.parent))


def experiment_of(source: Source) -> ExperimentConfig:
    """Return the experiment of a file, or the experiment itself."""
    return source if isinstance(source, ExperimentConfig) else load_config(source)


def read_changes(words: Sequence[str]) -> dict[str, Any]:
    """Read texts ``section.key=value``; what is no TOML value is a text."""
    changes = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise _bad_change(word)
        changes[key.strip()] = _read_value(text.strip())
    return changes


def _change_usual(
    changes: Mapping[str, Any], usual: Mapping[str, Any]
) -> StatedExperiment:
    table = copy.deepcopy(dict(usual))
    _set_keys(table, changes)
    states_arms = "arms" in table["experiment"]
    if not states_arms:
        means = table.get("rewards", {}).get("means")
        count = len(means) if isinstance(means, list) else _USUAL_ARMS
        table["experiment"]["arms"] = [str(arm) for arm in range(count)]
    return StatedExperiment(
        _change(table, {}, Path()),
        states_arms=states_arms,
        states_nodes="nodes" in table,
        states_outcomes="rewards" in table,
    )


def _change(
    table: dict[str, Any], changes: Mapping[str, Any], folder: Path
) -> ExperimentConfig:
    _set_keys(table, changes)
    try:
        return config_from_table(table, folder, _FLAG)
    except ConfigError as error:
        # "--set.privacy.epsilon" reads better as it was written.
        where = error.where.replace(f"{_FLAG}.", f"{_FLAG} ", 1)
        raise ConfigError(where, error.problem) from None


def _set_keys(table: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        section, _, name = key.partition(".")
        if not (section and name):
            raise _bad_change(f"{key}={value}")
        table.setdefault(section, {})[name] = _exact(value)


def _exact(value: Any) -> Any:
    """Return a value as a file would state it: Python's 0.1 means 1/10 there, too."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, Fraction | Path):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_exact(item) for item in value]
    return value


def _bad_change(word: str) -> InputError:
    allowed = "SECTION.KEY=VALUE, such as privacy.epsilon=0.5"
    return InputError("set", f'"{word}"', allowed)


def _read_value(text: str) -> Any:
    """Return a TOML value; what is none is a text, so that texts need no quotes."""
    try:
        found = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if found.keys() == {"value"} else text
