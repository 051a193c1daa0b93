from __future__ import annotations

import csv
import json
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import wallflower.figures.data as figure_data
from wallflower.cli import main
from wallflower.figures.plan import FIGURES, Figure, Panel, Series
from wallflower.figures.plot import make_figures
from wallflower.strategy.bandit.spec import PolicySpec

SMALL = Figure(
    "small",
    "paper",
    "A small figure",
    tuple(
        Panel(
            f"ε = {epsilon}",
            "easy",
            tuple(
                Series(name, PolicySpec(name, 3, 3000, "dist-dp", Fraction(epsilon)))
                for name in ("elimination", "dp-imed")
            ),
        )
        for epsilon in (1, 2)
    ),
)


def made(folder: Path, instances: int = 3, seed: int = 5) -> list[Path]:
    return [
        path
        for _, paths in make_figures((SMALL,), folder, instances, seed)
        for path in paths
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return made(tmp_path_factory.mktemp("figures"))


def test_a_figure_is_written_as_svg_png_and_csv(written: list[Path]) -> None:
    assert [path.name for path in written] == [
        "small.svg",
        "small.png",
        "small.csv",
    ]


def test_settings_and_seed_are_embedded_in_every_file(written: list[Path]) -> None:
    for path in written:
        content = path.read_bytes().replace(b"&quot;", b'"')
        assert b'"seed": 5' in content, path
        assert b'"mechanism": "dist-dp"' in content, path


def test_the_csv_holds_every_point_of_every_curve(written: list[Path]) -> None:
    path = written[2]
    with path.open(encoding="utf-8") as file:
        header = json.loads(file.readline().removeprefix("# "))
        rows = list(csv.DictReader(file))
    assert header["figure"] == "small"
    assert len(rows) == 4 * figure_data.POINTS
    for row in rows:
        assert float(row["low"]) <= float(row["high"])
        assert 0 <= float(row["mean"]) <= 0.5
    assert float(rows[-1]["users"]) == 3000


def test_a_set_broken_off_goes_on_to_the_same_bytes_without_simulating_again(
    tmp_path: Path, written: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = make_figures((SMALL,), tmp_path, 3, 5)
    for _ in range(3):
        next(steps)
    steps.close()
    honest = figure_data._simulate
    simulated = []

    def counted(panel: Panel, series: Series, *rest: int) -> figure_data.Curve:
        simulated.append((panel.title, series.label))
        return honest(panel, series, *rest)

    monkeypatch.setattr(figure_data, "_simulate", counted)
    resumed = [path.read_bytes() for path in made(tmp_path)]
    assert simulated == [("ε = 2", "dp-imed")]
    assert resumed == [path.read_bytes() for path in written]


def test_another_seed_is_simulated_anew(tmp_path: Path) -> None:
    panel = SMALL.panels[0]
    one, other = (
        figure_data.load_curve(panel, panel.series[0], 3, seed, tmp_path)
        for seed in (5, 6)
    )
    assert one.mean.tolist() != other.mean.tolist()


def test_the_set_covers_the_papers_experiments_and_what_we_add() -> None:
    labels = {
        (figure.group, series.label)
        for figure in FIGURES
        for panel in figure.panels
        for series in panel.series
    }
    for label in ("Dist-DP-SE", "Dist-RDP-SE, s = 10", "Dist-RDP-SE, s = 100"):
        assert ("paper", label) in labels
    for label in ("Central-DP-SE", "LDP-SE", "Dist-CDP-SE, s = 10"):
        assert ("paper", label) in labels
    horizons = {
        (panel.instance, series.spec.horizon)
        for figure in FIGURES
        for panel in figure.panels
        for series in panel.series
    }
    assert {("easy", 10**6), ("hard", 10**7), ("hard", 10**9)} <= horizons


def test_cdp_means_concentrated_privacy_in_every_legend() -> None:
    called = {
        (series.label, series.spec.mechanism)
        for figure in FIGURES
        for panel in figure.panels
        for series in panel.series
        if "CDP" in series.label
    }
    assert called == {("Dist-CDP-SE, s = 10", "dist-cdp")}


def test_the_drawn_legends_are_those_of_the_plan() -> None:
    folder = Path(__file__).parents[2] / "docs" / "figures"
    for figure in FIGURES:
        drawn = (folder / f"{figure.name}.svg").read_text(encoding="utf-8")
        for series in figure.panels[0].series:
            assert f">{series.label}  (" in drawn, (figure.name, series.label)


def test_an_unknown_figure_is_refused_with_a_suggestion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = ["--only", "paper-esy", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["wallflower", "figures", *flags])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert 'did you mean "paper-easy"' in capsys.readouterr().err
