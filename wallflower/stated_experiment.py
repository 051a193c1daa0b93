"""An experiment as a file and ``--set KEY=VALUE`` state it, for `plan` and `simulate`.

``--set`` is read by the code that reads the file: keys, kinds of values, near misses
and errors are the same.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.files.settings import read_toml
from wallflower.strategy.config import ExperimentConfig, config_from_table

_USUAL_ARMS = 10
_FLAG = "--set"


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


def read_experiment(
    file: Path | None, changes: Sequence[str], usual: Mapping[str, Any]
) -> StatedExperiment:
    """Return the experiment of a file as ``--set`` changes it.

    Parameters
    ----------
    file : Path, optional
        Without one, `usual` takes its place.
    changes : Sequence[str]
        Texts ``section.key=value``.
    usual : Mapping[str, Any]
        Tables of an experiment; arms may be left out.
    """
    if file is None:
        return _change_usual(changes, usual)
    table = read_toml(file)
    config = config_from_table(table, file.parent, str(file))
    if changes:
        config = _change(table, changes, file.parent)
    return StatedExperiment(config)


def changed_keys(changes: Sequence[str]) -> set[str]:
    """Return the last words of all keys that ``--set`` names."""
    return {change.partition("=")[0].strip().rpartition(".")[2] for change in changes}


def _change_usual(changes: Sequence[str], usual: Mapping[str, Any]) -> StatedExperiment:
    table = copy.deepcopy(dict(usual))
    for change in changes:
        _set_key(table, change)
    states_arms = "arms" in table["experiment"]
    if not states_arms:
        means = table.get("rewards", {}).get("means")
        count = len(means) if isinstance(means, list) else _USUAL_ARMS
        table["experiment"]["arms"] = [str(arm) for arm in range(count)]
    return StatedExperiment(
        _change(table, (), Path()),
        states_arms=states_arms,
        states_nodes="nodes" in table,
        states_outcomes="rewards" in table,
    )


def _change(
    table: dict[str, Any], changes: Sequence[str], folder: Path
) -> ExperimentConfig:
    for change in changes:
        _set_key(table, change)
    try:
        return config_from_table(table, folder, _FLAG)
    except ConfigError as error:
        # "--set.privacy.epsilon" reads better as it was written.
        where = error.where.replace(f"{_FLAG}.", f"{_FLAG} ", 1)
        raise ConfigError(where, error.problem) from None


def _set_key(table: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    section, _, name = key.strip().partition(".")
    if not (equals and section and name):
        allowed = "SECTION.KEY=VALUE, such as privacy.epsilon=0.5"
        raise InputError("set", f'"{change}"', allowed)
    table.setdefault(section, {})[name] = _read_value(text.strip())


def _read_value(text: str) -> Any:
    """Return a TOML value; what is none is a text, so that texts need no quotes."""
    try:
        found = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if found.keys() == {"value"} else text
