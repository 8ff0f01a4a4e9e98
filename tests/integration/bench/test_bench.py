"""Every measurement of `make bench` works, with one small size, and its figures are stored and
published.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report
from bench.__main__ import QUICK, run
from bench.cloud import Emulators
from bench.figures import Figure
from bench.report import Row


@pytest.mark.heavy(
    fact="each measurement of `make bench` works",
    quick="`integration/cost`, `integration/bench/test_peers.py`",
)
def test_quick_benchmark_measures_everything(firestore_emulator: str, tmp_path: Path) -> None:
    data_file = tmp_path / "benchmarks.json"
    figures = run(QUICK, Emulators(firestore_emulator), data_file)
    stored = json.loads(data_file.read_text())
    assert [row["name"] for row in stored["rows"]] == list(figures)
    groups = {name.partition(":")[0] for name in figures}
    assert groups == {"queue", "sweep", "start", "rerun", "restart", "loss", "end"}
    assert all(figure.value > 0 for name, figure in figures.items() if "time" in name)
    assert figures["loss: inserts N=3"].value == 1
    assert figures["loss: failed deliveries N=3"].value == 0


@pytest.mark.parametrize(
    ("figure", "is_within"),
    [
        (Figure(12, "listings", value_max=12), True),
        (Figure(13, "listings", value_max=12), False),
        (Figure(13, "listings"), True),
    ],
)
def test_each_limit_of_a_figure_is_checked(figure: Figure, is_within: bool) -> None:
    assert figure.is_within_limits is is_within
    (line,) = report.table({"name": figure})
    assert ("OVER THE LIMIT" in line) is not is_within


def test_measured_rows_replace_theirs_and_keep_the_others(tmp_path: Path) -> None:
    data_file = tmp_path / "benchmarks.json"
    exit_ = Row(
        "exit: next step",
        "s",
        {"Trainmaster": [2.0, 1.0, 4.0], "torchrun": [3.0]},
        {"Ray": "ends"},
        [0.5, 2.0],
    )
    sized = [Row(f"loss: time N={size}", "s", {"Trainmaster": [size / 50]}) for size in (1, 1000)]
    report.store([exit_, *sized], {"torchrun": "2.13.0"}, data_file)
    report.store([Row("loss: time N=1000", "s", {"Trainmaster": [7.0]})], data_file=data_file)
    text = report.page_part(data_file)
    assert "torchrun 2.13.0" in text
    assert "| | unit | Trainmaster | torchrun | Ray | n | load | on | commit |" in text
    measured = f"{exit_.on} | {exit_.commit}"
    assert f"| exit: next step | s | 2 (1 to 4) | 3 | ends | 3 | 0.5 to 2 | {measured} |" in text
    assert "| loss: time N=1000 | s | 7 |" in text
    assert "N=1 |" not in text, "of a row with sizes, the page shows the largest"
    rows = json.loads(data_file.read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "exit: next step",
        "loss: time N=1",
        "loss: time N=1000",
    ]
    assert rows[0]["values"]["Trainmaster"] == [2.0, 1.0, 4.0]


def test_run_of_one_system_keeps_the_cells_and_loads_of_the_others(tmp_path: Path) -> None:
    data_file = tmp_path / "benchmarks.json"
    report.store(
        [Row("exit", "s", {"torchrun": [3.0]}, {"Ray": "ends"}, [2.0])], data_file=data_file
    )
    report.store([Row("exit", "s", {"Ray": [5.0]}, loads=[0.5])], data_file=data_file)
    assert "| exit | s |  | 3 | 5 | 1 | 0.5 to 2 |" in report.page_part(data_file)
    report.store(
        [Row("exit", "s", {"torchrun": [4.0], "Ray": [6.0]}, loads=[1.0])], data_file=data_file
    )
    assert "| exit | s |  | 4 | 6 | 1 | 1 to 1 |" in report.page_part(data_file)
