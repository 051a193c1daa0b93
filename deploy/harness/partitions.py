"""Cut nodes off at random and put them back: ``make test-partitions``.

A deployment of four nodes runs experiments that decide nothing, in many small rounds.
Seeded by FIRST, one to four nodes lose their cable for 2 to 30 seconds, COUNT times. A
run may wait and may lose cohorts, but it must not stop: every command ends with 0, its
record verifies, no sum is wrong and nobody is asked twice.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from deploy.harness.audit import audit
from deploy.harness.consortium import Consortium, consortium
from deploy.harness.experiment import (
    LabRun,
    Plan,
    node_environment,
    start_run,
    wallflower,
    write_experiment,
    write_node,
)
from deploy.harness.processes import end_in_order_on_sigterm
from deploy.harness.report import NODES

PLAN = Plan(
    mechanism="non-private",
    first_batch=24,
    server="semi-honest",
    means=(0.5, 0.5, 0.5),
    stage_timeout_s=10.0,
)
_RATIO = "1.01"  # rounds of nearly one size: as many as the people allow
_RUN_TIMEOUT_S = 900
_CALM_S = (2.0, 8.0)  # between two cuts
_CUT_S = (2.0, 30.0)


def start(built: Consortium, number: int) -> LabRun:
    """Start the experiment once more."""
    path = write_experiment(built, PLAN, len(NODES), f"partitions-{number}")
    sized = f"first-batch = {PLAN.first_batch}"
    text = path.read_text().replace(sized, f"{sized}\nratio = {_RATIO}")
    path.write_text(text)
    built.await_nodes(len(NODES), 300)
    run = start_run(built, path, path.stem)
    run.until_event("RoundFinished")
    return run


def cut_and_mend(built: Consortium, draw: random.Random) -> str:
    """Take some nodes off the network for a while; return what was done."""
    network = built.network
    assert network is not None
    time.sleep(draw.uniform(*_CALM_S))
    victims = sorted(draw.sample(NODES, draw.randint(1, len(NODES))))
    seconds = draw.uniform(*_CUT_S)
    for name in victims:
        network.cut(name)
    time.sleep(seconds)
    # They come back one after the other, so that some are there without the others.
    for name in draw.sample(victims, len(victims)):
        network.mend(name)
        time.sleep(draw.uniform(0.0, 2.0))
    return f"{', '.join(victims)} for {seconds:.0f} s"


def judge(built: Consortium, run: LabRun) -> list[str]:
    """Wait for a run's end and return what is wrong with it."""
    code = run.finish(_RUN_TIMEOUT_S)
    wrong = [] if code == 0 else [f"ended with exit code {code}"]
    if wallflower(built, "verify", str(run.run_dir)).returncode != 0:
        wrong.append("its record does not verify")
    if not audit(run.run_dir, PLAN.truth).clean:
        wrong.append("a sum is wrong or somebody was asked twice")
    return wrong


def main() -> int:
    """Cut and mend so often, print each cut and the verdict; 1 if a run stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    stated = parser.parse_args()
    end_in_order_on_sigterm()
    draw = random.Random(stated.first)  # noqa: S311 (repeatable, no secret)
    wrong: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="wf-partitions-") as folder,
        consortium(
            Path(folder) / "site",
            NODES,
            lambda built, name: write_node(built, name, PLAN),
            users=10_000,
            node_environment=lambda b, name: node_environment(b, name, PLAN),
            kept=True,
        ) as built,
    ):
        runs = 1
        run = start(built, runs)
        for number in range(1, stated.count + 1):
            if run.process.exit_code is not None:
                wrong += [f"run {runs} {text}" for text in judge(built, run)]
                runs += 1
                run = start(built, runs)
            print(f"{number}: {cut_and_mend(built, draw)}", flush=True)
        wrong += [f"run {runs} {text}" for text in judge(built, run)]
    print("\n".join(wrong) or "no run stopped, every record verifies")
    print(f"{stated.count} partitions in {runs} runs, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
