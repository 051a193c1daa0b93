"""Ways to damage a run directory, each drawn from a seed.

A kind takes a directory and a source of randomness, damages one thing, and returns what
it did, with the name of the file. Real disks flip bits, cut files and lose them; people
put back old copies, edit tables, and leave other things under a file's name.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], str]

JOURNAL, LEDGER, EVENTS = "journal.sqlite", "ledger.sqlite", "events.jsonl"
DEEP = "[" * 100_000
_FOREIGN = {
    "nothing": b"",
    "zeros": bytes(8192),
    "deep nesting": DEEP.encode() + b"\n",
    "no text": b"\xff\xfe\x00\n" * 50,
    "a line of text": b"not what should stand here\n",
}
_LAST = "(SELECT max(number) FROM round)"
_COHORTS = f"(SELECT cohort_id FROM cohort WHERE round >= {_LAST})"
_CUT_TAIL = (
    f"DELETE FROM invitation WHERE cohort_id IN {_COHORTS}",
    f"DELETE FROM blame WHERE cohort_id IN {_COHORTS}",
    f"DELETE FROM returned WHERE cohort_id IN {_COHORTS}",
    f"DELETE FROM cohort WHERE round >= {_LAST}",
    f"DELETE FROM round WHERE number = {_LAST}",
    "DELETE FROM entry WHERE number > (SELECT coalesce(max(number), 1) FROM entry "
    f"WHERE kind = 'round' AND CAST(subject AS INTEGER) < {_LAST} + 1 AND number < "
    "(SELECT max(number) FROM entry WHERE kind = 'round'))",
)


def _files(run_dir: Path) -> list[Path]:
    """Return the files with content that commands read, the same order every time."""
    return sorted(
        path
        for path in run_dir.iterdir()
        if path.is_file() and path.stat().st_size and not path.name.endswith("-shm")
    )


def flip_bit(run_dir: Path, rng: random.Random) -> str:
    """Flip one bit of one file."""
    path = rng.choice(_files(run_dir))
    content = bytearray(path.read_bytes())
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} of {path.name} flipped"


def zero_sector(run_dir: Path, rng: random.Random) -> str:
    """Write zeros where a sector of one file was that holds anything."""
    path = rng.choice(_files(run_dir))
    content = bytearray(path.read_bytes())
    start = rng.choice(
        [
            place
            for place in range(0, len(content), 512)
            if any(content[place : place + 512])
        ]
    )
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    path.write_bytes(content)
    return f"sector at {start} of {path.name} is zeros"


def cut_file(run_dir: Path, rng: random.Random) -> str:
    """Cut one file short."""
    path = rng.choice(_files(run_dir))
    kept = rng.randrange(path.stat().st_size)
    path.write_bytes(path.read_bytes()[:kept])
    return f"{path.name} cut to {kept} bytes"


def lose_file(run_dir: Path, rng: random.Random) -> str:
    """Take one file away."""
    path = rng.choice(_files(run_dir))
    path.unlink()
    return f"{path.name} is gone"


def replace_file(run_dir: Path, rng: random.Random) -> str:
    """Leave something else under a file's name."""
    path = rng.choice(_files(run_dir))
    what = rng.choice([*_FOREIGN, "a folder", "a loop of links"])
    path.unlink()
    if what == "a folder":
        path.mkdir()
    elif what == "a loop of links":
        path.symlink_to(path)
    else:
        path.write_bytes(_FOREIGN[what])
    return f"{path.name} is {what}"


def damage_line(run_dir: Path, rng: random.Random) -> str:
    """Damage one line of the events: a letter, its end, or the whole of it."""
    path = run_dir / EVENTS
    lines = path.read_bytes().splitlines(keepends=True)
    number = rng.randrange(len(lines))
    what = rng.choice(("a digit", "cut", "twice", "gone", "binary", "nested"))
    line = lines[number]
    digits = [at for at, byte in enumerate(line) if chr(byte) in "0123456789abcdef"]
    at = rng.choice(digits)
    other = b"0" if line[at : at + 1] != b"0" else b"1"
    changed = {
        "a digit": line[:at] + other + line[at + 1 :],
        "cut": line[:at] + b"\n",
        "twice": line + line,
        "gone": b"",
        "binary": b"\xff\xfe\x00\n",
        "nested": DEEP.encode() + b"\n",
    }
    lines[number] = changed[what]
    path.write_bytes(b"".join(lines))
    return f"line {number} of {EVENTS}: {what}"


