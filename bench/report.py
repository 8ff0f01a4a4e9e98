"""The rows of docs/benchmarks.json, which has every value.

The table of docs/benchmarks.md and its plots are made of it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench.figures import Figures

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT / "docs" / "benchmarks.json"
# The Python that draws plots; `make bench-peers` installs it.
PLOTTER: Final = ROOT / "build" / "peers" / "plots" / "bin" / "python"
OURS: Final = "Trainmaster"
"""Name of the first system in all tables; the others are its peers."""
SIZED: Final = re.compile(r"^(?P<name>.*) [NJ]=(?P<size>\d+)$")
"""Name of a row that was measured with N replicas or J jobs. The page shows the largest size."""


@cache
def commit_of_the_code() -> str:
    """Return what `git describe` says of this checkout; empty outside of one."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    described = subprocess.run(command, capture_output=True, text=True, check=False)
    return described.stdout.strip()


@dataclass(slots=True)
class Row:
    """One thing that was measured, on any number of systems."""

    name: str
    unit: str
    values: dict[str, list[float]] = field(default_factory=dict)
    """System → every value, in the order of measurement."""
    reasons: dict[str, str] = field(default_factory=dict)
    """System → why it has no value, or has none in some round."""
    loads: list[float] = field(default_factory=list)
    """The machine's load averages at the measurements."""
    on: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")
    """Date of the measurement, YYYY-MM-DD."""
    commit: str = field(default_factory=commit_of_the_code)
    """The commit whose code was measured, `COMMIT+` with changes; empty if it was not recorded."""

    def cell(self, system: str) -> str:
        """Return the median, the range of several values, and what else happened."""
        values = self.values.get(system, [])
        words = [f"{statistics.median(values):.4g}"] if values else []
        if len(values) > 1 and min(values) < max(values):
            words.append(f"({min(values):.3g} to {max(values):.3g})")
        if system in self.reasons:
            words.append(self.reasons[system])
        return " ".join(words)


def read_rows(data: Mapping[str, Any]) -> list[Row]:
    """Return the rows of the data file. The oldest ones name no commit."""
    return [Row(**{"commit": "", **row}) for row in data["rows"]]


def table(figures: Figures) -> Iterator[str]:
    """Yield the lines that `make bench` prints."""
    for name, figure in figures.items():
        verdict = ""
        if figure.limit:
            verdict = "ok" if figure.is_within_limits else "OVER THE LIMIT"
        yield f"{name:48s} {figure.value:12.4g} {figure.unit:12s} {figure.limit:26s} {verdict}"


def rows_of(figures: Figures) -> Iterator[Row]:
    """Yield the figures of the control plane, which no peer has."""
    for name, figure in figures.items():
        yield Row(name, figure.unit, {OURS: [figure.value]}, loads=[round(os.getloadavg()[0], 1)])


def store(
    measured: Iterable[Row], versions: Mapping[str, str] | None = None, data_file: Path = DATA
) -> None:
    """Replace the cells of these rows and systems in the data file, and keep the others."""
    data: dict[str, Any] = (
        json.loads(data_file.read_text(encoding="utf-8")) if data_file.exists() else {"rows": []}
    )
    rows = {row["name"]: row for row in data.pop("rows")}
    for row in map(asdict, measured):
        old = rows.get(row["name"], {"values": {}, "reasons": {}, "loads": []})
        measured_systems = row["values"].keys() | row["reasons"].keys()
        kept = {
            key: {name: cell for name, cell in old[key].items() if name not in measured_systems}
            for key in ("values", "reasons")
        }
        old_loads = old["loads"] if kept["values"] else []
        rows[row["name"]] = row | {
            "values": kept["values"] | row["values"],
            "reasons": kept["reasons"] | row["reasons"],
            "loads": old_loads + row["loads"],
        }
    machine = f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}"
    all_versions = dict(data.get("versions", {}))
    all_versions.update(versions or {})
    about = {"machine": machine, "versions": all_versions}
    lines = ",\n".join(map(json.dumps, rows.values()))
    data_file.write_text(f'{json.dumps(about)[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")


def draw(data_file: Path = DATA) -> None:
    """Draw the plots, if `make bench-peers` has installed what draws them."""
    if PLOTTER.exists():
        plotter = ROOT / "bench" / "peers" / "programs" / "plots.py"
        subprocess.run([PLOTTER, plotter, data_file, data_file.parent / "images"], check=True)


def page_part(data_file: Path = DATA) -> str:
    """Return the versions and the table of the page in Markdown."""
    data = json.loads(data_file.read_text(encoding="utf-8"))
    return "\n".join(_part(data, read_rows(data)))


def _part(data: Mapping[str, Any], rows: list[Row]) -> Iterator[str]:
    versions = ", ".join(f"{system} {version}" for system, version in data["versions"].items())
    yield f"{data['machine']}. Versions: {versions}."
    yield ""
    systems = list(
        dict.fromkeys([OURS, *(system for row in rows for system in (*row.values, *row.reasons))])
    )
    yield f"| | unit | {' | '.join(systems)} | n | load | on | commit |"
    columns_beside_systems = 6
    yield "| --- " * (len(systems) + columns_beside_systems) + "|"
    matches = [SIZED.match(row.name) for row in rows]
    # Rows are in the order of their sizes.
    largest = {match["name"]: int(match["size"]) for match in matches if match is not None}
    for row in rows:
        match = SIZED.match(row.name)
        is_shown = match is None or int(match["size"]) == largest[match["name"]]
        if is_shown:
            count = max(map(len, row.values.values()), default=0)
            load = "" if not row.loads else f"{min(row.loads):g} to {max(row.loads):g}"
            cells = " | ".join(row.cell(system) for system in systems)
            when = f"{row.on} | {row.commit}"
            yield f"| {row.name} | {row.unit} | {cells} | {count} | {load} | {when} |"
