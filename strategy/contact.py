"""Whom people can ask, as an experiment's file states it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from wallflower.protocol.errors import InputError

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
