"""Run the command line by ``python -m wallflower``."""

from wallflower.cli import main

main()
