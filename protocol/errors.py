"""Every error Wallflower raises on purpose.

::

    WallflowerError
    ├── InputError               a parameter, option or file is wrong        (exit 2)
    │   └── ConfigError          … in a TOML file; knows the file and the key
    ├── RefusalError             a client declines what a server asked for  (exit 4)
    │   └── BudgetError          … because it would spend more than was agreed
    ├── ProtocolError            a message that must not be acted upon
    │   ├── MalformedMessageError    truncated, oversized, garbage, bit-flipped
    │   ├── ReplayedMessageError     seen before, or answered before
    │   ├── WrongContextError        another run, cohort, stage, sender or roster
    │   ├── AuthenticationError      signature, certificate or token does not hold
    │   ├── UnusableKeyError         a public key nobody can agree with, or another's
    │   └── BeyondCapacityError      speaks for more users than it is certified for
    ├── CohortVoidError          no sum is released; the cohort's users stay used
    ├── UnavailableError         a node, server or database cannot be reached  (exit 4)
    │   ├── RandomnessError      … or the system's random numbers cannot be trusted
    │   └── LedgerMismatchError  … or a ledger was rolled back, replaced or copied
    └── JournalError             the record of a run is missing or inconsistent (exit 3)

An error's text says what happened, the values, and what to do. Rewards, noise, shares
and keys never appear in one.
"""

from __future__ import annotations

import difflib
import importlib
import shlex
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from wallflower.protocol.refusals import RefusalCode

_NEAR = 0.66  # of the letters of two words agree, in order


class WallflowerError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class InputError(WallflowerError, ValueError):
    """A parameter is outside its allowed range.

    Examples
    --------
    >>> str(InputError("epsilon", -1, "a positive rational"))
    'epsilon is -1; allowed: a positive rational'
    """

    exit_code = 2

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        self.parameter = parameter
        self.value = value
        self.allowed = allowed
        super().__init__(f"{parameter} is {value}; allowed: {allowed}")


class ConfigError(InputError):
    """A key of a TOML file is unknown, missing or of the wrong kind.

    `where` is the file and perhaps the line and the table, `key` one in that table.
    """

    def __init__(self, where: str, problem: str, key: str = "") -> None:
        self.where = where
        self.problem = problem
        self.key = key
        Exception.__init__(self, f"{where}: {problem}")


class RefusalError(WallflowerError):
    """A client declines a request; the code travels back to the server.

    `code` is a word of `RefusalCode`, `detail` a sentence that holds no secret.
    """

    exit_code = 4

    def __init__(self, code: RefusalCode, detail: str) -> None:
        self.code = code.value
        self.detail = detail
        super().__init__(f"{code}: {detail}")


class TermsError(RefusalError):
    """What was offered is not what the users agreed to; it will be refused again."""


class BudgetError(RefusalError):
    """A request would spend more privacy than the user agreed to."""

    def __init__(self, requested: object, remaining: object, missing: object) -> None:
        super().__init__(
            RefusalCode.BUDGET_EXCEEDED,
            f"requested {requested}, remaining {remaining}, {missing} too much",
        )


class ProtocolError(WallflowerError):
    """A message must not be acted upon; its sender is out of the session.

    `code` is a stable kebab-case word.
    """

    code: str = RefusalCode.PROTOCOL_VIOLATION.value


class MalformedMessageError(ProtocolError):
    """Truncated, oversized, garbage or bit-flipped."""

    code = RefusalCode.MALFORMED_MESSAGE.value


class ReplayedMessageError(ProtocolError):
    """Seen before, or a second answer where one was due."""

    code = RefusalCode.REPLAYED_MESSAGE.value


class WrongContextError(ProtocolError):
    """Belongs to another run, cohort, stage, sender or roster."""

    code = RefusalCode.WRONG_CONTEXT.value


class AuthenticationError(ProtocolError):
    """A signature, certificate or token does not hold."""

    code = RefusalCode.NOT_AUTHENTICATED.value


class UnusableKeyError(ProtocolError):
    """A public key of small order, or one that another party showed before."""

    code = RefusalCode.UNUSABLE_KEY.value


class BeyondCapacityError(ProtocolError):
    """A party speaks for more users than its certificate allows."""

    code = RefusalCode.BEYOND_CAPACITY.value


class CohortVoidError(WallflowerError):
    """No sum is released; the users of the cohort count as used."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code}: {detail}")


class UnavailableError(WallflowerError):
    """A node, gRPC server or database cannot be reached."""

    exit_code = 4


class RandomnessError(UnavailableError):
    """The operating system's generator fails a health test."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"the operating system's random generator is broken: {problem}; no noise "
            "was drawn. Do not serve users on this machine"
        )


class LedgerMismatchError(UnavailableError):
    """A ledger is not where its counter says: rolled back, replaced or copied."""


class JournalError(WallflowerError):
    """The record of a run is missing or inconsistent."""

    exit_code = 3


def command_on(verb: str, path: Path | str) -> str:
    """Return a command to be copied into a shell, whatever the path holds.

    Examples
    --------
    >>> command_on("resume", Path("my run"))
    "wallflower resume 'my run'"
    """
    return f"wallflower {verb} {shlex.quote(str(path))}"


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a TaskGroup: one failure stopped the others."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean "x"?)`` for a near miss, else an empty text.

    A near miss is a slip of the fingers or a part of a name between its hyphens, not
    just any word that shares letters.

    Examples
    --------
    >>> nearest("batch", ["ratio", "first-batch"])
    ' (did you mean "first-batch"?)'
    >>> nearest("server", ["seed", "users"])
    ''
    """
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=_NEAR)
    close += [name for name in known if word in name.split("-")]
    return f' (did you mean "{close[0]}"?)' if close else ""


def not_text(path: Path) -> ConfigError:
    """Return the error that names the line in which a file stops being text."""
    content = path.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return ConfigError(f"{path}:{line}", "is not UTF-8 text")
    return ConfigError(str(path), "changed while it was read")


def optional_module(name: str, extra: str) -> ModuleType:
    """Import what only one feature needs; if it is missing, say what brings it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        package = name.partition(".")[0]
        raise UnavailableError(
            f'{package} is not installed here; pip install "wallflower[{extra}]"'
        ) from None
