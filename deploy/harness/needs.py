"""What the laboratory of hosts needs on this machine, said before anything is built."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence

from deploy.harness.proxy import nginx_program

Programs = dict[str, tuple[Callable[[], str | None], str]]

EXIT_UNAVAILABLE = 4
# Program → how to look for it, and the package that has it (Debian's names).
_SYSTEM = f"{os.defpath}:/usr/sbin:/sbin"
PROGRAMS: Programs = {
    "ip": (
        lambda: shutil.which("ip", path=_SYSTEM),
        "iproute2",
    ),
    "nginx": (nginx_program, "nginx"),
}
# Asked for by name. A clock that nobody could fake would look like a fault survived.
FURTHER: Programs = {"faketime": (lambda: shutil.which("faketime"), "faketime")}


def missing(programs: Programs, user: int) -> list[str]:
    """Say what is missing and how to get it, one line each."""
    lines = [
        f"{name} is not installed: `apt-get install {package}` (or your system's way)"
        for name, (find, package) in programs.items()
        if find() is None
    ]
    if user != 0:
        lines.append("network namespaces need root: run it by `sudo make …`")
    return lines


def main(further: Sequence[str] = ()) -> int:
    """Print what is missing, of `further` programs too; 4 when anything is."""
    programs = PROGRAMS | {name: FURTHER[name] for name in further}
    lines = missing(programs, os.geteuid())
    for line in lines:
        sys.stderr.write(f"cannot build hosts: {line}\n")
    return EXIT_UNAVAILABLE if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
