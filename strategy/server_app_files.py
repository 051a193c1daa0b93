"""Names of the files that a ServerApp leaves in the run directory for its launcher."""

from __future__ import annotations

from typing import Final

FAILURE_FILE: Final = "failure.json"  # what ended the run early: class, text, exit code
