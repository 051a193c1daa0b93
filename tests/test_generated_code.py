"""Generated code must match the schema it was generated from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_protocol_wire_is_what_make_proto_gives(tmp_path: Path) -> None:
    fresh = tmp_path / "protocol" / "wire"
    fresh.mkdir(parents=True)
    subprocess.run(
        [
            "make",
            "-s",
            "-o",
            "env",
            "proto",
            f"PROTO_OUT={fresh}",
            f"BIN={Path(sys.executable).parent}",
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=100,
    )
    committed = ROOT / "protocol" / "wire"
    generated = {path.name: path.read_text() for path in fresh.iterdir()}
    stored = {path.name: path.read_text() for path in committed.glob("*_pb2*")}
    assert generated.keys() == stored.keys()
    stale = [name for name, text in generated.items() if stored[name] != text]
    assert not stale, f"run `make proto`: {stale} differ from proto/"
