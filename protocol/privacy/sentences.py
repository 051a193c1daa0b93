"""Every sentence about a guarantee, in words that need no mathematics.

(ε, 0)-DP bounds how far any observer's odds between two hypotheses about one person
can move: by a factor of e^ε, whatever else the observer knows. (ε, δ)-DP does *not* say
that this holds except with probability δ (the loss exceeds ε up to 45 times as often,
docs/mathematics.md). It says that no event is more than e^ε times as likely as after
another outcome, δ added, and so do the sentences.

A guarantee without a trusted server has a condition with two halves, and both are
stated, of every cohort: how many *nodes* may work with the operator (one more could
open a single node's value, which only that node's own noise hides) and how many
*people* must answer honestly (their noise is what hides a person in the sum).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.numbers import round_up, round_up_digits

SENTENCE_DELTA = 1e-6
NOTHING_PROMISED = "Nothing is promised: the server sees every person's outcome."
REHEARSAL = (
    "This is a rehearsal: the machine it ran on held every person's outcome, so "
    "nothing was kept from whoever ran it. People on nodes of their own would be "
    "promised:"
)
SIMULATION = "Nobody is asked in a simulation. People in a real run would be promised:"

# Who must be honest, by the trust of a guarantee.
MUST_BE_HONEST = {
    "distributed": "the honest part of each cohort, and the secure sum",
    "shuffler": "the honest part of each cohort, and a shuffler apart from the server",
    "server": "the server, which sees every outcome",
    "nobody": "nobody",
}
_OBSERVERS = {
    "distributed": "nobody, the operator included,",
    "shuffler": "nobody, the operator included,",
    "server": "nobody who sees the published results",
    "nobody": "nobody, not even someone who reads all that leaves the device,",
}
# Longer lists are summed up in percent: nobody reads twenty sizes.
_MOST_LISTED = 6
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, order=True)
class CohortCondition:
    """What must be true of one cohort for a distributed guarantee to hold.

    Attributes
    ----------
    people : asked, n.
    honest : of them that must answer honestly, h.
    nodes : they live on; 0 while it is not known.
    colluding : most of the nodes that may work with the operator.
    drawn : who holds the sum's shares is drawn by lot, which may fail.
    """

    people: int
    honest: int
    nodes: int = 0
    colluding: int = 0
    drawn: bool = False


@dataclass(frozen=True, slots=True, order=True)
class KeyHolders:
    """Whom the key of sealed sums was dealt among, for all cohorts of a run.

    Attributes
    ----------
    nodes : that were there when it was dealt.
    colluding : most of them that may work with the operator.
    drawn : who holds its shares is drawn by lot, which may fail.
    """

    nodes: int
    colluding: int
    drawn: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    """A guarantee with everything a sentence about it needs.

    Attributes
    ----------
    kind : as of `protocol.privacy.guarantee.Guarantee`.
    trust : who must be honest.
    epsilon : of all that a person takes part in.
    privacy_delta : 0 for a pure promise.
    times : how often a user takes part at most.
    conditions : the cohorts, run or planned.
    corrupt : fraction of nodes that may collude, where a cohort's nodes are not known.
    lottery_bits : a draw of share holders fails with a chance of at most 2 to minus it.
    keys : of sealed sums, whose shares no cohort's nodes hold themselves; empty while
        nothing is dealt, None where every cohort's nodes hold its own.
    """

    kind: str
    trust: str
    epsilon: Fraction | float
    privacy_delta: float = 0.0
    times: int = 1
    conditions: tuple[CohortCondition, ...] = ()
    corrupt: Fraction = Fraction(0)
    lottery_bits: int = 40
    keys: tuple[KeyHolders, ...] | None = None

    def sentence(self) -> str:
        """Say what one person is promised, and on which condition."""
        if self.kind == "none":
            return NOTHING_PROMISED
        often = f", also to who takes part {self.times} times" * (self.times > 1)
        return f"{self._claim()}{often}.{self._condition()}"

    def _claim(self) -> str:
        observer, factor = _OBSERVERS[self.trust], odds_factor(self.epsilon)
        shown = round_up(self.epsilon)
        if not self.privacy_delta:
            return (
                f"Whatever a person's outcome was, {observer} can shift the odds of "
                f"any guess about it by more than a factor of {factor} (ε = {shown})"
            )
        return (
            f"Whatever a person's outcome was, {observer} can come to a conclusion "
            f"that is more than {factor} times as likely as after any other outcome, "
            f"{_chance(self.privacy_delta)} added (differential privacy with "
            f"ε = {shown}, δ = {power(self.privacy_delta)})"
        )

    def _condition(self) -> str:
        if self.trust == "server":
            return " This holds if the server that sees every outcome is trusted."
        if self.trust == "nobody":
            return ""
        if self.trust == "shuffler":
            # Only shares that are mixed have a δ, and only honest nodes mix.
            mixing = f"{self._nodes()} and " if self.privacy_delta else ""
            return (
                " This holds as long as the shuffler does not work with the operator "
                f"and, in every cohort, {mixing}{_people(self.conditions)} "
                "answer honestly."
            )
        lottery = (
            " Who holds the shares of a sum is drawn by lot; a draw that lets them "
            f"break this has a chance below {power(2.0**-self.lottery_bits)}."
            if any(condition.drawn for condition in self.conditions)
            or any(key.drawn for key in self.keys or ())
            else ""
        )
        if self.keys is not None:
            return (
                f" This holds as long as {self._key_holders()} and, in every cohort, "
                f"{_people(self.conditions)} answer honestly.{lottery}"
            )
        return (
            f" This holds as long as, in every cohort, {self._nodes()} and "
            f"{_people(self.conditions)} answer honestly.{lottery}"
        )

    def _key_holders(self) -> str:
        """Say how many nodes may collude of those that the run's keys were dealt to."""
        known = {key.nodes: key.colluding for key in self.keys or ()}
        if not known:
            if not self.corrupt:
                return "none of the run's nodes works with the operator"
            part = percent(self.corrupt)
            return f"at most {part} of the run's nodes work with the operator"
        if not any(known.values()):
            return "none of the run's nodes works with the operator"
        if len(known) > _MOST_LISTED:
            least = min(Fraction(few, nodes) for nodes, few in known.items())
            return f"at most {percent(least)} of the run's nodes work with the operator"
        listed = _join_parts(
            f"{known[nodes]:,} of {nodes:,}" for nodes in sorted(known)
        )
        return (
            f"at most {listed} nodes, among which the run's key was dealt, work with "
            "the operator"
        )

    def _nodes(self) -> str:
        known = {
            condition.nodes: condition.colluding
            for condition in self.conditions
            if condition.nodes
        }
        if not known:
            if not self.corrupt:
                return "none of its nodes works with the operator"
            return (
                f"at most {percent(self.corrupt)} of its nodes work with the operator"
            )
        if not any(known.values()):
            return "none of its nodes works with the operator"
        if len(known) > _MOST_LISTED:
            least = min(Fraction(few, nodes) for nodes, few in known.items())
            return f"at most {percent(least)} of its nodes work with the operator"
        listed = _join_parts(
            f"{known[nodes]:,} of {nodes:,}" for nodes in sorted(known)
        )
        return f"at most {listed} nodes work with the operator"


