"""Ids of cohorts, which show later that this run's server invited them.

Nodes keep the ids of the cohorts that they answered. When a server goes on with a run
they tell them: a journal that lacks one of them was put back from an older copy, and
would invite people again who have spent. An id ends with an authentication code under
a key that only the run's journal holds, and it leaves the server when the invitation is
on disk. So no node can invent a cohort that never was, and end a run by it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from wallflower.protocol.errors import JournalError
from wallflower.strategy.store.journal_reader import JournalReader

_CODE_DIGITS = 20  # hexadecimal: 2⁻⁸⁰ for every guess
_LONGEST_ID = 200


def sign_cohort_id(key: bytes, name: str) -> str:
    """Return the id of a cohort that is about to be written down and invited."""
    return f"{name}-{_code(key, name)}"


def is_own_id(key: bytes, cohort_id: str) -> bool:
    """Say whether an id was made with this key."""
    name, _, code = cohort_id[:_LONGEST_ID].rpartition("-")
    return hmac.compare_digest(_code(key, name).encode(), code.encode())


def check_answered(journal: JournalReader, answered: Iterable[str]) -> None:
    """Raise JournalError where nodes answered a cohort that the journal lacks.

    Ids that this run did not make are no evidence: a node may invent them, and a run
    directory that was deleted must not block a new run of the same name.
    """
    known = journal.cohort_ids()
    key = journal.cohort_key
    for cohort_id in sorted(set(answered) - known):
        if is_own_id(key, cohort_id):
            raise JournalError(
                f"{journal.path} has no cohort {cohort_id}, which nodes have answered: "
                "it is an older copy. People asked since then have spent, so nobody is "
                "asked; put back the newest files, or begin a new run"
            )


def _code(key: bytes, name: str) -> str:
    made = hmac.digest(key, name.encode(), hashlib.sha256)
    return made.hex()[:_CODE_DIGITS]
