"""Sections of an experiment's file on how a run is carried out.

They are ``[store]``, ``[contact]``, ``[visitors]``, ``[secure-sum]``, ``[transport]``
and ``[test]``. What is compared, promised and decided stands in `config`.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from wallflower.protocol.errors import InputError
from wallflower.protocol.files.sections import one_of
from wallflower.protocol.numbers import whole
from wallflower.protocol.privacy.mechanism import Mechanism
from wallflower.protocol.secure_sum.backends import SEALED, SHUFFLE, check_backend
from wallflower.protocol.secure_sum.shuffle.plan import PURE, SHUFFLES
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.visitors import ADMISSIONS, INVITED, OPEN

TRANSPORTS = ("auto", "memory", "grpc", "flower")
INPUTS = ("trusted", "proved")
SERVERS = ("semi-honest", "malicious")
_SCHEMES = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a run is written down.

    `url` is a PostgreSQL database that several hosts may share, as
    ``postgresql://user@host/database``. It is empty for SQLite in the run directory.

    The url is kept with the run, so it may hold no password. PostgreSQL's clients take
    one from ``PGPASSWORD``, ``~/.pgpass`` or ``PGPASSFILE``.
    """

    url: str = ""

    def __post_init__(self) -> None:
        if not self.url:
            return
        # No message repeats an address: a password may be in it.
        try:
            parts = urllib.parse.urlsplit(self.url)
            secret = parts.password is not None or "password" in parts.query.lower()
        except ValueError:
            raise InputError("url", "no address", _ALLOWED) from None
        if parts.scheme not in _SCHEMES:
            raise InputError("url", f'of kind "{parts.scheme[:20]}"', _ALLOWED)
        if secret:
            raise InputError(
                "url",
                "an address with a password",
                "one without: it is kept with the run. Put the password into "
                "~/.pgpass or PGPASSWORD",
            )


_ALLOWED = "postgresql://user@host/database, or nothing for SQLite"


_LONGEST_CONTACT = 300


@dataclass(frozen=True, slots=True)
class ContactSettings:
    """``[contact]``: whom people can ask; for the sheet that they are given.

    `responsible` answers for the experiment, `email` reaches them, `officer` is the
    data-protection officer or the ethics board. `purpose` says what the comparison is
    for, `retention` how long what is written down is kept.
    """

    responsible: str = ""
    email: str = ""
    officer: str = ""
    purpose: str = ""
    retention: str = ""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            text = getattr(self, item.name)
            if not text.isprintable() or len(text) > _LONGEST_CONTACT:
                allowed = f"printable, at most {_LONGEST_CONTACT} characters"
                raise InputError(item.name, repr(text), allowed)


DAY_S = 86_400
LONGEST_ROUND_S = 90 * DAY_S


@dataclass(frozen=True, slots=True)
class VisitorSettings:
    """Who may come, how long seats stay open, and who holds the key.

    Attributes
    ----------
    admission : ``enrolled`` (by a certificate), ``invited`` (once, by an invitation) or
        ``open`` (anybody).
    inviter : file with the public key of whoever signs invitations; not the operator's.
    deadline_s : a round closes so long after its seats were opened, at the latest.
    answer_s : how long an answer may take beyond the window. A round closes so long
        after its last seat was taken.
    per_day : people who arrive a day, for plans and simulations; 0: not known.
    trustees : names of the nodes that are to hold the key, for the invitations that
        `wallflower trustee` needs.
    least_trustees : no seat is opened while fewer of them are there.
    """

    admission: str
    inviter: Path | None = None
    deadline_s: float = 7 * DAY_S
    answer_s: float = 3600
    per_day: int = 0
    trustees: tuple[str, ...] = ()
    least_trustees: int = 5

    def __post_init__(self) -> None:
        one_of("admission", self.admission, ADMISSIONS)
        if self.inviter is not None and self.admission != INVITED:
            raise InputError("inviter", self.inviter, f'for admission = "{INVITED}"')
        for name, value in (
            ("deadline-s", self.deadline_s),
            ("answer-s", self.answer_s),
        ):
            if not 0 < value <= LONGEST_ROUND_S:
                raise InputError(name, value, "more than 0, at most 90 days")
        whole("per-day", self.per_day, at_least=0, at_most=10**12)
        whole("least-trustees", self.least_trustees, at_least=2, at_most=1000)
        for name in self.trustees:
            if not name.isprintable() or "/" in name or not name.strip("."):
                allowed = "names of nodes, without a slash: each names a file"
                raise InputError("trustees", f'"{name}"', allowed)
        if self.trustees and len(set(self.trustees)) < self.least_trustees:
            raise InputError(
                "trustees",
                f"{len(set(self.trustees))} names",
                f"least-trustees ({self.least_trustees}) or more, all different",
            )


def check_visitors(
    visitors: VisitorSettings, mechanism: Mechanism, *, backend: str, threat: Threat
) -> None:
    """Refuse an experiment that cannot be made with people who arrive.

    Everybody is a node of their own and may be gone when the sum is opened. So sums
    must be sealed, and the noise must come from the people.
    """
    if backend != SEALED:
        raise InputError("backend", backend, f'"{SEALED}" with [visitors]')
    if mechanism.for_cohort(2, 2, Fraction(1, 2)).user_noise() is None:
        raise InputError(
            "mechanism",
            mechanism.name,
            "one whose noise people add themselves with [visitors], such as dist-dp",
        )
    if visitors.admission == OPEN and threat.malicious_server:
        raise InputError(
            "admission",
            f'"{OPEN}" with a malicious server',
            "enrolled or invited: a server that lies could invent people, so that a "
            "sum hides nobody",
        )
    if threat.malicious_server and visitors.trustees:
        _check_least(visitors, threat)


