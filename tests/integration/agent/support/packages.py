"""Tiny Python packages as bytes, made without any build tool."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Sequence
from typing import Final

SETUP: Final = """
from setuptools import find_packages, setup
setup(name="{name}", version="0.1", packages=find_packages(), install_requires={requires!r})
"""
PYPROJECT: Final = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
"""
WHEEL: Final = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def tarball(files: dict[str, str]) -> bytes:
    """Return a .tar.gz with these files: path to text."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def sdist(
    name: str, task: str, requires: tuple[str, ...] = (), extra: dict[str, str] | None = None
) -> bytes:
    """Return the package that `gcloud` makes of a trainer, with `python setup.py sdist`."""
    top = f"{name}-0.1"
    files = {
        "setup.py": SETUP.format(name=name, requires=list(requires)),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n",
        f"{name}/__init__.py": "",
        f"{name}/task.py": task,
        **(extra or {}),
    }
    return tarball({f"{top}/{path}": text for path, text in files.items()})


def wheel(name: str, module: str, version: str = "0.1") -> bytes:
    return wheel_of(name, {f"{name}/__init__.py": module}, version)


def wheel_of(
    name: str, files: dict[str, str], version: str = "0.1", requires: Sequence[str] = ()
) -> bytes:
    """Return a wheel with these files: path to text. `requires`: its requirements."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {requirement}\n" for requirement in requires),
        f"{info}/WHEEL": WHEEL,
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return buffer.getvalue()
