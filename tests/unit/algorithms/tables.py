"""Data for the tests of the built-in algorithms."""

from __future__ import annotations

from pathlib import Path

from trainmaster.algorithms.arguments.argument import Value
from trainmaster.algorithms.arguments.parse import parse_arguments
from trainmaster.algorithms.arguments.tables import TABLES


def write_csv(folder: Path, lines: list[str], name: str = "training.csv") -> str:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def values_of(algorithm: str, path: str, *arguments: str) -> dict[str, Value]:
    """Return the values of a command line with these arguments."""
    tokens = (f"--training_data_path={path}", "--job-dir=/tmp/unused", *arguments)
    return parse_arguments(TABLES[algorithm], tokens).values
