"""What the laboratory of hosts needs on this machine, said before anything is built."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable

from deploy.harness.proxy import nginx_program

EXIT_UNAVAILABLE = 4
# Program → how to look for it, and the package that has it (Debian's names).
_SYSTEM = f"{os.defpath}:/usr/sbin:/sbin"
PROGRAMS: dict[str, tuple[Callable[[], str | None], str]] = {
    "ip": (
        lambda: shutil.which("ip", path=_SYSTEM),
        "iproute2",
    ),
    "nginx": (nginx_program, "nginx"),
}


def missing(
    programs: dict[str, tuple[Callable[[], str | None], str]], user: int
) -> list[str]:
    """Say what is missing and how to get it, one line each."""
    lines = [
        f"{name} is not installed: `apt-get install {package}` (or your system's way)"
        for name, (find, package) in programs.items()
        if find() is None
    ]
    if user != 0:
        lines.append("network namespaces need root: run it by `sudo make …`")
    return lines


def main() -> int:
    """Print what is missing; 4 when anything is."""
    lines = missing(PROGRAMS, os.geteuid())
    for line in lines:
        sys.stderr.write(f"cannot build hosts: {line}\n")
    return EXIT_UNAVAILABLE if lines else 0


if __name__ == "__main__":
    sys.exit(main())
