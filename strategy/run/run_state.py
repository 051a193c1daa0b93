"""Where a run stands between two rounds: the last one, and what was done by hand since.

The journal keeps rounds as they were decided. An arm that is retired afterwards is a
record of its own, so the policy that asks the next round is put together here, the same
way by the server that goes on, by whoever looks, and by `verify` as it replays.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.policies import policy_for, policy_from_state
from wallflower.strategy.bandit.policy import Arm, ArmView, Policy
from wallflower.strategy.store import events
from wallflower.strategy.store.chain import Entry, limit_of
from wallflower.strategy.store.entries import (
    LIMITED,
    RETIRED,
    ROUND,
    PrivacySpend,
    Retirement,
    RoundRecord,
)
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of


def next_round(journal: Journal) -> tuple[int, Policy]:
    """Return the number of the next round and the policy that requests its cohorts."""
    last = journal.last_round()
    number = 1 if last is None else last.number + 1
    policy = (
        policy_for(journal.config)
        if last is None
        else policy_from_state(last.policy_state)
    )
    reasons = {str(one.arm): one.reason for one in journal.retired()}
    for entry in _since_the_last_round(journal.entries()):
        if entry.kind == RETIRED:
            policy.retire(int(entry.subject), reasons[entry.subject])
        elif entry.kind == LIMITED:
            policy.limit(limit_of(entry.subject)[1])
    return number, policy


def _since_the_last_round(links: Sequence[Entry]) -> Sequence[Entry]:
    ends = [place for place, entry in enumerate(links, 1) if entry.kind == ROUND]
    return links[max(ends, default=0) :]


def asked_by_arm(journal: Journal) -> Counter[Arm]:
    """Count who was asked about each arm, in a sum or not.

    Who never saw the arm, because their node refused before, is not counted.
    """
    arms = {cohort.cohort_id: cohort.arm for cohort in journal.cohorts()}
    asked: Counter[Arm] = Counter()
    for cohort_id, people in journal.count_asked().items():
        asked[arms[cohort_id]] += people
    return asked


def views_of(policy: Policy, asked: Mapping[Arm, int]) -> tuple[ArmView, ...]:
    """Return what a policy knows of its arms, with the people who were asked."""
    return tuple(
        dataclasses.replace(view, asked=asked.get(view.arm, 0))
        for view in policy.arms()
    )


def round_after_retirement(journal: Journal) -> RoundRecord | None:
    """Return the last round, with the arms that were retired since it out.

    Where arms were retired before any round was finished it has the number 0.
    """
    last = journal.last_round()
    done = 0 if last is None else last.number
    if all(one.round_number <= done for one in journal.retired()):
        return last
    _, policy = next_round(journal)
    views = views_of(policy, asked_by_arm(journal))
    spent = PrivacySpend() if last is None else last.spent
    return RoundRecord(done, views, policy.state(), spent, policy.finished)


async def apply_retirements(
    journal: Journal, policy: Policy, number: int, listen: events.Listen
) -> None:
    """Retire the arms that somebody asked to retire while the last round was asked."""
    for arm, reason in requests_of(journal.run_dir).read_retirements().items():
        if arm >= len(policy.arms()):
            continue  # no file of ours
        try:
            policy.retire(arm, reason)
        except InputError as error:
            # In the journal already: a crash came before the request was taken away.
            if not any(one.arm == arm for one in journal.retired()):
                await listen(events.RetirementRefused(arm, str(error)))
        else:
            record = Retirement(arm, number, reason)
            head = await journal.call(journal.retire, record)
            views = views_of(policy, await journal.call(asked_by_arm, journal))
            await listen(
                events.ArmRetired(
                    arm,
                    number,
                    reason,
                    views=views,
                    finished=policy.finished,
                    head=head,
                )
            )
        requests_of(journal.run_dir).withdraw_retirement(arm)
