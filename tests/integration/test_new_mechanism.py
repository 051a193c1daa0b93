"""A mechanism is one class and its cohorts' class: nothing else has to know it.

Everything here is asked of a mechanism that no module of the package has heard of.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.noise.gaussian import Skellam
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.calibration import modulus_for, noise_bound
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import (
    PER_USER,
    REGISTRY,
    CohortMechanism,
    Mechanism,
    SharedNoise,
)

NAME = "local-skellam"
SENTENCE = "Every person adds Skellam noise that hides the outcome alone."


class LocalSkellam(Mechanism):
    name = NAME
    label = "Local-RDP-SE"
    noise = SENTENCE
    noise_grows = PER_USER

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        variance = cohort_size * (16 / self.epsilon) ** 2
        bound = noise_bound(
            Skellam(variance), wrap_probability, variance, Fraction(1, 3)
        )
        return LocalSkellamCohort(
            cohort_size=cohort_size,
            honest_floor=honest_floor,
            precision=16,
            noise_bound=bound,
            modulus=modulus_for(cohort_size, 16, bound),
            epsilon=self.epsilon,
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        return 2 * survivors**0.5 / float(self.epsilon), 0.0


@dataclass(frozen=True)
class LocalSkellamCohort(SharedNoise):
    def shares(self, users: int) -> NoiseLaw:
        return Skellam(users * (self.precision / self.epsilon) ** 2)

    def hiding_noise(self) -> NoiseLaw:
        return self.user_noise()

    def guarantee(self) -> Guarantee:
        return Guarantee("renyi", self.epsilon, "nobody", self.precision)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, NAME, LocalSkellam)


@pytest.mark.parametrize(
    "options",
    [
        ("--set", "policy.radius=tight"),
        ("--set", "policy.radius=paper"),
        ("--policy", "dp-imed"),
    ],
    ids=" ".join,
)
def test_it_is_simulated_under_every_radius_and_policy(
    options: tuple[str, str],
) -> None:
    means = ("--set", "rewards.means=[0.2, 0.8]")
    arguments = (*means, "--epsilon", "1", "--instances", "3")
    words = ("--mechanism", NAME, "--horizon", "4000", *arguments, *options)
    code, shown = invoke("simulate", *words)
    assert code == 0, shown


def test_it_is_planned() -> None:
    code, shown = invoke("plan", "--arms", "2", "--mechanism", NAME)
    assert code == 0, shown
    assert f"{NAME} at ε = 1" in shown


def test_it_is_run_reported_and_verified(tmp_path: Path) -> None:
    settings = SMALL + f'[privacy]\nmechanism = "{NAME}"\n'
    run_dir, page = tmp_path / "run", tmp_path / "page.html"
    for words in (
        ("run", write(tmp_path, settings), "--run-dir", run_dir),
        ("verify", run_dir),
        ("report", run_dir, "--output", page),
    ):
        code, output = invoke(*words)
        assert code == 0, output
    assert SENTENCE in page.read_text()