def change_row(run_dir: Path, rng: random.Random) -> str:
    """Change one value of one row of the journal to what nobody would write."""
    with contextlib.closing(sqlite3.connect(run_dir / JOURNAL)) as database:
        table = rng.choice(_tables(database))
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        column = rng.choice(columns)
        _loosen(database)
    with contextlib.closing(sqlite3.connect(run_dir / JOURNAL)) as database:
        rows = database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        chosen = rng.choice(rows)
        old = chosen[columns.index(column)]
        new = _foreign_value(old, rng)
        where = " AND ".join(f"{name} IS ?" for name in columns)
        with contextlib.suppress(sqlite3.IntegrityError):
            database.execute(
                f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *chosen)
            )
        database.commit()
    return f"{JOURNAL}: {table}.{column} of a row is {str(new)[:30]!r}"


def remove_row(run_dir: Path, rng: random.Random) -> str:
    """Remove one row of the journal."""
    with contextlib.closing(sqlite3.connect(run_dir / JOURNAL)) as database:
        table = rng.choice(_tables(database))
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        rows = database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        where = " AND ".join(f"{name} IS ?" for name in columns)
        database.execute(f"DELETE FROM {table} WHERE {where}", rng.choice(rows))
        database.commit()
    return f"{JOURNAL}: a row of {table} is gone"


def cut_tail(run_dir: Path, rng: random.Random) -> str:
    """Cut the last round off the journal, and off its chain."""
    with contextlib.closing(sqlite3.connect(run_dir / JOURNAL)) as database:
        for statement in _CUT_TAIL:
            database.execute(statement)
        database.commit()
    return f"{JOURNAL}: the last round and its entries are gone"


def lose_spends(run_dir: Path, rng: random.Random) -> str:
    """Remove one row of the hosted ledger, or change the people in it."""
    with contextlib.closing(sqlite3.connect(run_dir / LEDGER)) as database:
        database.execute("DROP TRIGGER spend_is_not_changed")
        database.execute("DROP TRIGGER spend_is_not_removed")
        (number,) = rng.choice(database.execute("SELECT number FROM spend").fetchall())
        what = rng.choice(("gone", "[", "5", '["nobody"]', DEEP))
        if what == "gone":
            database.execute("DELETE FROM spend WHERE number = ?", (number,))
        else:
            change = "UPDATE spend SET users = ? WHERE number = ?"
            database.execute(change, (what, number))
        database.commit()
    return f"{LEDGER}: users of a spend: {what[:20]}"


def leave_request(run_dir: Path, rng: random.Random) -> str:
    """Leave a request that no command writes: no text, a folder, no such arm."""
    name = rng.choice(("pause", "retire-0", "retire-99", "lock"))
    path = run_dir / name
    path.unlink(missing_ok=True)
    what = rng.choice(("a folder", "no text", "a loop of links"))
    if what == "a folder":
        path.mkdir()
    elif what == "no text":
        path.write_bytes(b"\xff\xfe")
    else:
        path.symlink_to(path)
    return f"{name} is {what}"


KINDS: tuple[Damage, ...] = (
    flip_bit,
    zero_sector,
    cut_file,
    lose_file,
    replace_file,
    damage_line,
    change_row,
    remove_row,
    cut_tail,
    lose_spends,
    leave_request,
)


def damage_copy(specimen: Path, copy: Path, seed: int) -> str:
    """Copy a run directory and damage the copy; return what was done."""
    shutil.copytree(specimen, copy)
    rng = random.Random(seed)
    return KINDS[seed % len(KINDS)](copy, rng)


def _tables(database: sqlite3.Connection) -> list[str]:
    names = [
        name
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
    ]
    return [
        name
        for name in names
        if database.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()
    ]


def _loosen(database: sqlite3.Connection) -> None:
    """Make the tables accept what they were made to refuse."""
    database.execute("PRAGMA writable_schema = ON")
    database.execute("UPDATE sqlite_master SET sql = replace(sql, ' STRICT', '')")
    database.commit()


def _foreign_value(old: object, rng: random.Random) -> object:
    if isinstance(old, int | float):
        return rng.choice((old + 1, -old - 1, "x", b"\xff", 10**18))
    if isinstance(old, bytes):
        return rng.choice((b"", old[: len(old) // 2], old + b"\x00", b"\xff" * 9))
    text = str(old)
    at = rng.randrange(max(1, len(text)))
    swapped = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :] if text else "x"
    return rng.choice((swapped, text[:at], DEEP, b"\xff", "[", json.dumps([text]), ""))
