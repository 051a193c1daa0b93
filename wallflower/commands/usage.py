"""What typer raises for wrong words, whichever copy of click it runs on.

Typer ran on the package click; newer versions bring a copy of their own, whose errors
are other classes. Both are found through typer itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from click.exceptions import ClickException as ClickException
    from click.exceptions import NoArgsIsHelpError as NoArgsIsHelpError
else:
    _errors = importlib.import_module(typer.BadParameter.__module__)
    ClickException = _errors.ClickException
    NoArgsIsHelpError = _errors.NoArgsIsHelpError
