from __future__ import annotations

import subprocess
import sys

import pytest

import wallflower


@pytest.mark.parametrize("name", wallflower.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(wallflower, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="wallflower has no 'bandit'"):
        wallflower.bandit  # noqa: B018


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
