"""Who caused a void cohort, in words; or that it cannot be known.

A node that sent what no honest node sends is named for it. A node that was silent or
refused is named as out. Where the same numbers could come from one node or from
another, both are suspects and neither is guilty: a contributor whose shares lie on no
polynomial makes a member's honest tally look wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    SERVER,
    SUSPECT,
    UNKNOWN,
    Finding,
)

_MOST_NAMED = 5
_LEADS = {
    SENT: "broke the rules",
    SUSPECT: "it or another, which cannot be known",
    OUT: "not there",
}


def told(void: str | None, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Give what to write down: all where it came to nothing, else broken rules alone.

    `void` is the code of a Void, None for a sum or a key.
    """
    if void is None:
        return tuple(one for one in findings if one.kind in (SENT, SUSPECT))
    return tuple(findings) or (Finding("", UNKNOWN, void),)


def in_words(findings: Sequence[Finding]) -> str:
    """Say who caused it.

    Examples
    --------
    >>> in_words([Finding("a", "sent", "unusable-key"), Finding("b", "out", "late")])
    'broke the rules: a (unusable-key); not there: b (late)'
    >>> in_words([Finding("", "unknown", "inconsistent-tallies")])
    'who caused it cannot be known (inconsistent-tallies)'
    """
    parts = []
    for kind, lead in _LEADS.items():
        names = [f"{one.party} ({one.word})" for one in findings if one.kind == kind]
        if names:
            more = len(names) - _MOST_NAMED
            rest = f" and {more} more" if more > 0 else ""
            parts.append(f"{lead}: {', '.join(names[:_MOST_NAMED])}{rest}")
    parts += [
        f"the server itself ({one.word})" for one in findings if one.kind == SERVER
    ]
    unknown = [one.word for one in findings if one.kind == UNKNOWN]
    if unknown:
        parts.append(f"who caused it cannot be known ({unknown[0]})")
    return "; ".join(parts)
