"""A plot with logarithmic axes as SVG: few lines over sizes, each with its name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 680
HEIGHT: Final = 320
LEFT, RIGHT, TOP, BOTTOM = 70, 200, 40, 45
COLORS: Final = ("#1a73e8", "#d93025", "#188038", "#f9ab00", "#9334e6", "#5f6368")

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Name of a line → its points: size and value, both positive."""


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
