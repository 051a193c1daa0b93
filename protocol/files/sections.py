"""Who takes part and where rewards come from: the sections both sides read.

``[nodes]`` and ``[rewards]`` describe a population that an engine hosts itself (local,
simulation). In a deployment every node has its own file with the same ``[rewards]``
section, and the server never sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.numbers import whole
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.protocol.rewards.reward_range import RewardRange

LARGEST_NODE = 10_000_000
REWARD_SOURCES = ("synthetic", "table", "callable", "grpc")
REWARD_MODELS = ("bernoulli", "gaussian", "beta")
_DEVIATION = 0.1  # of synthetic rewards, as a part of the range


def one_of(parameter: str, value: str, known: Sequence[str]) -> None:
    """Refuse a word that is not known, with the near miss."""
    if value not in known:
        raise InputError(
            parameter, f'"{value}"{nearest(value, known)}', f"one of {', '.join(known)}"
        )


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The nodes an engine hosts: how many, and how many users live on each.

    Attributes
    ----------
    count : nodes.
    users : users on every node, or a list with one number per node.
    policy : the users' policy file; without one they agree to exactly what the
        experiment's file says.
    ledger : the file that keeps what people spent, for all experiments with them;
        without one a run keeps its own, and its people are new.
    """

    count: int = 200
    users: int | tuple[int, ...] = 100
    policy: Path | None = None
    ledger: Path | None = None

    def __post_init__(self) -> None:
        whole("count", self.count, at_least=2, at_most=1_000_000)
        if isinstance(self.users, int):
            whole("users", self.users, at_least=1, at_most=LARGEST_NODE)
            return
        if len(self.users) != self.count:
            raise InputError(
                "users",
                f"a list of {len(self.users)}",
                f"one entry per node ({self.count})",
            )
        for users in self.users:
            whole("users", users, at_least=1, at_most=LARGEST_NODE)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Users on each node."""
        if isinstance(self.users, int):
            return (self.users,) * self.count
        return self.users

    @property
    def population(self) -> int:
        """All users on all nodes."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """Where a node's rewards come from; relative paths start at the file's folder.

    Attributes
    ----------
    source : ``synthetic``, ``table``, ``callable`` or ``grpc``.
    model : law of synthetic rewards: ``bernoulli`` (either end of the range),
        ``gaussian`` (clipped to the range) or ``beta``.
    range : lowest and highest outcome that count in full; the node clips beyond. Part
        of the question: experiment and nodes must state the same.
    unit : of outcomes, such as ``€``; results are printed in it.
    means : one per arm, in the unit.
    deviation : standard deviation of ``gaussian`` (before clipping) and ``beta``, in
        the unit; a tenth of the range by default.
    seed : makes synthetic rewards repeatable; without it they differ in every run.
    table : CSV or Parquet file with a row per user and a column per arm. ``{node}`` in
        the name stands for the node's id; one file of all users is shared out.
    user_column : the column that holds the users' pseudonyms.
    node_column : of one file of all users, the column that says where each lives;
        without it they are dealt out evenly.
    function : ``module:function``, called with (arm, user) or awaited.
    folder : where its module is looked for first; the file's own folder.
    address : ``host:port`` of a RewardSource service; or ``unix:/path``.
    certificate : its CA, for TLS; without it only loopback and unix addresses.
    test_users : nobody's pseudonyms, on whom a callable or a service is tried before
        anybody is asked; their outcomes are screened and thrown away.
    window_s : outcomes are what is known so many seconds after the arm was shown; the
        answer leaves then, never earlier. Without it the source is immediate and may
        take a minute; its speed must not depend on the outcome.
    if_unknown : what counts where no outcome is known at the end of the window, in the
        unit; the low end of the range by default.
    """

    source: str = "synthetic"
    model: str = "bernoulli"
    range: tuple[Fraction, ...] = (Fraction(0), Fraction(1))
    unit: str = ""
    means: tuple[float, ...] = ()
    deviation: float | None = None
    seed: int | None = None
    table: Path | None = None
    user_column: str = "user"
    node_column: str = ""
    function: str = ""
    folder: Path | None = None
    address: str = ""
    certificate: Path | None = None
    test_users: tuple[str, ...] = ()
    window_s: float | None = None
    if_unknown: float | None = None

    def __post_init__(self) -> None:
        one_of("source", self.source, REWARD_SOURCES)
        one_of("model", self.model, REWARD_MODELS)
        if len(self.range) != 2:
            given = f"a list of {len(self.range)}"
            raise InputError("range", given, "two numbers, the lower one first")
        measured = self.reward_range
        for mean in self.means:
            if not measured.contains(mean):
                raise InputError("means", mean, f"within rewards.range, {measured}")
        if self.deviation is not None and not 0 < self.deviation <= measured.width:
            allowed = f"above 0 and at most {measured.width:g}"
            raise InputError("deviation", self.deviation, allowed)
        unknown = self.if_unknown
        if unknown is not None and not measured.contains(unknown):
            raise InputError("if-unknown", unknown, f"within rewards.range, {measured}")
        if self.seed is not None:
            whole("seed", self.seed, at_least=0)
        _ = self.window  # refuses what is no window
        self._check_source()

    @property
    def reward_range(self) -> RewardRange:
        """How outcomes become numbers in [0, 1]."""
        return RewardRange(self.range[0], self.range[1], self.unit)

    @property
    def window(self) -> OutcomeWindow:
        """When outcomes are taken, and what counts where none is known."""
        if self.if_unknown is None:
            return OutcomeWindow(self.window_s)
        return OutcomeWindow(
            self.window_s, self.reward_range.to_fraction(self.if_unknown)
        )

    @property
    def fractions(self) -> tuple[float, ...]:
        """The stated means as numbers in [0, 1]."""
        return tuple(self.reward_range.to_fraction(mean) for mean in self.means)

    @property
    def deviation_fraction(self) -> float:
        """The stated deviation as a part of the range."""
        if self.deviation is None:
            return _DEVIATION
        return self.deviation / self.reward_range.width

    @property
    def shared_table(self) -> Path | None:
        """The one file that holds the users of all nodes, if there is one."""
        one = self.source == "table" and "{node}" not in str(self.table)
        return self.table if one else None

    def beside(self, folder: Path) -> RewardSettings:
        """Return settings whose paths start at `folder`, the folder of their file.

        A function without a `folder` is looked for beside the file, too.
        """
        paths = {
            name: (folder / path).resolve()
            for name in ("table", "folder", "certificate")
            if (path := getattr(self, name)) is not None
        }
        if self.source == "callable":
            paths.setdefault("folder", folder.resolve())
        return replace(self, **paths)

    def _check_source(self) -> None:
        if len(self.means) == 1:
            raise InputError("means", list(self.means), "one mean per arm")
        if self.source == "table" and self.table is None:
            raise InputError("table", "missing", 'a file, for source = "table"')
        if self.node_column and self.shared_table is None:
            raise InputError(
                "node-column", f'"{self.node_column}"', "one table for all nodes"
            )
        if self.source == "callable" and self.function.count(":") != 1:
            raise InputError("function", f'"{self.function}"', '"module:function"')
        if self.source == "grpc" and not self.address:
            raise InputError("address", "missing", 'host:port, for source = "grpc"')
