"""Hold the pins against known vulnerabilities, without a network: ``make audit``.

pip-audit and osv-scanner ask a service about every package. Here the advisories lie in
a folder: a clone of ``pypa/advisory-database``, or OSV's own dump of PyPI unpacked (the
same format in YAML and JSON). The last line says until when the folder knows anything;
what was found later, and what nobody has found, it cannot say.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

PINS = Path(__file__).resolve().parent / "pins"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_MISSING = (
    "no advisories in {folder!r}. Fetch them where the network allows it and name the "
    "folder:\n  git clone --depth 1 https://github.com/pypa/advisory-database\n"
    "  make audit ADVISORIES=advisory-database\n"
    "Nothing was checked."
)


@dataclass(frozen=True, slots=True)
class Pin:
    """One package at one version, and the file that says so."""

    name: str
    version: str
    file: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A pin that an advisory names."""

    pin: Pin
    advisory: str
    aliases: tuple[str, ...]
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        known = f" ({', '.join(self.aliases)})" if self.aliases else ""
        mended = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no fix known"
        place = f"deploy/pins/{self.pin.file}"
        return (
            f"{self.pin.name} {self.pin.version}: {self.advisory}{known}, "
            f"{mended}; {place}"
        )


def pins(folder: Path = PINS) -> list[Pin]:
    """Read every pinned version, direct and indirect."""
    return [
        Pin(canonicalize_name(name), version, path.name)
        for path in sorted(folder.glob("*.txt"))
        for name, version in _PIN.findall(path.read_text(encoding="utf-8"))
    ]


def advisories(folder: Path, names: set[str]) -> Iterator[Mapping[str, Any]]:
    """Read the advisories that may name one of these packages."""
    spelled = re.compile("|".join(re.escape(n).replace("-", "[-_.]") for n in names))
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".yaml", ".json") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        if not spelled.search(text.lower()):
            continue
        # JSON is YAML too, but the other reader is slow for large dumps.
        read = json.loads(text) if path.suffix == ".json" else _yaml(text)
        if isinstance(read, dict) and "affected" in read:
            yield read


def findings(
    pinned: Sequence[Pin], known: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """Return every pin that an advisory names; withdrawn ones name nobody."""
    found = []
    for advisory in known:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory["affected"]:
            name = canonicalize_name(affected.get("package", {}).get("name", ""))
            found += [
                Finding(
                    pin,
                    str(advisory["id"]),
                    tuple(advisory.get("aliases") or ()),
                    tuple(sorted(_fixes(affected))),
                )
                for pin in pinned
                if pin.name == name and _is_affected(pin.version, affected)
            ]
    return sorted(found, key=str)


def _is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """Follow OSV's rule: listed by name, or inside a range of versions."""
    wanted = Version(version)
    if any(_same(wanted, str(listed)) for listed in affected.get("versions") or ()):
        return True
    return any(
        _inside(wanted, events)
        for stated in affected.get("ranges") or ()
        if stated.get("type") == "ECOSYSTEM"
        for events in [stated.get("events") or ()]
    )


def _inside(wanted: Version, events: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last event before a version left it affected."""
    steps: list[tuple[Version, int, bool]] = []
    for event in events:
        for kind, value in event.items():
            # A version that is the last affected one is so itself.
            after = 1 if kind == "last_affected" else 0
            if kind in ("introduced", "fixed", "last_affected"):
                steps.append((Version(str(value)), after, kind == "introduced"))
    state = False
    for place, after, begins in sorted(steps):
        if (place, after) <= (wanted, 0):
            state = begins
    return state


def _same(wanted: Version, listed: str) -> bool:
    try:
        return Version(listed) == wanted
    except InvalidVersion:
        return False


def _fixes(affected: Mapping[str, Any]) -> set[str]:
    return {
        str(event["fixed"])
        for stated in affected.get("ranges") or ()
        if stated.get("type") == "ECOSYSTEM"
        for event in stated.get("events") or ()
        if "fixed" in event
    }


def _yaml(text: str) -> Any:
    # Strings only: a version such as 1.10 is no number, a date no date.
    return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 (makes no objects)


def newest(known: Sequence[Mapping[str, Any]]) -> str:
    """Return the day of the last change to any advisory."""
    return max((str(one.get("modified", "")) for one in known), default="")[:10]


def main(words: Sequence[str]) -> int:
    """Print what is known of the pins; 1 for a vulnerability, 2 for no advisories."""
    folder = words[0] if words else ""
    pinned = pins()
    names = {pin.name for pin in pinned}
    known = list(advisories(Path(folder), names)) if folder else []
    if not known:
        print(f"audit: {_MISSING.format(folder=folder)}", file=sys.stderr)
        return 2
    found = findings(pinned, known)
    for one in found:
        print(one)
    print(
        f"audit: {len(found)} of {len(pinned)} pins named by {len(known)} advisories "
        f"about such packages; the newest is of {newest(known)}, later ones are unknown"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
