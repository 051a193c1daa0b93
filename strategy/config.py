"""One experiment, one TOML file, one typed model.

The file is engine-independent: the same one runs on ``fast``, ``local``,
``simulation`` and ``deployment``. Its canonical JSON form is what the journal keeps and
what a resumed run is compared with.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from wallflower.protocol.cohort import check_pairing
from wallflower.protocol.errors import ConfigError, InputError, nearest
from wallflower.protocol.files.lines import TomlTables
from wallflower.protocol.files.sections import NodeSettings, RewardSettings, one_of
from wallflower.protocol.files.settings import read_toml, settings_from
from wallflower.protocol.numbers import counted, positive, probability, whole
from wallflower.protocol.privacy.mechanism import Mechanism, mechanism_named
from wallflower.protocol.rewards.outcome_window import NO_WINDOW, OutcomeWindow
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.rewards.tables import dealt_out
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.shuffle.plan import mode_of
from wallflower.strategy import policy_names
from wallflower.strategy.sections import (
    ContactSettings,
    SecureSumSettings,
    StoreSettings,
    TestSettings,
    TransportSettings,
    VisitorSettings,
    check_visitors,
)

_USERS = ("nodes", "users")


@dataclass(frozen=True, slots=True)
class ExperimentSettings:
    """``[experiment]``: what is compared, on how many users, how sure to be.

    `horizon` is the number of users that may be asked in all; 0 means everybody.
    `control` names the arm that the others are to beat; with `keep_control` it goes on
    getting people until the end. Differences below `margin`, in the unit of the
    outcomes, do not matter: the run ends when no larger one is left.
    """

    name: str
    arms: tuple[str, ...]
    horizon: int = 0
    failure_probability: Fraction = Fraction(1, 20)
    control: str | None = None
    keep_control: bool = False
    margin: Fraction | None = None

    def __post_init__(self) -> None:
        plain = all(c.isalnum() or c in "-_." for c in self.name)
        if not plain or not 0 < len(self.name) <= 100 or not self.name[0].isalnum():
            allowed = "1 to 100 letters, digits, - _ . (a letter or digit first)"
            raise InputError("name", f'"{self.name}"', allowed)
        if len(self.arms) < 2:
            raise InputError("arms", counted(len(self.arms), "name"), "at least two")
        for arm in self.arms:
            if arm != arm.strip() or not 0 < len(arm) <= 200 or not arm.isprintable():
                allowed = "printable, 1 to 200 characters, no space around"
                raise InputError("arms", repr(arm), allowed)
            if self.arms.count(arm) > 1:
                raise InputError("arms", f'"{arm}" twice', "different names")
        whole("horizon", self.horizon, at_least=0, at_most=10**15)
        probability("failure-probability", self.failure_probability)
        if self.control is not None and self.control not in self.arms:
            known = nearest(self.control, self.arms)
            raise InputError("control", f'"{self.control}"{known}', "one of the arms")
        if self.keep_control and self.control is None:
            raise InputError("keep-control", "true", "beside a control")
        if self.margin is not None:
            positive("margin", self.margin)

    @property
    def control_arm(self) -> int | None:
        """The number of the control, if there is one."""
        return None if self.control is None else self.arms.index(self.control)


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """``[privacy]``: the mechanism, its level, and how often a user may be asked."""

    mechanism: str = "dist-dp"
    epsilon: Fraction = Fraction(1)
    scale: Fraction = Fraction(10)
    max_participations: int = 1

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        positive("scale", self.scale)
        whole("max-participations", self.max_participations, at_least=1, at_most=1000)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """``[policy]``: how arms are compared.

    Without `ratio`, and with `first_batch` 0, the policy chooses. `most_rounds` bounds
    the number of rounds, and so the time; 0: as many as the horizon allows.
    """

    name: str = "elimination"
    radius: str = "tight"
    ratio: Fraction | None = None
    first_batch: int = 0
    most_rounds: int = 0

    def __post_init__(self) -> None:
        one_of("name", self.name, policy_names.POLICIES)
        one_of("radius", self.radius, policy_names.RADII)
        whole("most-rounds", self.most_rounds, at_least=0, at_most=10_000)
        if self.ratio is not None and self.ratio <= 1:
            raise InputError("ratio", self.ratio, "greater than 1")
        whole("first-batch", self.first_batch, at_least=0, at_most=10**12)


@dataclass(frozen=True, slots=True)
class ExperimentConfig:
    """Everything an experiment's file says, a field for each of its tables.

    `experiment` names it and its arms, `privacy` what people are promised, `policy` how
    arms are compared, `secure_sum` and `transport` by what means, `nodes` and `rewards`
    who is hosted and what happened to them, `visitors` who may arrive instead,
    `contact` whom they can ask, `store` where all of it is written down; `test` makes
    noise repeatable and ends all privacy.
    docs/running.md lists every key.
    """

    experiment: ExperimentSettings
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    secure_sum: SecureSumSettings = field(default_factory=SecureSumSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    nodes: NodeSettings = field(default_factory=NodeSettings)
    rewards: RewardSettings | None = None
    test: TestSettings = field(default_factory=TestSettings)
    visitors: VisitorSettings | None = None
    contact: ContactSettings = field(default_factory=ContactSettings)
    store: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        check_pairing(self.privacy.mechanism, self.secure_sum.backend)
        self._check_visitors()
        self._check_shuffle()
        self._check_margin()
        if (
            self.rewards is not None
            and self.rewards.means
            and len(self.rewards.means) != len(self.experiment.arms)
        ):
            raise InputError(
                "rewards.means",
                f"a list of {len(self.rewards.means)}",
                f"one mean for each of the {len(self.experiment.arms)} arms",
            )

    def _check_visitors(self) -> None:
        if self.visitors is None:
            return
        if not self.experiment.horizon:
            allowed = "how many people may be asked, with [visitors]"
            raise InputError("experiment.horizon", "missing", allowed)
        check_visitors(
            self.visitors,
            self.mechanism(),
            backend=self.secure_sum.backend,
            threat=self.secure_sum.threat,
        )

    def _check_margin(self) -> None:
        stated, measured = self.experiment, self.reward_range
        if (stated.control, stated.margin) == (None, None):
            return
        if self.margin is not None and self.margin >= 1:
            raise InputError(
                "experiment.margin",
                measured.with_unit(f"{float(stated.margin or 0):g}"),
                f"less than the width of the range, {measured}",
            )
        if (self.policy.name, self.policy.radius) != ("elimination", "tight"):
            raise InputError(
                "experiment.control and experiment.margin",
                f"with policy {self.policy.name}, radius {self.policy.radius}",
                "with policy elimination, radius tight; or leave both out",
            )

    def _check_shuffle(self) -> None:
        stated, needed = self.secure_sum, mode_of(self.privacy.mechanism)
        if stated.backend == SHUFFLE and stated.shuffle != needed:
            raise InputError(
                "secure-sum.shuffle",
                stated.shuffle,
                f'"{needed}" with mechanism {self.privacy.mechanism}',
            )

    @property
    def test_mode(self) -> bool:
        """True when noise comes from a seed: then nobody is protected."""
        return self.test.noise_seed is not None

    @property
    def reward_range(self) -> RewardRange:
        """How outcomes become numbers in [0, 1]; from 0 to 1 where nothing is said."""
        return DEFAULT_RANGE if self.rewards is None else self.rewards.reward_range

    @property
    def margin(self) -> Fraction | None:
        """The margin as a part of the range of outcomes."""
        stated, measured = self.experiment.margin, self.reward_range
        return None if stated is None else stated / (measured.high - measured.low)

    @property
    def window(self) -> OutcomeWindow:
        """When outcomes are taken; the cohort states it, and nodes may refuse it."""
        return NO_WINDOW if self.rewards is None else self.rewards.window

    @property
    def immediate(self) -> bool:
        """Whether a round takes no longer than asking: no window, no arrivals."""
        return self.window == NO_WINDOW and self.visitors is None

    def mechanism(self) -> Mechanism:
        """Build the mechanism; refuses an unknown name or a level out of range."""
        privacy = self.privacy
        return mechanism_named(privacy.mechanism, privacy.epsilon, privacy.scale)

    @property
    def horizon(self) -> int:
        """Users that may be asked: as stated, or the hosted population."""
        return self.experiment.horizon or (
            self.nodes.population * self.privacy.max_participations
        )

    def canonical(self) -> str:
        """One JSON text for one meaning: sorted keys, exact rationals."""
        return json.dumps(_plain(self), sort_keys=True, separators=(",", ":"))

    def fingerprint(self) -> str:
        """SHA-256 of the canonical form."""
        return fingerprint_of(self.canonical())


def fingerprint_of(canonical: str) -> str:
    """SHA-256 of a canonical form."""
    return hashlib.sha256(canonical.encode()).hexdigest()


def load_config(path: Path | str) -> ExperimentConfig:
    """Read an experiment's TOML file; relative paths in it start at its folder.

    Parameters
    ----------
    path : Path or str
        The file; what is wrong in it is named with file, key and what is allowed.
    """
    path = Path(path)
    return config_from_table(read_toml(path), path.parent, str(path))


def config_from_table(
    table: Mapping[str, Any], folder: Path, where: str
) -> ExperimentConfig:
    """Build an experiment from the tables of its file, with its folder and name.

    Where one table of outcomes holds all users, it says who lives where.
    """
    config = settings_from(ExperimentConfig, table, where)
    config = _anchor_paths(config, folder)
    if config.rewards is None:
        return config
    config = dataclasses.replace(config, rewards=config.rewards.beside(folder))
    stated = "users" in table.get("nodes", {})
    line = table.line_of(_USERS) if stated and isinstance(table, TomlTables) else None
    place = where if line is None else f"{where}:{line}"
    return _read_node_sizes(config, stated, place)


def _read_node_sizes(
    config: ExperimentConfig, stated: bool, where: str
) -> ExperimentConfig:
    """Let a table of all users say how many live on each node."""
    assert config.rewards is not None
    path, column = config.rewards.shared_table, config.rewards.node_column
    if path is None or not path.is_file():  # a node's own file may be elsewhere
        return config
    if stated:
        problem = f'nodes: "users" follows from {path.name}; leave it out'
        raise ConfigError(where, problem)
    homes = Counter(dealt_out(path, column, config.nodes.count))
    sizes = tuple(homes[number] for number in sorted(homes))
    if not sizes:
        raise ConfigError(str(path), "holds no users")
    if len(sizes) < 2:
        raise ConfigError(str(path), "users on 1 node; an experiment needs at least 2")
    nodes = dataclasses.replace(config.nodes, count=len(sizes), users=sizes)
    return dataclasses.replace(config, nodes=nodes)


def config_from_canonical(text: str) -> ExperimentConfig:
    """Read back what `ExperimentConfig.canonical` wrote."""
    try:
        table = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise ConfigError("stored config", f"is not JSON: {error}") from None
    return settings_from(ExperimentConfig, table, "stored config")


def differences(old: ExperimentConfig, new: ExperimentConfig) -> tuple[str, ...]:
    """Name every key on which two configs differ, as ``section.key: old → new``."""
    before, after = _flat(_plain(old)), _flat(_plain(new))
    return tuple(
        f"{key}: {before.get(key)} → {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    )


def _anchor_paths(config: ExperimentConfig, folder: Path) -> ExperimentConfig:
    """Make every path absolute, so that the journal's copy means the same later."""

    def section(settings: Any) -> Any:
        changes = {
            f.name: (folder / value).resolve()
            for f in dataclasses.fields(settings)
            if isinstance(value := getattr(settings, f.name), Path)
        }
        return dataclasses.replace(settings, **changes) if changes else settings

    sections: dict[str, Any] = {
        f.name: None if value is None else section(value)
        for f in dataclasses.fields(config)
        for value in (getattr(config, f.name),)
    }
    return ExperimentConfig(**sections)


def _plain(value: Any) -> Any:
    """Turn settings into JSON types that `settings_from` reads; None is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name.replace("_", "-"): _plain(item)
            for f in dataclasses.fields(value)
            for item in (getattr(value, f.name),)
            if item is not None
        }
    if isinstance(value, Fraction | Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 3 and 3.0 are the same seconds
    return value


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
