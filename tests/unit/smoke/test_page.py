"""docs/smoke.md lists the steps of the smoke test in their order."""

from __future__ import annotations

import re
from pathlib import Path

from smoke.steps import STEPS

PAGE = Path(__file__).parents[3] / "docs" / "smoke.md"
AROUND = ("install", "end jobs", "remove")
"""What `smoke.run` does before and after the steps."""


def test_page_lists_each_step_once_in_order() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## What it does")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| (?!step \||---)([^|]+) \|", section)
    first, *named, end, last = [name for row in rows for name in row.split(", ")]
    assert (first, end, last) == AROUND
    assert named == [step.name for step in STEPS]
