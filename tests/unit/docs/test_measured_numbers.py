"""The figures of README and of the first table of the benchmarks are those of benchmarks.json."""

from __future__ import annotations

import json
import re
from statistics import median
from typing import Final

import pytest

from trainmaster_emulators.checkout import ROOT

SYSTEMS: Final = ("Trainmaster", "torchrun", "ft_launcher", "Ray", "DLRover")
EXIT: Final = "SIGKILL of a process: next step of all ranks"
LOSS: Final = "loss of a machine: next step of all ranks"
STEPS: Final = "a machine is lost, another one exists after 2 of 3 minutes: steps"
WITH_DDP: Final = "SIGKILL of a process, DDP over gloo: next step of all ranks"
KEPT: Final = "first line after the acceptance: kept, the same folder"
BOOTED: Final = "first line after the acceptance: new machines"


@pytest.fixture(scope="module")
def medians() -> dict[str, dict[str, str]]:
    """Row → system → its median, as pages write it."""
    rows = json.loads((ROOT / "docs/benchmarks.json").read_text(encoding="utf-8"))["rows"]
    return {
        row["name"]: {
            system: f"{median(values):.0f}" if row["unit"] == "steps" else f"{median(values):.1f}"
            for system, values in row["values"].items()
        }
        for row in rows
    }


def test_figures_of_the_readme_are_the_medians(medians: dict[str, dict[str, str]]) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    exits, losses, steps = medians[EXIT], medians[LOSS], medians[STEPS]
    ddp = medians[WITH_DDP]
    for words in (
        (
            f"after SIGKILL: {exits['Trainmaster']} s (torchrun {exits['torchrun']},"
            f" Ray {exits['Ray']})"
        ),
        f"{losses['Trainmaster']} s (DLRover {losses['DLRover']}, Ray {losses['Ray']};",
        (
            f"{steps['Trainmaster']} (ft_launcher {steps['ft_launcher']}, Ray {steps['Ray']},"
            f" torchrun {steps['torchrun']})"
        ),
        (f"{medians[KEPT]['Trainmaster']} s (new machines: {medians[BOOTED]['Trainmaster']})"),
        f"takes {ddp['Trainmaster']} s (torchrun {ddp['torchrun']})",
    ):
        assert words in readme
    assert "torchrun" not in losses, "README: none within 60 s"


def test_first_table_of_the_benchmarks_has_the_medians(medians: dict[str, dict[str, str]]) -> None:
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    shown = {
        name: cells.split(" | ")
        for name, cells in re.findall(r"^\| (\w[^|]*?) \| (.*) \|$", page, re.MULTILINE)
    }
    for name, row in {
        "a new job writes its first line": "new job: first line of all processes",
        "SIGKILL of a process, until all ranks take a step": EXIT,
        "loss of a machine, until all ranks take a step": LOSS,
        "steps of 1,800, with one machine lost for two of three minutes": STEPS,
    }.items():
        missing = "none within 60 s"
        assert shown[name] == [medians[row].get(system, missing) for system in SYSTEMS]
