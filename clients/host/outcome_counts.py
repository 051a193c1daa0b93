"""How many outcomes a node did not know, and why: for its owner, on the node alone.

Both counts follow from outcomes, so they never leave the machine. `wallflower check`
shows them; a monitor of the owner's may read the file.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallflower.protocol.files.private import write_anew

FILE_NAME = "outcomes.json"
MANY_UNKNOWN = 0.1  # of all outcomes: worth a look at the source
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """People who were shown an arm, and whose outcome was not known, by reason."""

    shown: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)

    def plus(self, shown: int, unknown: Mapping[str, int]) -> OutcomeCounts:
        """Return the counts with those of one more cohort."""
        total = Counter(self.unknown) + Counter(unknown)
        return OutcomeCounts(self.shown + shown, dict(sorted(total.items())))


def read_counts(home: Path) -> OutcomeCounts:
    """Return what a home has counted; nothing where the file is gone or damaged."""
    try:
        kept = json.loads((home / FILE_NAME).read_text())
        return OutcomeCounts(int(kept["shown"]), Counter(dict(kept["unknown"])))
    except (OSError, ValueError, KeyError, TypeError):
        return OutcomeCounts()


def add_counts(home: Path, shown: int, unknown: Mapping[str, int]) -> None:
    """Count one more cohort; a disk that cannot be written costs only the count."""
    counts = read_counts(home).plus(shown, unknown)
    kept = {"shown": counts.shown, "unknown": dict(counts.unknown)}
    try:
        write_anew(home / FILE_NAME, json.dumps(kept).encode())
    except OSError as error:
        _log.warning("outcomes are not counted: %s", type(error).__name__)
