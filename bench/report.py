"""The figures as a table, as build/bench.json, and as docs/benchmarks.md with its plots."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from bench.figures import Figure, Figures

WIDTH: Final = 680
HEIGHT: Final = 320
LEFT, RIGHT, TOP, BOTTOM = 70, 200, 40, 45
COLORS: Final = ("#1a73e8", "#d93025", "#188038", "#f9ab00", "#9334e6", "#5f6368")
Series = Mapping[str, Sequence[tuple[float, float]]]
"""Name of a line → its points: size and value, both positive."""
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
    document = {
        name: {**asdict(figure), "ratio": figure.ratio, "is_within_limits": figure.is_within_limits}
        for name, figure in figures.items()
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path = JSON) -> Figures:
    """Return the figures of an earlier run. Empty: there was none."""
    if not path.exists():
        return {}
    documents = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: Figure(**{field.name: document[field.name] for field in fields(Figure)})
        for name, document in documents.items()
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


def plot(title: str, x_label: str, y_label: str, series: Series) -> str:
    """Return the SVG document. `series` has at least one point."""
    points = [point for line in series.values() for point in line]
    x_range = _decades([x for x, _ in points])
    y_range = _decades([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_range[0]) / (x_range[1] - x_range[0])
        up = (math.log10(y) - y_range[0]) / (y_range[1] - y_range[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 22, title, "start", "bold"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label),
        _text(LEFT, 36, y_label, "start"),
    ]
    for decade in range(x_range[0], x_range[1] + 1):
        x, bottom = place(10.0**decade, 10.0 ** y_range[0])
        parts += [_line((x, TOP), (x, bottom)), _text(x, bottom + 16, f"{10.0**decade:,g}")]
    for decade in range(y_range[0], y_range[1] + 1):
        left, y = place(10.0 ** x_range[0], 10.0**decade)
        parts += [_line((left, y), (WIDTH - RIGHT, y)), _text(left - 6, y + 4, f"{10.0**decade:,g}", "end")]
    for number, (name, line) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for point in line:
            x, y = place(*point)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
        legend_y = TOP + 12 + 18 * number
        parts.append(f'<circle cx="{WIDTH - RIGHT + 14}" cy="{legend_y - 4}" r="4" fill="{color}"/>')
        parts.append(_text(WIDTH - RIGHT + 24, legend_y, name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _text(x: float, y: float, text: str, anchor: str = "middle", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    return f'<path d="M{start[0]:.1f} {start[1]:.1f}L{end[0]:.1f} {end[1]:.1f}" stroke="#dadce0"/>'
