"""Real installations of the two distributions: wheels and the libraries of an extra, each in a
virtual environment of its own.

The libraries are links to those of the tests' environment, so that nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainmaster_emulators.checkout import ROOT

PROJECT = "trainmaster"
LOCAL = "trainmaster-local"
FOLDERS = {PROJECT: ROOT, LOCAL: ROOT / "emulators"}
"""Distribution → the folder with its pyproject.toml."""


@dataclass(frozen=True)
class Installation:
    folder: Path
    """The virtual environment."""

    def run(
        self, program: str, *arguments: str, cwd: Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the installation's programs in a folder, without the variables of another
        installation.
        """
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TRAINMASTER_", "PYTHON"))
        }
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=cwd,
            env=own | variables,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the distribution `trainmaster`."""
    return build_wheel(PROJECT, tmp_path_factory)


@pytest.fixture(scope="session")
def local_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the distribution `trainmaster-local`."""
    return build_wheel(LOCAL, tmp_path_factory)


def build_wheel(distribution: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of a distribution and return its path."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    ]
    subprocess.run(build, cwd=FOLDERS[distribution], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def install(
    wheel: Path, local_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installation]:
    """Return a function that installs the package with an extra; without one, for an empty name."""

    @cache
    def install_extra(extra: str) -> Installation:
        folder = tmp_path_factory.mktemp(extra or "client")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        uv = str(Path(sys.executable).with_name("uv"))
        command = [
            uv,
            "pip",
            "install",
            "--offline",
            "--no-deps",
            "--link-mode",
            "copy",
            "--python",
            str(folder / "bin" / "python"),
            str(wheel),
            *([str(local_wheel)] if extra == "local" else []),
        ]
        environment = {**os.environ, "UV_COMPILE_BYTECODE": "0"}  # the makefile turns it on
        subprocess.run(command, check=True, capture_output=True, env=environment)
        (packages,) = folder.glob("lib/python*/site-packages")
        link_compiled(packages)
        for name in required_distributions(extra):
            link(name, packages)
        return Installation(folder)

    return install_extra


def link_compiled(packages: Path) -> None:
    """Let installed modules use what Python has compiled of the same sources in the checkout.

    Python ignores a compiled module unless its source has the size and the time of the one that was
    compiled.
    """
    for folder in (ROOT / "shared", ROOT / "emulators"):
        for compiled in folder.rglob("__pycache__/*.pyc"):
            source = compiled.parents[1] / f"{compiled.name.partition('.')[0]}.py"
            installed = packages / source.relative_to(folder)
            if (
                source.exists()
                and installed.exists()
                and installed.read_bytes() == source.read_bytes()
            ):
                shutil.copystat(source, installed)
                cache = installed.parent / "__pycache__"
                cache.mkdir(exist_ok=True)
                (cache / compiled.name).symlink_to(compiled)


def required_distributions(extra: str) -> set[str]:
    """Return the distributions that the package requires with an extra, directly and indirectly."""
    pending, seen = [(PROJECT, extra)], set[tuple[str, str]]()
    while pending:
        pair = name, own_extra = pending.pop()
        if pair not in seen:
            seen.add(pair)
            for requirement in map(Requirement, requires(name) or ()):
                if requirement.marker is None or requirement.marker.evaluate({"extra": own_extra}):
                    pending += [
                        (canonicalize_name(requirement.name), more)
                        for more in {"", *requirement.extras}
                    ]
    return {name for name, _ in seen} - FOLDERS.keys()


def link(name: str, packages: Path) -> None:
    """Link the files of an installed distribution, except its programs.

    A package is one link, so that the modules that Python has compiled are found there, too.
    """
    files = [
        file
        for file in distribution(name).files or ()
        if ".." not in file.parts and file.suffix != ".pth"
    ]
    folders = {file.parent for file in files if file.name == "__init__.py"}
    for file in files:
        linked = next((parent for parent in reversed(file.parents) if parent in folders), file)
        target = packages / linked
        if not target.is_symlink() and "__pycache__" not in linked.parts:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(str(distribution(name).locate_file(linked))).resolve())
