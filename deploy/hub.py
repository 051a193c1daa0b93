"""Build the Flower app and run flwr's own publish checks on it: ``make hub``.

``flwr app publish`` logs in first and checks afterwards. Here the same checks run
without a network: name, description, license, files, sizes, encoding, format version.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

from flwr.cli.build import build_fab_from_disk, get_fab_filename
from flwr.cli.config_utils import load_and_validate
from flwr.cli.utils import get_sha256_hash

from wallflower.engines.flower import app_folder

# By name: the package gives the command's function under the same one.
publish = importlib.import_module("flwr.cli.app_cmd.publish")


def check(app: Path) -> list[Path]:
    """Run all that flwr checks before an upload; give the files it would send.

    Raises
    ------
    click.ClickException
        What flwr would not take, in its own words.
    """
    config, _ = load_and_validate(app / "pyproject.toml", check_module=False)
    publish._validate_app_name(app.name, "Flower App directory name")
    publish._validate_description(config["project"].get("description", ""))
    files: list[Path] = publish._collect_file_paths(app)
    publish._validate_files(files)
    return files


def build(app: Path, folder: Path) -> Path:
    """Write the bundle, which flwr holds against its declared format; give its path."""
    content = build_fab_from_disk(app)
    folder.mkdir(parents=True, exist_ok=True)
    unnamed = folder / "wallflower.fab"
    unnamed.write_bytes(content)
    config, _ = load_and_validate(app / "pyproject.toml", check_module=False)
    named = folder / get_fab_filename(config, get_sha256_hash(unnamed))
    return unnamed.rename(named)


def main() -> None:
    """Check and build the installed app."""
    with warnings.catch_warnings():
        # flwr's own use of pathspec
        warnings.simplefilter("ignore", DeprecationWarning)
        files = check(app_folder())
        bundle = build(app_folder(), Path("dist"))
    for file in files:
        sys.stdout.write(f"  {file.relative_to(app_folder())}\n")
    sys.stdout.write(f"{bundle}: {bundle.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
