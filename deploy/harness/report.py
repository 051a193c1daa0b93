"""Try every fault and write down what happened: ``make test-faults``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.harness.audit import Audit, audit
from deploy.harness.consortium import Consortium, consortium
from deploy.harness.experiment import (
    BEST,
    LabRun,
    Plan,
    node_environment,
    start_resume,
    start_run,
    wallflower,
    write_experiment,
    write_node,
)
from deploy.harness.faults import FAULTS, fill_disk, small_disk
from deploy.harness.lab import Fault, Lab
from deploy.harness.processes import end_in_order_on_sigterm
from deploy.harness.tables import write_csv
from wallflower.protocol.errors import WallflowerError

NODES = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
# Some faults leave two of the four nodes; against a lying server a sum needs three.
# The best arm leads by little, so that a run has batches after the one that was hurt.
PLAN = Plan(
    mechanism="non-private",
    first_batch=24,
    server="semi-honest",
    means=(0.45, 0.5, 0.65),
)
COLUMNS = (
    "fault",
    "phase",
    "then",
    "first command",
    "nodes by round",
    "asked/in sums",
    "void",
    "s",
)
_MOST_RESUMES = 3
_RUN_TIMEOUT_S = 400


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault did."""

    fault: str
    phase: str
    note: str
    ended: str  # how the first command ended
    resumes: int
    hung: bool
    verified: bool
    found: Audit
    shown: bool
    seconds: float

    @property
    def good(self) -> bool:
        """Return whether the run survived as promised."""
        return (
            not self.hung
            and self.verified
            and self.found.clean
            and self.shown
            and self.found.winner == BEST
        )


def slug(fault: Fault) -> str:
    """Return a folder's name for a fault."""
    text = f"{fault.name} {fault.phase}".lower().replace(" ", "-")
    return "".join(character for character in text if character not in ",'")


def try_fault(built: Consortium, fault: Fault) -> Row:
    """Run one experiment with one fault in it, resume as often as needed, judge."""
    started = time.monotonic()
    experiment = write_experiment(built, PLAN, len(NODES), slug(fault))
    run_dir = built.folder / "runs" / slug(fault)
    built.await_nodes(len(NODES), 300)
    lab = Lab(built, NODES)
    if fault.prepare is not None:
        fault.prepare(lab)
    run = lab.started = start_run(built, experiment, run_dir.name)
    hung, note = False, ""
    try:
        note = fault.hurt(lab)
        code = run.finish(_RUN_TIMEOUT_S)
    except WallflowerError as error:
        hung, code, note = True, -1, f"{note} HUNG: {error}"
        run.process.stop()
    finally:
        lab.release()
    ended = {0: "finished", -1: "hung"}.get(code, f"exit {code}")
    resumes = 0
    while code != 0 and resumes < _MOST_RESUMES and not hung:
        resumes += 1
        code = resume(built, run_dir)
    for repair in lab.repairs:
        repair()
    verified = wallflower(built, "verify", str(run_dir)).returncode == 0
    found = audit(run_dir, PLAN.truth)
    return Row(
        fault.name,
        fault.phase,
        note,
        ended,
        resumes,
        hung,
        verified,
        found,
        fault.shown(found),
        time.monotonic() - started,
    )


def resume(built: Consortium, run_dir: Path) -> int:
    """Resume a run and wait for its end."""
    again: LabRun = start_resume(built, run_dir)
    try:
        return again.finish(_RUN_TIMEOUT_S)
    except WallflowerError:
        again.process.stop()
        return -1


def cells(row: Row) -> tuple[str, ...]:
    """Return what a row says, by COLUMNS."""
    found = row.found
    return (
        row.fault,
        row.phase,
        row.note,
        row.ended,
        "-".join(map(str, found.nodes_by_round)),
        f"{found.users_asked}/{found.users_summed}",
        str(found.voids),
        f"{row.seconds:.0f}",
    )


def table(rows: Sequence[Row]) -> str:
    """Return the fault × phase table as Markdown."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(cells, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def verdict(rows: Sequence[Row]) -> str:
    """Sum the table up."""
    return (
        f"{len(rows)} faults, {sum(row.good for row in rows)} survived; wrong sums: "
        f"{sum(row.found.sums_wrong for row in rows)} of "
        f"{sum(row.found.sums for row in rows)}; users counted twice: "
        f"{sum(row.found.users_twice for row in rows)}; hangs: "
        f"{sum(row.hung for row in rows)}; records that do not verify: "
        f"{sum(not row.verified for row in rows)}."
    )


def circumstances() -> str:
    """Say where and when the rows come from, before anything is started."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"Gathered in one pass of `make test-faults` on {today}: {os.cpu_count()} "
        f"cores, Linux {platform.release()}, load average {os.getloadavg()[0]:.2f} "
        "before the start."
    )


def main() -> int:
    """Try the faults and print the table; 1 if one was not survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name or phase has it")
    parser.add_argument("--folder", type=Path, help="keep logs and runs here")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    parser.add_argument("--write", type=Path, help="write the table here, as CSV")
    arguments = parser.parse_args()
    before = circumstances()
    end_in_order_on_sigterm()
    chosen = [f for f in FAULTS if arguments.only in f"{f.name} {f.phase}"]
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="wf-faults-"))
        )
        for fault in chosen:
            if fault.hurt is fill_disk:
                runs = folder / "site" / "runs"
                stack.enter_context(small_disk(runs / slug(fault)))
        built = stack.enter_context(
            consortium(
                folder / "site",
                NODES,
                lambda built, name: write_node(built, name, PLAN),
                users=10_000,
                node_environment=lambda b, name: node_environment(b, name, PLAN),
                kept=True,
            )
        )
        for fault in chosen:
            try:
                row = try_fault(built, fault)
            except WallflowerError as error:
                sys.stderr.write(f"NOT TRIED: {fault.name}, {fault.phase}: {error}\n")
                continue
            rows.append(row)
            state = "survived" if row.good else "NOT SURVIVED"
            sys.stderr.write(f"{state}: {table([row]).splitlines()[-1]}\n")
            sys.stderr.flush()
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(r) for r in rows]))
    sys.stdout.write(f"{before}\n\n{table(rows)}\n\n{verdict(rows)}\n")
    if arguments.write:
        note = f"{before} {verdict(rows)}"
        write_csv(arguments.write, note, [COLUMNS, *map(cells, rows)])
    return 0 if len(rows) == len(chosen) and all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