def _check_least(visitors: VisitorSettings, threat: Threat) -> None:
    """Refuse to begin with so few trustees that those who name all would refuse."""
    named, least = len(set(visitors.trustees)), visitors.least_trustees
    colluders = threat.corrupt_nodes(named)
    while threat.corrupt_nodes(least) < colluders:
        least += 1
    if least > visitors.least_trustees:
        raise InputError(
            "least-trustees",
            visitors.least_trustees,
            f"{least} or more: of {named} trustees {colluders} may collude, and a key "
            "of fewer withstands fewer; or name fewer trustees",
        )


@dataclass(frozen=True, slots=True)
class SecureSumSettings:
    """``[secure-sum]``: whom the sums withstand; sizes follow from it.

    `corrupt` and `dropout` are the largest fractions of a cohort's nodes that collude
    with the server and that vanish. `enrolment` is the file with the public enrolment
    key; without it nothing authenticates the nodes' keys against the server and every
    report says "semi-honest server". `nodes_per_cohort` bounds how many nodes share a
    round's cohorts where nodes hold many users: the cost of a sum grows with its nodes,
    not with their users. 0 takes all nodes. `inputs` ``proved`` makes every node of a
    ``sealed`` sum prove that what it sends is in range, for a δ of 2⁻⁴⁰. `shuffler` is
    the ``host:port`` of the shuffler and `shuffler_files` what it handed out
    (`strategy.transport.shuffler`); the engine ``local`` starts one of its own where
    nothing is said. `shuffle` ``pure`` sends thousands of one-bit messages and needs no
    δ, for ``shuffle-dp``; ``mixed`` sends a dozen shares for a δ of 2⁻⁴⁰, for
    ``dist-dp``.
    """

    backend: str = SEALED
    inputs: str = "trusted"
    corrupt: Fraction = Fraction(1, 10)
    dropout: Fraction = Fraction(1, 10)
    server: str = "semi-honest"
    enrolment: Path | None = None
    nodes_per_cohort: int = 64
    shuffle: str = PURE
    shuffler: str = ""
    shuffler_files: Path | None = None

    def __post_init__(self) -> None:
        whole("nodes-per-cohort", self.nodes_per_cohort, at_least=0)
        check_backend("backend", self.backend)
        one_of("server", self.server, SERVERS)
        one_of("inputs", self.inputs, INPUTS)
        if self.inputs == "proved" and self.backend != SEALED:
            raise InputError("inputs", "proved", f'trusted, or backend = "{SEALED}"')
        one_of("shuffle", self.shuffle, SHUFFLES)
        if self.shuffle != PURE and self.backend != SHUFFLE:
            raise InputError("shuffle", self.shuffle, f'for backend = "{SHUFFLE}"')
        if bool(self.shuffler) != (self.shuffler_files is not None):
            raise InputError(
                "shuffler",
                self.shuffler or "missing",
                "with shuffler-files, or neither",
            )
        for name, value in (("corrupt", self.corrupt), ("dropout", self.dropout)):
            if not 0 <= value < 1:
                raise InputError(name, value, "at least 0 and less than 1")
        if self.corrupt + self.dropout >= 1:
            raise InputError(
                "corrupt + dropout", self.corrupt + self.dropout, "less than 1"
            )

    @property
    def threat(self) -> Threat:
        """Whom the sums withstand."""
        return Threat(
            corrupt=self.corrupt,
            dropout=self.dropout,
            malicious_server=self.server == "malicious",
        )


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """``[transport]``: how requests reach nodes, and how long each may take.

    `kind` ``auto`` is memory for ``local``, flower for ``simulation``, grpc for
    ``deployment``. `stage_timeout_s` bounds every stage of a secure sum; where users
    are shown the arm the window of outcomes comes on top. `join_timeout_s` bounds the
    wait for nodes at the start, `return_timeout_s` the wait for nodes that went away
    when too few are left for the next cohorts. `attempts` bounds how often a void
    cohort is recruited again. `public_address` is the ``host:port`` under
    which nodes reach the gRPC server where that differs from `host` and `port`.
    `certificate`, `private_key`: the gRPC server's; without them an engine on loopback
    makes its own.
    """

    kind: str = "auto"
    host: str = "127.0.0.1"
    port: int = 0
    public_address: str = ""
    certificate: Path | None = None
    private_key: Path | None = None
    stage_timeout_s: float = 60.0
    join_timeout_s: float = 120.0
    return_timeout_s: float = 600.0
    attempts: int = 3

    def __post_init__(self) -> None:
        one_of("kind", self.kind, TRANSPORTS)
        whole("port", self.port, at_least=0, at_most=65535)
        whole("attempts", self.attempts, at_least=1, at_most=100)
        if (self.certificate is None) != (self.private_key is None):
            raise InputError(
                "certificate", "without private-key (or reverse)", "both or neither"
            )
        for name, value in (
            ("stage-timeout-s", self.stage_timeout_s),
            ("join-timeout-s", self.join_timeout_s),
            ("return-timeout-s", self.return_timeout_s),
        ):
            if not 0 < value <= 7 * 86_400:
                raise InputError(name, value, "more than 0, at most a week")


@dataclass(frozen=True, slots=True)
class TestSettings:
    """``[test]``: repeatability at the price of all privacy; never for real people.

    With `noise_seed` users draw noise, rounding and (synthetic) rewards from it and
    cohorts are drawn from it, so that every engine gets the same sums.
    """

    __test__ = False  # not a pytest class

    noise_seed: int | None = None

    def __post_init__(self) -> None:
        if self.noise_seed is not None:
            whole("noise-seed", self.noise_seed, at_least=0)
