"""Who takes part and where rewards come from: the sections both sides read.

``[nodes]`` and ``[rewards]`` describe a population that an engine hosts itself (local,
simulation). In a deployment every node has its own file with the same ``[rewards]``
section, and the server never sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.numbers import whole

LARGEST_NODE = 10_000_000
REWARD_SOURCES = ("synthetic", "table", "callable", "grpc")
REWARD_MODELS = ("bernoulli", "gaussian", "beta")


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
    """

    count: int = 200
    users: int | tuple[int, ...] = 100
    policy: Path | None = None

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
    """Where a node's rewards come from.

    Attributes
    ----------
    source : ``synthetic``, ``table``, ``callable`` or ``grpc``.
    model : law of synthetic rewards: ``bernoulli``, ``gaussian`` (clipped to [0, 1]) or
        ``beta``.
    means : one per arm.
    deviation : standard deviation of ``gaussian`` (before clipping) and ``beta``.
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
    timeout_s : after so many seconds a user's reward counts as lost; by default, and
        at most, as long as the server waits.
    hold_answers : no answer leaves before `timeout_s` are over, so that nobody learns
        from the time it takes when a reward became known.
    """

    source: str = "synthetic"
    model: str = "bernoulli"
    means: tuple[float, ...] = ()
    deviation: float = 0.1
    seed: int | None = None
    table: Path | None = None
    user_column: str = "user"
    node_column: str = ""
    function: str = ""
    folder: Path | None = None
    address: str = ""
    certificate: Path | None = None
    test_users: tuple[str, ...] = ()
    timeout_s: float | None = None
    hold_answers: bool = False

    def __post_init__(self) -> None:
        one_of("source", self.source, REWARD_SOURCES)
        one_of("model", self.model, REWARD_MODELS)
        for mean in self.means:
            if not 0 <= mean <= 1:
                raise InputError("means", mean, "rewards lie in [0, 1], and so means")
        if not 0 < self.deviation <= 1:
            raise InputError("deviation", self.deviation, "above 0 and at most 1")
        if self.timeout_s is not None and not 0 < self.timeout_s <= 7 * 86_400:
            raise InputError("timeout-s", self.timeout_s, "more than 0, at most a week")
        self._check_source()

    @property
    def shared_table(self) -> Path | None:
        """The one file that holds the users of all nodes, if there is one."""
        one = self.source == "table" and "{node}" not in str(self.table)
        return self.table if one else None

    def beside(self, folder: Path) -> RewardSettings:
        """Look for a function beside the file that names it, wherever one works."""
        if self.source != "callable" or self.folder is not None:
            return self
        return replace(self, folder=folder.resolve())

    def _check_source(self) -> None:
        if self.source == "synthetic" and len(self.means) < 2:
            raise InputError(
                "means", list(self.means), "one mean per arm for synthetic rewards"
            )
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
