"""Where the command begins, also by ``python -m wallflower``.

Importing the command line takes a third of a second; Ctrl-C then is no traceback.
"""

from __future__ import annotations

import io
import os
import sys

_STREAMS = {0: ("stdin", "r"), 1: ("stdout", "w"), 2: ("stderr", "w")}


def main() -> None:
    """Run the command line."""
    fill_closed_streams()
    _speak_utf_8()
    try:
        from wallflower import cli
    except KeyboardInterrupt:
        sys.stderr.write("wallflower: interrupted\n")
        sys.exit(130)
    cli.main()


def fill_closed_streams() -> None:
    """Open what the shell closed, such as by ``2>&-``, on nothing.

    A file opened later would get the free number, and what libraries write to standard
    error would land in it: in the database of a run.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) in _STREAMS:
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in _STREAMS.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _speak_utf_8() -> None:
    """Write UTF-8 on every machine; names of files that are no text as they are."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


if __name__ == "__main__":
    main()
