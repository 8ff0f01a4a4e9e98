"""Every measurement of `make bench` works, with one small size, and its figures are stored and published."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import report
from bench.__main__ import FIGURE_OF, QUICK, main, missing_measurements, run
from bench.cloud import Emulators
from bench.figures import Figure, Figures

ROOT = Path(__file__).parents[3]


@pytest.mark.heavy
def test_quick_benchmark_measures_everything(firestore_emulator: str, pubsub_emulator: str, tmp_path: Path) -> None:
    figures: Figures = {}
    run(QUICK, Emulators(firestore_emulator, pubsub_emulator), figures, tmp_path / "bench.json")
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert stored.keys() == figures.keys()
    groups = {name.partition(":")[0] for name in figures}
    assert groups == {
        "memory",
        "warm event",
        "throughput",
        "delivery",
        "job cost",
        "queue",
        "sweep",
        *("start", "rerun", "restart", "loss", "end"),
    }
    assert all(figure.value > 0 for name, figure in figures.items() if "time" in name)
    assert figures["loss: inserts N=3"].value == 1
    assert figures["loss: failed deliveries N=3"].value == 0


@pytest.mark.parametrize(
    ("figure", "is_within"),
    [
        (Figure(1.5, "ms", 1.0, ratio_max=1.5), True),
        (Figure(1.6, "ms", 1.0, ratio_max=1.5), False),
        (Figure(70, "events/s", 100, ratio_min=0.7), True),
        (Figure(69, "events/s", 100, ratio_min=0.7), False),
        (Figure(12, "listings", value_max=12), True),
        (Figure(13, "listings", value_max=12), False),
        (Figure(13, "listings"), True),
    ],
)
def test_each_limit_of_a_figure_is_checked(figure: Figure, is_within: bool) -> None:
    assert figure.is_within_limits is is_within
    (line,) = report.table({"name": figure})
    assert ("OVER THE LIMIT" in line) is not is_within


def test_page_is_not_written_without_all_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page written from incomplete figures would lose the others."""
    monkeypatch.setattr("bench.report.read_json", lambda: {"throughput: 8 threads": Figure(1, "events/s")})
    monkeypatch.setattr("sys.argv", ["bench", "--only", "delivery", "gang-1", "--page"])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert "has none of warm-events, job-cost, queue, sweep, gang-10, gang-100, gang-1000: run" in error
    monkeypatch.setattr("sys.argv", ["bench", "--quick", "--page"])
    with pytest.raises(SystemExit):
        main()


def test_figures_of_the_page_have_one_of_each_measurement() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [name for name, figure in FIGURE_OF.items() if f"| {figure} |" not in page] == []
    assert missing_measurements(dict.fromkeys(FIGURE_OF.values(), Figure(1, "s"))) == []


def test_figures_are_stored_and_read_back(tmp_path: Path) -> None:
    figures = {"a": Figure(1.5, "ms", 1.0, ratio_max=1.5), "b N=10": Figure(3, "reads", value_max=5)}
    report.write_json(figures, tmp_path / "bench.json")
    assert report.read_json(tmp_path / "bench.json") == figures
    assert report.read_json(tmp_path / "absent.json") == {}


def test_page_has_a_plot_of_each_sized_figure_and_a_row_of_every_figure(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    (tmp_path / "images").mkdir()
    page.write_text(f"# Benchmarks\n\n{report.MARK}\nold figures")
    figures = {f"loss: time N={size}": Figure(size / 50, "s") for size in (1, 10, 100, 1000)}
    report.write_page({**figures, "other": Figure(2.0, "ms", 1.0)}, page)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n")
    assert "old figures" not in text
    assert "| other | 2 ms | 1 ms | 2.00 |  |" in text
    plot = ElementTree.fromstring((tmp_path / "images" / "bench-gang-time.svg").read_text())  # noqa: S314 - our own
    assert len(plot.findall(".//{http://www.w3.org/2000/svg}polyline")) == 1
    assert "images/bench-gang-time.svg" in text
    assert "bench-queue.svg" not in text
