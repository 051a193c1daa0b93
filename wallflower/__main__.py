"""Where the command begins, also by ``python -m wallflower``.

Importing the command line takes a third of a second; Ctrl-C then is no traceback.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from wallflower import cli
    except KeyboardInterrupt:
        sys.stderr.write("wallflower: interrupted\n")
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
