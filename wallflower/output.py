"""How commands speak: tables for people, one JSON envelope for programs."""

from __future__ import annotations

import html
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from wallflower.marks import mark_of
from wallflower.protocol.errors import InputError, UnavailableError, nearest

if TYPE_CHECKING:
    import pandas
    from rich.console import Console
    from rich.table import Table

SCHEMA_VERSION = 1
FORMATS = ("human", "json")
_PIPE_WIDTH = 130  # where nobody says how wide the reader's screen is
_LEAST_WIDTH = 60  # a terminal that is narrower folds lines itself
_TEXT_WIDTH = 96
_UNBOUNDED = 100_000


def check_format(name: str) -> None:
    """Refuse an unknown --format."""
    if name not in FORMATS:
        raise InputError(
            "format",
            f'"{name}"{nearest(name, FORMATS)}',
            f"one of {', '.join(FORMATS)}",
        )


def print_json(command: str, content: Mapping[str, Any]) -> None:
    """Write the one envelope every command uses."""
    sys.stdout.write(json_text(command, content))


def json_text(command: str, content: Mapping[str, Any]) -> str:
    """Return the one envelope every command uses."""
    envelope = {"schema_version": SCHEMA_VERSION, "command": command, **content}
    # NaN and Infinity are not JSON: fail here rather than in the reader's program.
    text = json.dumps(envelope, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n"


def error_json(text: str, exit_code: int) -> dict[str, Any]:
    """Return what the envelope of a command that failed holds about it."""
    return {"error": {"text": text, "exit_code": exit_code}}


def console() -> Console:
    """Results go to stdout, as wide as the terminal; colours only for a terminal.

    Names are written as they are: ":heart:" is no picture.
    """
    from rich.console import Console

    class Results(Console):
        def on_broken_pipe(self) -> None:
            """Leave the end to the command line; rich would exit with 1."""
            raise BrokenPipeError

    if sys.stdout.isatty():
        width = max(Console().width, _LEAST_WIDTH)
        return Results(highlight=False, emoji=False, width=width)
    return Results(highlight=False, emoji=False, width=_PIPE_WIDTH, no_color=True)


class Plain:
    """Standard output that no terminal shows: no colours, and tables of any width.

    Short commands do without rich, which costs a tenth of their processor time.
    """

    width = _PIPE_WIDTH


def page() -> Console | Plain:
    """Return where paragraphs and tables of words go."""
    return console() if sys.stdout.isatty() else Plain()


def print_text(
    out: Console | Plain, text: str, style: str = "", indent: str = ""
) -> None:
    """Write a paragraph, folded where lines are pleasant to read.

    `indent` stands before its first line; the others begin below its end.
    """
    folded = textwrap.fill(
        text,
        text_width(out),
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_on_hyphens=False,
    )
    if isinstance(out, Plain):
        sys.stdout.write(f"{folded}\n")
    else:
        out.print(folded, style=style or None, markup=False, soft_wrap=True)


def print_line(text: str, indent: str = "") -> None:
    """Write one thing: folded on a terminal, one line for other programs."""
    if sys.stdout.isatty():
        print_text(console(), text, indent=indent)
    else:
        sys.stdout.write(f"{indent}{text}\n")


def text_width(out: Console | Plain) -> int:
    """Return the columns that a paragraph takes at most."""
    return min(_TEXT_WIDTH, out.width)


def table(*headings: str, title: str = "", narrow: bool = False) -> Table:
    """Return a table whose first column is left- and whose others are right-aligned."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    style = box.SIMPLE_HEAD if sys.stdout.isatty() else box.SIMPLE
    result = Table(
        box=style,
        title=escape(title) or None,
        title_justify="left",
        pad_edge=False,
        collapse_padding=narrow,
    )
    for index, heading in enumerate(headings):
        result.add_column(
            heading.replace(" ", "\n") if narrow else heading,
            justify="left" if index == 0 else "right",
            no_wrap=True,
        )
    return result


def print_table(
    out: Console | Plain,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    arms: Sequence[int] = (),
) -> None:
    """Write a table of which nothing is ever cut; `arms` gives each row its arm's mark.

    On a terminal that is too narrow its headings fold, and where that does not suffice
    the columns that do not fit go below, beside the first one again. Names of the
    first column, which may be of any length, fold.
    """
    if isinstance(out, Plain):
        marked = zip_longest(rows, (f"{mark_of(arm).glyph} " for arm in arms))
        cells = [(f"{mark or ''}{row[0]}", *row[1:]) for row, mark in marked]
        sys.stdout.write(_plain_table([tuple(headings), *cells]))
    else:
        _print_table(out, headings, rows, arms)


def _plain_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out, headings first, as :func:`table` does."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = (
            " " * (width - cell_len(cell))
            for cell, width in zip(row, widths, strict=True)
        )
        cells = (f"{blank}{cell}" for blank, cell in zip(others, row[1:], strict=True))
        return " " + "   ".join((f"{row[0]}{first}", *cells)).rstrip()

    rule = " " + "─" * (sum(widths) + 3 * (len(widths) - 1))
    lines = ("", line(rows[0]), rule, *map(line, rows[1:]), "", "")
    return "\n".join(lines)


def _print_table(
    out: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    arms: Sequence[int],
) -> None:
    from rich.measure import Measurement
    from rich.text import Text

    marks = [(f"{mark_of(arm).glyph} ", mark_of(arm).colour) for arm in arms]
    names = [
        Text.assemble(*([] if mark is None else [mark]), row[0])
        for row, mark in zip_longest(rows, marks)
    ]

    def some(columns: Sequence[int], *, narrow: bool) -> Table:
        result = table(*(headings[place] for place in columns), narrow=narrow)
        result.columns[0].no_wrap, result.columns[0].overflow = False, "fold"
        result.columns[0].max_width = max(12, out.width // 3)
        for name, row in zip(names, rows, strict=True):
            result.add_row(name, *(row[place] for place in columns[1:]))
        return result

    def fits(part: Table) -> bool:
        natural = out.options.update_width(_UNBOUNDED)
        return Measurement.get(out, natural, part).maximum <= out.width

    every = range(len(headings))
    for narrow in (False, True):
        if fits(whole := some(every, narrow=narrow)):
            out.print(whole)
            return
    parts = [[0, 1]]
    for place in every[2:]:
        if fits(some([*parts[-1], place], narrow=True)):
            parts[-1].append(place)
        else:
            parts.append([0, place])
    for columns in parts:
        out.print(some(columns, narrow=True))


def data_frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows as a data frame, where pandas is installed."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise UnavailableError(
            "pandas is not installed here; pip install pandas"
        ) from None
    return pandas.DataFrame(list(rows))


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as an HTML table for a notebook; numbers as people read them."""
    if not rows:
        return ""
    names = list(rows[0])
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    lines = (
        "".join(f"<td>{html.escape(_cell_text(row[name]))}</td>" for name in names)
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_page(title: str, paragraphs: Sequence[str], tables: Sequence[str]) -> str:
    """Return what a notebook shows of a result: title, sentences, tables."""
    body = "".join(f"<p>{html.escape(text)}</p>" for text in paragraphs if text)
    return f"<div><strong>{html.escape(title)}</strong>{body}{''.join(tables)}</div>"


def _cell_text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
