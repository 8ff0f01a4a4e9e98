"""The Python of a VM image."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import venv
from functools import cache
from importlib.metadata import distribution
from pathlib import Path


@cache
def bare_python() -> Path:
    """Return a Python that has pip and no other package.

    It starts in half the time of the one that runs the tests.
    """
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    venv.create(folder, symlinks=True)
    pip = distribution("pip")
    for name in ("pip", f"pip-{pip.version}.dist-info"):
        _site(folder).joinpath(name).symlink_to(str(pip.locate_file(name)))
    return folder / "bin" / "python3"


def create_python_image(folder: Path) -> None:
    """Create a Python with a user site, and with pip and the setuptools of the tests, which can
    build wheels.
    """
    venv.create(folder, system_site_packages=True, symlinks=True)
    site = _site(folder)
    pip, tools = distribution("pip"), distribution("setuptools")
    assert tuple(map(int, tools.version.split(".")[:2])) >= (70, 1), (
        "these tests need setuptools 70.1 or later"
    )
    for package in (pip, tools):
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            # With its compiled files, if there are any.
            site.joinpath(name).symlink_to(str(package.locate_file(name)))


def _site(folder: Path) -> Path:
    return (
        folder
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )
