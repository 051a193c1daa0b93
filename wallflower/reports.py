"""What the functions of `wallflower.api` return, typed; a notebook shows tables.

Every number is in the unit of the outcomes, as the commands print it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wallflower.output import data_frame, html_page, html_table
from wallflower.protocol.errors import WallflowerError
from wallflower.protocol.files.sections import one_of
from wallflower.protocol.numbers import counted

if TYPE_CHECKING:
    import pandas

    from wallflower.engines.preflight import CheckLine
    from wallflower.planning.plan import Plan
    from wallflower.regret.setup import Prepared
    from wallflower.regret.simulation import SimulationResult
    from wallflower.results.result import RunResult
    from wallflower.strategy.run.verify import Check
    from wallflower.strategy.store.entries import Askable

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PlannedGap:
    """What it takes to tell two means apart.

    Attributes
    ----------
    gap : difference of the means, in the unit of the outcomes.
    typically : mean users of simulated experiments; None where some stay undecided.
    users, users_per_arm, batch : what suffices whatever the means are, and when it is
        reached; None where no reasonable number does.
    fits : whether the people of the experiment suffice.
    """

    gap: float
    typically: int | None
    users_per_arm: int | None
    users: int | None
    batch: int | None
    fits: bool


@dataclass(frozen=True, repr=False, eq=False)
class PlanReport:
    """What people will be promised, and how many of them it takes.

    Attributes
    ----------
    plan : all figures, exact, means as parts of the range.
    askable : who can be asked, where a ledger of the people is known.
    warning : why this is not the plan of the experiment's own policy, or empty.
    """

    plan: Plan
    askable: Askable | None = None
    warning: str = ""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The plan as JSON types, as ``wallflower plan --format json`` gives it."""
        from wallflower.planning.view import plan_json

        return plan_json(self.plan)

    @property
    def promise(self) -> str:
        """What a person is promised, in words."""
        return self.plan.sentence

    @property
    def gaps(self) -> tuple[PlannedGap, ...]:
        """What it takes to tell arms apart, gap by gap."""
        names = [field.name for field in dataclasses.fields(PlannedGap)]
        rows = self.summary["gaps"]
        return tuple(PlannedGap(**{name: row[name] for name in names}) for row in rows)

    def to_pandas(self, table: str = "gaps") -> pandas.DataFrame:
        """Return ``gaps`` or ``batches`` as a data frame."""
        one_of("table", table, ("gaps", "batches"))
        return data_frame(self.summary[table])

    def __repr__(self) -> str:
        request = self.plan.request
        return (
            f"PlanReport({counted(request.arms, 'arm')}, "
            f"{counted(request.horizon, 'user')}, {request.mechanism} at "
            f"ε = {float(request.epsilon):g}, "
            f"{counted(len(self.plan.gaps), 'gap')})"
        )

    def _repr_html_(self) -> str:
        sentences = (self.warning, self.promise)
        tables = [html_table([dataclasses.asdict(gap) for gap in self.gaps])]
        return html_page(repr(self), sentences, tables)


@dataclass(frozen=True, slots=True)
class SimulatedArm:
    """One arm of a simulation, the mean of all its instances.

    Attributes
    ----------
    arm : its name; a rank where means were drawn anew in every instance.
    true_mean, estimate, lower, upper : in the unit of the outcomes.
    users : who were shown it.
    status, eliminated_in : how it ended, and the mean batch in which it went out.
    """

    arm: str
    true_mean: float
    estimate: float
    lower: float
    upper: float
    users: float
    status: str
    eliminated_in: float | None


@dataclass(frozen=True, repr=False, eq=False)
class SimulationReport:
    """What came out of simulated experiments.

    Attributes
    ----------
    prepared : what was simulated.
    result : every instance's figures, as arrays; means as parts of the range.
    """

    prepared: Prepared
    result: SimulationResult

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All of it as JSON types, as ``wallflower simulate --format json`` writes."""
        from wallflower.regret.report import summarize

        return summarize(self.prepared, self.result)

    @property
    def arms(self) -> tuple[SimulatedArm, ...]:
        """The arms, as means over the instances."""
        names = [field.name for field in dataclasses.fields(SimulatedArm)]
        rows = self.summary["arms"]
        return tuple(
            SimulatedArm(**{name: row[name] for name in names}) for row in rows
        )

    @property
    def regret(self) -> float:
        """Mean pseudo-regret, in the unit of the outcomes."""
        return float(self.summary["regret"]["mean"])

    @property
    def users_until_decided(self) -> float | None:
        """Mean users until one arm was left; None where no instance was decided."""
        mean = self.summary["users_until_decided"]["mean"]
        return None if mean is None else float(mean)

    @property
    def best_arm_dropped(self) -> int:
        """In how many instances the best arm went out."""
        return int(self.summary["best_arm_dropped"])

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before the end."""
        return bool(self.summary["interrupted"])

    def to_pandas(self, table: str = "arms") -> pandas.DataFrame:
        """Return ``arms``, or ``instances`` with a row each, as a data frame."""
        one_of("table", table, ("arms", "instances"))
        return data_frame(self.summary["arms"] if table == "arms" else self._instances)

    @property
    def _instances(self) -> Rows:
        result, width = self.result, self.prepared.measured.width
        return [
            {
                "instance": number,
                "regret": float(result.regret[number] * width),
                "users": int(result.users[number]),
                "asked": int(result.asked[number]),
                "finished": result.finished[number],
                "best_arm_dropped": bool(result.best_dropped[number]),
            }
            for number in range(len(result.regret))
        ]

    def __repr__(self) -> str:
        spec = self.result.simulation.spec
        return (
            f"SimulationReport({spec.policy} on {spec.mechanism} at "
            f"ε = {float(spec.epsilon):g}, "
            f"{counted(len(self.result.regret), 'instance')}, "
            f"mean regret {self.regret:,.4g})"
        )

    def _repr_html_(self) -> str:
        promise = self.summary["guarantee"]
        sentences = (promise["sentence"], promise["best_arm"])
        return html_page(repr(self), sentences, [html_table(self.summary["arms"])])


