"""The figures as a table, as build/bench.json, and as docs/benchmarks.md with its plots."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure, Figures
from bench.plot import plot

ROOT: Final = Path(__file__).parents[1]
JSON: Final = ROOT / "build" / "bench.json"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
_SIZED: Final = re.compile(r"^(?P<name>.*) [NJ]=(?P<size>\d+)$")
MARK: Final = "<!-- figures: made by `make bench` -->"


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of figures over their size."""

    file: str
    title: str
    size: str
    unit: str
    names: tuple[str, ...]


PLOTS: Final = (
    Plot(
        "bench-gang-time.svg",
        "Time until a job of N replicas is settled",
        "replicas",
        "seconds",
        ("start: time", "loss: time", "rerun: time", "end: time"),
    ),
    Plot(
        "bench-gang-reads.svg",
        "Firestore reads per replica",
        "replicas",
        "reads per replica",
        tuple(f"{phase}: reads per replica" for phase in ("start", "loss", "rerun", "end")),
    ),
    Plot(
        "bench-queue.svg",
        "Draining an admission queue of J jobs",
        "jobs",
        "per job",
        ("queue: time per job", "queue: reads per job", "queue: writes per job"),
    ),
    Plot("bench-sweep.svg", "One sweep over J running jobs", "jobs", "", ("sweep: time", "sweep: reads per job")),
    Plot(
        "bench-job-cost.svg",
        "Cost of one job in which nothing fails",
        "replicas",
        "documents, invocations",
        ("job cost: reads", "job cost: writes", "job cost: invocations"),
    ),
)


def table(figures: Figures) -> Iterator[str]:
    """Yield the lines of the table that `make bench` prints."""
    for name, figure in figures.items():
        floor = f"{figure.floor:12.4g} {figure.ratio:7.2f}" if figure.floor and figure.ratio is not None else " " * 20
        verdict = ("ok" if figure.is_within_limits else "OVER THE LIMIT") if figure.limit else ""
        yield f"{name:48s} {figure.value:12.4g} {figure.unit:12s} {floor}  {figure.limit:26s} {verdict}"


def write_json(figures: Figures, path: Path = JSON) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {name: _document(figure) for name, figure in figures.items()}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path = JSON) -> Figures:
    """Return the figures of an earlier run. Empty: there was none."""
    if not path.exists():
        return {}
    fields = ("value", "unit", "floor", "ratio_max", "ratio_min", "value_max")
    documents = json.loads(path.read_text(encoding="utf-8"))
    return {name: Figure(**{key: document[key] for key in fields}) for name, document in documents.items()}


def _document(figure: Figure) -> dict[str, Any]:
    return {
        "value": figure.value,
        "unit": figure.unit,
        "floor": figure.floor,
        "ratio": figure.ratio,
        "ratio_max": figure.ratio_max,
        "ratio_min": figure.ratio_min,
        "value_max": figure.value_max,
        "is_within_limits": figure.is_within_limits,
    }


def write_page(figures: Figures, page: Path = PAGE) -> None:
    """Replace the figures in the page, and write the plots into the folder `images` beside it."""
    text = page.read_text(encoding="utf-8").partition(MARK)[0]
    lines = [MARK, "", *_machine(), "", *_plots(figures, page.parent / "images"), *_markdown(figures)]
    page.write_text(text + "\n".join(lines), encoding="utf-8")


def _machine() -> list[str]:
    load = os.getloadavg()[0]
    where = f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}"
    return [f"Measured on {datetime.now(UTC):%Y-%m-%d} on {where}, with a load average of {load:.1f} at the end."]


def _plots(figures: Figures, images: Path) -> Iterator[str]:
    for chart in PLOTS:
        series: dict[str, list[tuple[float, float]]] = {}
        for name, figure in figures.items():
            match = _SIZED.match(name)
            if match and match["name"] in chart.names and figure.value > 0:
                label = match["name"] if figure.unit in match["name"].split() else f"{match['name']} ({figure.unit})"
                series.setdefault(label, []).append((float(match["size"]), figure.value))
        if series:
            image = plot(chart.title, chart.size, chart.unit, {name: sorted(line) for name, line in series.items()})
            (images / chart.file).write_text(image, encoding="utf-8")
            yield f"![{chart.title}](images/{chart.file})"
            yield ""


def _markdown(figures: Figures) -> Iterator[str]:
    yield "| figure | value | floor | ratio | limit |"
    yield "| --- | --- | --- | --- | --- |"
    for name, figure in figures.items():
        floor = f"{figure.floor:.4g} {figure.unit}" if figure.floor else ""
        ratio = f"{figure.ratio:.2f}" if figure.ratio else ""
        limit = f"{figure.limit}{'' if figure.is_within_limits else ' (**exceeded**)'}"
        yield f"| {name} | {figure.value:.4g} {figure.unit} | {floor} | {ratio} | {limit} |"
    yield ""
