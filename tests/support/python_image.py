"""The Python of a VM image."""

from __future__ import annotations

import shutil
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path


def create_python_image(folder: Path) -> None:
    """Create a Python with a user site, and with pip and the setuptools of the tests, which can build wheels."""
    venv.create(folder, system_site_packages=True, symlinks=True)
    version = ".".join(map(str, sys.version_info[:2]))
    site = folder / "lib" / f"python{version}" / "site-packages"
    pip, tools = distribution("pip"), distribution("setuptools")
    assert tuple(map(int, tools.version.split(".")[:2])) >= (70, 1), "these tests need setuptools 70.1 or later"
    for file in (*(pip.files or ()), *(tools.files or ())):
        if ".." not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), site / file)  # with its time, so that compiled files stay valid
