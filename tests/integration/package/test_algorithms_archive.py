"""The wheel of the built-in algorithms: reproducible, and installable by the real pip."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from trainmaster.packaging.algorithms_archive import (
    SOURCES,
    WHEEL,
    algorithms_archive,
    algorithms_object,
)


def test_same_sources_give_the_same_wheel_and_name() -> None:
    first = algorithms_archive()
    algorithms_archive.cache_clear()

    assert algorithms_archive() == first
    assert algorithms_object(first) != algorithms_object(first + b"x")


def test_wheel_has_all_modules_and_is_installed_by_pip(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(algorithms_archive())
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(tmp_path / WHEEL)], check=True)

    installed = {
        path.relative_to(tmp_path / "site" / "algorithms")
        for path in (tmp_path / "site").rglob("*.py")
    }
    assert installed == {path.relative_to(SOURCES) for path in SOURCES.rglob("*.py")}
    with zipfile.ZipFile(tmp_path / WHEEL) as wheel:
        assert wheel.testzip() is None
