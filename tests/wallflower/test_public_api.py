from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mypy.api
import pytest

import wallflower

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", wallflower.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(wallflower, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="wallflower has no 'bandit'"):
        getattr(wallflower, "bandit")  # noqa: B009 (known to be wrong)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, wallflower.cli;"
        "print([m for m in ('flwr','ray','matplotlib','dp_accounting','numpy')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_type_checker_refuses_a_name_that_is_not_there(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(
        "import wallflower\nwallflower.load_run\nwallflower.nonexistent\n",
        encoding="utf-8",
    )
    # Without what it imports: only the names themselves are looked at.
    output, _, _ = mypy.api.run(
        [
            "--follow-imports=skip",
            "--explicit-package-bases",
            "--disable-error-code=import-not-found",
            "--config-file=",
            f"--cache-dir={tmp_path / 'cache'}",
            str(ROOT / "wallflower" / "__init__.py"),
            str(user),
        ]
    )
    assert 'Module has no attribute "nonexistent"' in output
    assert "load_run" not in output


def test_no_public_name_is_a_module_too() -> None:
    """Importing the module would put it in the place of the name."""
    modules = {path.stem for path in (ROOT / "wallflower").iterdir()}
    assert modules & set(wallflower.__all__) == set()
