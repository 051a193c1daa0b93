"""Pins are held against advisories in a folder; nothing is asked over a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import audit

PIN = audit.Pin("starlette", "0.26.1", "node.txt")


def advisory(**affected: Any) -> dict[str, Any]:
    return {
        "id": "PYSEC-2023-83",
        "modified": "2023-06-08T05:25:54.818459Z",
        "aliases": ["CVE-2023-29159"],
        "affected": [
            {"package": {"name": "Starlette", "ecosystem": "PyPI"}, **affected}
        ],
    }


def between(*events: dict[str, str]) -> dict[str, Any]:
    return advisory(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


@pytest.mark.parametrize(
    ("events", "hit"),
    [
        (({"introduced": "0"}, {"fixed": "0.27.0"}), True),
        (({"introduced": "0.13.5"}, {"fixed": "0.26.1"}), False),
        (({"introduced": "0.26.1"},), True),
        (({"introduced": "0.27"},), False),
        (({"introduced": "0"}, {"last_affected": "0.26.1"}), True),
        (({"introduced": "0"}, {"last_affected": "0.26.0"}), False),
        (
            ({"introduced": "0"}, {"fixed": "0.2"}, {"introduced": "0.30"}),
            False,
        ),
        (
            ({"introduced": "0.30"}, {"introduced": "0"}, {"fixed": "0.2"}),
            False,
        ),
        (
            ({"introduced": "0"}, {"fixed": "0.2"}, {"introduced": "0.20"}),
            True,
        ),
    ],
)
def test_a_version_is_named_by_the_range_that_holds_it(
    events: tuple[dict[str, str], ...], hit: bool
) -> None:
    assert bool(audit.findings([PIN], [between(*events)])) == hit


def test_a_version_is_named_by_a_list_however_it_is_spelled() -> None:
    assert audit.findings([PIN], [advisory(versions=["odd one", "0.26.1.0"])])
    assert not audit.findings([PIN], [advisory(versions=["0.26.0"])])


def test_a_withdrawn_advisory_names_nobody() -> None:
    given = advisory(versions=["0.26.1"]) | {"withdrawn": "2024-01-01T00:00:00Z"}
    assert audit.findings([PIN], [given]) == []


def test_a_finding_says_what_it_is_and_what_mends_it() -> None:
    (found,) = audit.findings(
        [PIN], [between({"introduced": "0"}, {"fixed": "0.27.0"})]
    )
    assert str(found) == (
        "starlette 0.26.1: PYSEC-2023-83 (CVE-2023-29159), fixed in 0.27.0; "
        "deploy/pins/node.txt"
    )


def test_every_pin_is_read() -> None:
    written = sum(
        line.count("==") and not line.startswith((" ", "#"))
        for path in audit.PINS.glob("*.txt")
        for line in path.read_text().splitlines()
    )
    assert len(audit.pins()) == written > 100


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_vulnerable_pin_in_either_format_fails_the_audit_by_name(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = {pin.name: pin.version for pin in audit.pins()}["starlette"]
    given = advisory(versions=[pinned])
    # JSON is YAML as well.
    (tmp_path / f"PYSEC-2023-83{suffix}").write_text(json.dumps(given))
    assert audit.main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"starlette {pinned}: PYSEC-2023-83" in said
    assert "the newest is of 2023-06-08" in said


def test_pins_that_no_advisory_names_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.yaml").write_text(json.dumps(advisory(versions=["0.0.1"])))
    assert audit.main([str(tmp_path)]) == 0
    assert "audit: 0 of " in capsys.readouterr().out


@pytest.mark.parametrize("named", [True, False])
def test_without_advisories_it_says_that_nothing_was_checked(
    named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([str(tmp_path)] if named else []) == 2
    assert "Nothing was checked." in capsys.readouterr().err