def _people(conditions: Iterable[CohortCondition]) -> str:
    needed: dict[int, int] = {}
    for condition in conditions:
        # Of cohorts of one size the condition of the most demanding covers all.
        needed[condition.people] = max(
            condition.honest, needed.get(condition.people, 0)
        )
    if all(honest == people for people, honest in needed.items()):
        return "all of its people"
    if len(needed) > _MOST_LISTED:
        most = max(Fraction(honest, people) for people, honest in needed.items())
        return f"at least {round_up(most * 100, 1)} % of its people"
    listed = _join_parts(
        f"{needed[people]:,} of {people:,}" for people in sorted(needed)
    )
    return f"at least {listed} people"


def _join_parts(parts: Iterable[str]) -> str:
    """Join by commas and "or": which of them applies is a matter of the size."""
    *first, last = parts
    return f"{', '.join(first)} or {last}" if first else last


def odds_factor(epsilon: float | Fraction) -> str:
    """e^ε for display, rounded up to two decimals (four digits are no clearer)."""
    if epsilon > 20:
        return f"e^{round_up(epsilon)}"
    # One step of a double upwards pays for the rounding of exp itself.
    return round_up(math.nextafter(math.exp(float(epsilon)), math.inf), 2)


def percent(part: Fraction) -> str:
    """Write a part of one as a percentage, rounded down where it is not whole."""
    return f"{float(int(part * 1000)) / 10:g} %"


def power(privacy_delta: float) -> str:
    """Write δ as a power of ten, or of two, where it is one; else rounded up."""
    mantissa, binary = math.frexp(privacy_delta)
    if mantissa == 0.5 and binary < -18:
        return "2⁻" + str(1 - binary).translate(_RAISED)
    exponent = round(-math.log10(privacy_delta))
    if privacy_delta != float(f"1e-{exponent}"):
        return f"{round_up_digits(privacy_delta, 6):g}"
    return "10⁻" + str(exponent).translate(_RAISED)


def small(chance: float) -> str:
    """Write a bound of a probability in two digits, never smaller than it is.

    Examples
    --------
    >>> small(0.042), small(3.7e-6), small(0.0)
    ('0.042', '3.7·10⁻⁶', '10⁻³⁰⁰')
    """
    if chance < 1e-300:
        return "10⁻³⁰⁰"  # as a bound from above
    chance = round_up_digits(chance, 2)
    if chance >= 0.001:
        return f"{chance:.2g}"
    digits, _, exponent = f"{chance:.1e}".partition("e-")
    return f"{float(digits):g}·10⁻{str(int(exponent)).translate(_RAISED)}"


def _chance(privacy_delta: float) -> str:
    return "one in a million" if privacy_delta == 1e-6 else power(privacy_delta)
