"""People who arrive: rounds of seats from the first to the verdict."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.arriving import (
    RUN,
    Site,
    config,
    finish,
    shown_to_a_newcomer,
    site,
)
from tests.support.seated_sums import answer_task
from tests.support.virtual_time import in_virtual_time
from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.assemble import make_node
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.sessions import SessionStore
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.machine import SessionParams
from wallflower.engines.arrivals import Keys, make_trustees
from wallflower.engines.population import hosted_setup
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.sections import (
    SecureSumSettings,
    TransportSettings,
    VisitorSettings,
)
from wallflower.strategy.secure_sum.contributions import SeatTerms
from wallflower.strategy.store import events
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seats import NoFreeSeat, TakenSeat


def some_vanish(part: int) -> Callable[[str, TakenSeat], bool]:
    """Every so many-th person who is seated never answers, whatever the arm."""
    seen = Counter[str]()

    def answers(visitor: str, place: TakenSeat) -> bool:
        seen[place.cohort_id] += 1
        return seen[place.cohort_id] % part != 0

    return answers


@in_virtual_time
async def test_people_who_arrive_decide_an_experiment(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        await there.run()
        assert finish(there.heard).finished == "winner"
        assert there.problems() == []
        assert shown_to_a_newcomer(there) == NoFreeSeat(1, "run-over")


@pytest.mark.parametrize("admission", ["enrolled", "invited"])
@in_virtual_time
async def test_a_lying_server_is_withstood_where_somebody_vouches_for_people(
    tmp_path: Path, admission: str
) -> None:
    malicious = config(
        secure_sum=SecureSumSettings(server="malicious"),
        visitors=VisitorSettings(admission, least_trustees=7),
    )
    async with site(tmp_path, malicious) as there:
        await there.run()
        assert finish(there.heard).finished == "winner"
        assert there.problems() == []


def without_inviter_key(
    config: ExperimentConfig, ledger: Ledger, keys: Keys, store: SessionStore
) -> dict[str, Node]:
    """Make trustees of whom all but two were not given `inviter.pub`."""
    bare = hosted_setup(config, ledger, keys.trustee, keys.enrolment_key)
    made = make_trustees(config, ledger, keys, store)
    for name in list(made)[2:]:
        made[name] = make_node(bare, name, (), bare.trust(), store)
    return made


@in_virtual_time
async def test_no_seat_is_opened_for_sums_that_trustees_would_not_open(
    tmp_path: Path,
) -> None:
    malicious = config(
        secure_sum=SecureSumSettings(server="malicious"),
        visitors=VisitorSettings("invited", least_trustees=7),
    )
    async with site(tmp_path, malicious, trustees_of=without_inviter_key) as there:
        with pytest.raises(UnavailableError, match="2 trustees agree after 5 s"):
            await there.run()
        (heard,) = (e for e in there.heard if isinstance(e, events.TermsRefused))
        assert "enrolment-required (trustee-2, trustee-3, trustee-4" in heard.text
        with Journal.read(there.run_dir) as journal:
            assert list(journal.cohorts()) == []


@in_virtual_time
async def test_a_trustee_that_does_not_agree_holds_no_share(tmp_path: Path) -> None:
    def with_one_of_another_mind(
        experiment: ExperimentConfig, ledger: Ledger, keys: Keys, store: SessionStore
    ) -> dict[str, Node]:
        made = make_trustees(experiment, ledger, keys, store)
        setup = hosted_setup(experiment, ledger, keys.trustee, keys.enrolment_key)
        careful = replace(setup, policy=ClientPolicy(largest_epsilon=Fraction(1, 2)))
        name = min(made)
        return made | {name: make_node(careful, name, (), setup.trust(), store)}

    five_of_six = config(visitors=VisitorSettings("open", trustees=tuple("abcdef")))
    async with site(
        tmp_path, five_of_six, trustees_of=with_one_of_another_mind
    ) as there:
        await there.run()
        assert finish(there.heard).finished == "winner"
        with Journal.read(there.run_dir) as journal:
            (dealing,) = journal.dealings()
        assert sorted(dealing.members) == list("bcdef")


@in_virtual_time
async def test_seats_of_people_who_vanish_are_lost_and_given_to_nobody(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, answers=some_vanish(15)) as there:
        await there.run()
        done = finish(there.heard)
        assert (done.invited, done.answered, done.lost) == (60, 56, 4)
        assert there.problems() == []
        with Journal.read(there.run_dir) as journal:
            assert {c.losses["no-answer"] for c in journal.cohorts()} == {2}


@in_virtual_time
async def test_a_round_does_not_wait_for_its_deadline_when_all_seats_are_taken(
    tmp_path: Path,
) -> None:
    week = config(visitors=VisitorSettings("open", deadline_s=604_800, answer_s=600))
    async with site(tmp_path, week, some_vanish(15)) as there:
        await there.run()
        # The window of an immediate outcome is a minute.
        assert 660 <= asyncio.get_running_loop().time() < 900


@in_virtual_time
async def test_a_round_with_too_few_answers_in_one_arm_is_redrawn_as_a_whole(
    tmp_path: Path,
) -> None:
    voided = set[str]()

    def answers(visitor: str, place: TakenSeat) -> bool:
        if "-t1-" in place.cohort_id and place.arm == 0:
            voided.add(visitor)
            return len(voided) > 6
        return True

    async with site(tmp_path, answers=answers) as there:
        await there.run()
        assert finish(there.heard).finished == "winner"
        with Journal.read(there.run_dir) as journal:
            ends = [(c.arm, c.attempt, c.state, c.reason) for c in journal.cohorts()]
        assert there.problems() == []
    assert ends == [
        (0, 1, "void", "quorum-not-met"),
        (0, 2, "summed", ""),
        (1, 1, "void", "another-arm-too-few"),
        (1, 2, "summed", ""),
    ]


@in_virtual_time
async def test_a_run_whose_rounds_are_all_void_says_who_was_lost_and_goes_on_later(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, answers=some_vanish(2)) as there:
        with pytest.raises(UnavailableError, match="no sum of round 1 in 2 attempts"):
            await there.run()
        there.arrivals.answers = lambda visitor, place: True
        await there.run()
        assert finish(there.heard).finished == "winner"
        assert there.problems() == []


def answer_garbage(there: Site) -> str:
    """Take a seat and answer with what no honest person sends; return whose cohort."""
    store, name, arrival = there.arrivals.store, "d" * 32, b"3" * 16
    place = store.take_seat(name, arrival)
    assert isinstance(place, TakenSeat)
    cohort = store.read_cohort(place.cohort_id)
    assert cohort is not None
    terms = SeatTerms(cohort.terms, None)
    (task,) = NodeRequest.FromString(terms.request_for(name)).tasks
    params = SessionParams(
        spec=task.stage.spec,
        party=name,
        identity=None,
        trust=None,
        limits=ClientLimits(),
        keyring=ClientKeyring(RUN),
    )
    contribution = terms.check_answer(name, answer_task(task, params, 10**9))
    store.store_answer(name, arrival, place.cohort_id, contribution)
    return place.cohort_id


@in_virtual_time
async def test_a_sum_that_one_person_spoils_takes_its_whole_round_along(
    tmp_path: Path,
) -> None:
    """Arms of one round are heard together: else a drift between rounds decides."""
    spoiled = list[str]()
    async with site(tmp_path) as there:

        def react(event: Event) -> None:
            if isinstance(event, events.CohortAsked) and event.arm == 1 and not spoiled:
                spoiled.append("soon")
            elif isinstance(event, events.CohortProgress) and spoiled == ["soon"]:
                spoiled[:] = [answer_garbage(there)]

        there.react = react
        await there.run()
        assert finish(there.heard).finished == "winner"
        with Journal.read(there.run_dir) as journal:
            ends = {c.cohort_id: (c.attempt, c.reason) for c in journal.cohorts()}
        assert there.problems() == []
    assert ends.pop(spoiled[0]) == (1, "sum-out-of-range")
    assert sorted(ends.values()) == [(1, "another-arm-no-sum"), (2, ""), (2, "")]
    done = finish(there.heard)
    assert (done.invited, done.answered, done.lost) == (120, 60, 60)


@in_virtual_time
async def test_answers_wait_for_trustees_that_go_while_sums_are_opened(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        opened = there.port.asked

        def leave(request_id: str) -> None:
            if len({asked for asked in opened if asked.endswith("/open")}) > 1:
                there.port.away.update(f"trustee-{number}" for number in range(4))

        there.port.before = leave
        with pytest.raises(UnavailableError, match="1 of the 5 trustees that hold"):
            await there.run()
        there.port.before = lambda request_id: None
        there.port.away.clear()
        await there.operate()
        assert finish(there.heard).answered == 60
        assert there.problems() == []


@in_virtual_time
async def test_trustees_that_were_away_for_a_moment_cost_nobody_their_answer(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.port.before = leave = AwayOnce(there)
        await there.run()
        assert leave.came_back
        done = finish(there.heard)
        assert (done.invited, done.answered, done.lost) == (60, 60, 0)
        assert there.problems() == []


class AwayOnce:
    """Four of five trustees leave when the second sum is opened, for two seconds."""

    def __init__(self, there: Site) -> None:
        self._port, self._opened, self.came_back = there.port, set[str](), False

    def __call__(self, request_id: str) -> None:
        if request_id.endswith("/open") and not self.came_back:
            self._opened.add(request_id)
            if len(self._opened) == 2:
                self._port.away.update(f"trustee-{number}" for number in range(4))
                asyncio.get_running_loop().call_later(2, self._come_back)

    def _come_back(self) -> None:
        self._port.away.clear()
        self.came_back = True


@in_virtual_time
async def test_nobody_comes_and_the_round_ends_at_its_deadline(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        with pytest.raises(UnavailableError, match="no sum of round 1"):
            await there.operate()
        assert there.problems() == []


@in_virtual_time
async def test_without_enough_trustees_no_seat_is_opened(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        there.port.away.update(["trustee-0"])
        with pytest.raises(UnavailableError, match="4 trustees are there after"):
            await there.run()
        with Journal.read(there.run_dir) as journal:
            assert SeatRegister(journal.database).seated() == []


@in_virtual_time
async def test_answers_wait_for_trustees_that_come_back(tmp_path: Path) -> None:
    async with site(tmp_path) as there:

        def react(event: Event) -> None:
            if isinstance(event, events.CohortProgress) and event.heard == event.nodes:
                there.port.away.update(f"trustee-{number}" for number in range(4))

        there.react = react
        with pytest.raises(UnavailableError, match="1 of the 5 trustees that hold"):
            await there.run()
        there.react = lambda event: None
        there.port.away.clear()
        await there.operate()
        assert finish(there.heard).answered == 60
        assert there.problems() == []


@in_virtual_time
async def test_a_pause_says_so_to_whoever_comes(tmp_path: Path) -> None:
    close = config(rewards=RewardSettings(means=(0.5, 0.5)))
    async with site(tmp_path, close) as there:
        requests_of(there.run_dir).request_pause()
        await there.run()
        assert shown_to_a_newcomer(there).reason == "paused"
        requests_of(there.run_dir).withdraw_pause()


@in_virtual_time
async def test_a_retired_arm_gets_no_more_seats(tmp_path: Path) -> None:
    three = config(
        experiment=ExperimentSettings("test", ("a", "b", "c"), horizon=250),
        rewards=RewardSettings(means=(0.5, 0.5, 0.5)),
    )
    async with site(tmp_path, three) as there:

        def react(event: Event) -> None:
            if isinstance(event, events.RoundStarted) and event.number == 1:
                requests_of(there.run_dir).request_retirement(2, "too dear")

        there.react = react
        await there.run()
        with Journal.read(there.run_dir) as journal:
            rounds = {c.round_number for c in journal.cohorts() if c.arm == 2}
        assert rounds == {1}
        assert there.problems() == []


@in_virtual_time
async def test_the_last_round_takes_who_the_horizon_leaves(tmp_path: Path) -> None:
    small = config(
        experiment=ExperimentSettings("test", ("a", "b"), horizon=240),
        rewards=RewardSettings(means=(0.5, 0.5)),
    )
    async with site(tmp_path, small) as there:
        await there.run()
        assert finish(there.heard).finished == "horizon"
        assert finish(there.heard).invited == 240
        assert there.problems() == []


@in_virtual_time
async def test_an_index_policy_opens_one_cohort_at_a_time(tmp_path: Path) -> None:
    index = config(
        experiment=ExperimentSettings("test", ("a", "b"), horizon=200),
        policy=PolicySettings(name="dp-imed", first_batch=30),
    )
    async with site(tmp_path, index) as there:
        await there.run()
        started = [e for e in there.heard if isinstance(e, events.RoundStarted)]
        assert [len(event.arms) for event in started[:3]] == [2, 1, 1]
        assert there.problems() == []


@in_virtual_time
async def test_proved_inputs_and_dropouts_go_together(tmp_path: Path) -> None:
    proved = config(
        secure_sum=SecureSumSettings(inputs="proved", dropout=Fraction(1, 5)),
        transport=TransportSettings(attempts=1),
    )
    async with site(tmp_path, proved, some_vanish(10)) as there:
        await there.run()
        assert finish(there.heard).finished == "winner"
        assert there.problems() == []
