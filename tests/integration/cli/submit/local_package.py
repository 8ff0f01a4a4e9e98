"""A package of Python modules on the user's disk."""

from __future__ import annotations

from pathlib import Path


def make_package(folder: Path) -> Path:
    """Write the package `trainer`, with modules `task` and `inner`, and return its folder."""
    package = folder / "trainer"
    (package / "inner").mkdir(parents=True)
    for file in ("__init__.py", "task.py", "inner/__init__.py"):
        (package / file).write_text("")
    return package
