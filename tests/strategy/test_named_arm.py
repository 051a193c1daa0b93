"""What Flower's log says of the arms."""

from __future__ import annotations

from fractions import Fraction

from tests.support.orchestration import config
from wallflower.protocol.files.sections import RewardSettings
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.named_arm import describe_arms

EUROS = RewardSettings(
    range=(Fraction(-50), Fraction(150)), unit="€", means=(-30.0, 130.0)
)
ARMS = (
    ArmView(0, 57, 0.25, 0.1, 0.4, False, 2, asked=120),
    ArmView(1, 1200, 0.75, 0.6, 0.9, True, None, asked=1200),
)


def test_the_log_shows_means_in_the_unit_and_who_counts() -> None:
    assert describe_arms(config(rewards=EUROS), ARMS) == [
        "  b  100.00 €  [70.00 – 130.00 €]  1,200 users of 1,200 asked  active",
        "  a   0.00 €  [-30.00 – 30.00 €]  57 users of 120 asked  out in round 2",
    ]


def test_without_a_unit_means_are_numbers_from_0_to_1() -> None:
    assert describe_arms(config(), ARMS)[0] == (
        "  b    0.750  [0.600 – 0.900]  1,200 users of 1,200 asked  active"
    )
