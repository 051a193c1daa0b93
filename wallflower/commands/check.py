"""``wallflower check``: everything that can be known before anybody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wallflower.commands.options import EngineOptions, Format

if TYPE_CHECKING:
    from wallflower.engines.preflight import CheckLine


def check(
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment's TOML file, or a node's node.toml.", metavar="FILE"
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(help="local, simulation, deployment or fast.", metavar="NAME"),
    ] = "local",
    run_dir: Annotated[
        Path, typer.Option(help="Where the record would go.", metavar="FOLDER")
    ] = Path("runs"),
    option: EngineOptions = None,
    output: Format = "human",
) -> None:
    """Look at everything a run needs, without asking anybody; exit 2 or 4 if it fails.

    `run` does the same by itself before it invites anybody.
    """
    from wallflower.engines.registry import find_engine
    from wallflower.engines.run import engine_options
    from wallflower.output import check_format, print_json, print_line
    from wallflower.protocol.files.settings import read_toml

    check_format(output)
    if {"node", "policy"} & read_toml(file).keys() and file.name == "node.toml":
        from wallflower.engines.node_check import check_home

        lines = check_home(file.parent)
    else:
        find_engine(engine)
        lines = _experiment(file, engine, run_dir, engine_options(option))
    failed = [line.error for line in lines if line.error is not None]
    if output == "json":
        said = [_line_json(line) for line in lines]
        print_json("check", {"file": str(file), "ready": not failed, "checks": said})
    else:
        for line in lines:
            print_line(f"{line.name}: {line.text}", f"{line.level:<5}")
        print_line(_verdict(lines))
    if failed:
        raise typer.Exit(failed[0].exit_code)


def _line_json(line: CheckLine) -> dict[str, Any]:
    said = {"name": line.name, "level": line.level, "text": line.text}
    return {**said, "arms": [one.as_json() for one in line.arms]} if line.arms else said


def _experiment(
    file: Path, engine: str, run_dir: Path, options: tuple[tuple[str, str], ...]
) -> list[CheckLine]:
    from wallflower.engines.population import hosted_people
    from wallflower.engines.preflight import OK, WARN, CheckLine, Preflight, preflight
    from wallflower.planning.plan import describe_outlook
    from wallflower.strategy.config import load_config
    from wallflower.strategy.run.drawing import find_stranded

    config = load_config(file)
    asked = Preflight(config, engine, run_dir, options)
    lines = preflight(asked)
    if all(line.error is None for line in lines):
        people = hosted_people(config).values() if asked.hosted else ()
        sizes = tuple(n for one in people if (n := one.users - one.left_out))
        stranded = find_stranded(config, sizes) if sizes else None
        if stranded is not None:
            lines.append(CheckLine("users", WARN, stranded.describe()))
        enough, text = describe_outlook(config)
        lines.append(CheckLine("plan", OK if enough else WARN, text))
    return lines


def _verdict(lines: list[CheckLine]) -> str:
    failed = sum(line.level == "fail" for line in lines)
    warned = sum(line.level == "warn" for line in lines)
    if failed:
        return f"Not ready: {failed} of {len(lines)} checks fail."
    beside = f", {warned} with a warning" if warned else ""
    return f"Ready{beside}. Nobody was asked and nothing was written."