@dataclass(frozen=True, repr=False, eq=False)
class CheckReport:
    """What was looked at before anybody is asked.

    Attributes
    ----------
    file : the experiment's, or the node's.
    lines : one for everything that was looked at.
    """

    file: Path
    lines: tuple[CheckLine, ...]

    @property
    def error(self) -> WallflowerError | None:
        """The first thing for which a run would not begin."""
        return next((line.error for line in self.lines if line.error), None)

    @property
    def ready(self) -> bool:
        """Whether a run could begin."""
        return self.error is None

    @property
    def verdict(self) -> str:
        """Whether it is ready, in words."""
        failed = sum(line.level == "fail" for line in self.lines)
        warned = sum(line.level == "warn" for line in self.lines)
        if failed:
            return f"Not ready: {failed} of {len(self.lines)} checks fail."
        beside = f", {warned} with a warning" if warned else ""
        return f"Ready{beside}. Nobody was asked and nothing was written."

    @property
    def summary(self) -> dict[str, Any]:
        """All of it as JSON types, as ``wallflower check --format json`` gives it."""
        checks = []
        for line in self.lines:
            row = {"name": line.name, "level": line.level, "text": line.text}
            arms = {"arms": [one.as_json() for one in line.arms]} if line.arms else {}
            checks.append({**row, **arms})
        return {"file": str(self.file), "ready": self.ready, "checks": checks}

    def to_pandas(self) -> pandas.DataFrame:
        """Return a row for everything that was looked at."""
        return data_frame(self._rows)

    @property
    def _rows(self) -> Rows:
        return [
            {"name": line.name, "level": line.level, "text": line.text}
            for line in self.lines
        ]

    def __repr__(self) -> str:
        return f"CheckReport({str(self.file)!r}: {self.verdict})"

    def _repr_html_(self) -> str:
        return html_page(f"{self.file}: {self.verdict}", (), [html_table(self._rows)])


@dataclass(frozen=True, repr=False, eq=False)
class Verification:
    """Whether a run's record holds.

    Attributes
    ----------
    run_id, run_dir : which run.
    head : the newest hash of its record.
    checks : everything that was recomputed, and what did not agree.
    promise : what people were promised; None where the record does not hold.
    result : what the run has come to; None where the record does not hold.
    test_mode : whether its noise came from a seed.
    """

    run_id: str
    run_dir: Path
    head: str
    checks: tuple[Check, ...]
    promise: str | None
    result: RunResult | None
    test_mode: bool

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    @property
    def summary(self) -> dict[str, Any]:
        """All of it as JSON types, as ``wallflower verify --format json`` gives it."""
        result = self.result
        return {
            "run": self.run_id,
            "run_dir": str(self.run_dir),
            "holds": self.holds,
            "head": self.head,
            "test_mode": self.test_mode,
            "promise": self.promise,
            "missing": result and result.missing.as_json(result.winner),
            "checks": [
                {
                    "name": check.name,
                    "holds": check.holds,
                    "looked_at": check.looked_at,
                    "problems": list(check.problems),
                }
                for check in self.checks
            ],
        }

    @property
    def verdict(self) -> str:
        """Whether the record holds, in words."""
        return f"The record {'holds' if self.holds else 'does NOT hold'}."

    def to_pandas(self) -> pandas.DataFrame:
        """Return a row for every check."""
        return data_frame(self.summary["checks"])

    def __repr__(self) -> str:
        return f"Verification({self.run_id}: {self.verdict})"

    def _repr_html_(self) -> str:
        rows = [
            {**row, "problems": "; ".join(row["problems"])}
            for row in self.summary["checks"]
        ]
        sentences = (f"Head of the record: {self.head}", self.promise or "")
        title = f"{self.run_id}: {self.verdict}"
        return html_page(title, sentences, [html_table(rows)])
