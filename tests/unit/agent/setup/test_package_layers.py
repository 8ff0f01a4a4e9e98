"""Packages in layers: what is installed again for the next job on a VM.

The lower layer has the packages of the runtime, the upper one those of the program. Each layer is a
user site of Python.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.agent.setup.package_layers import USER_BASE, PackageLayers, program_folders

RUNTIME = ("numpy==2.0",)
PACKAGE = "gs://b/trainer.tar.gz#1"


@pytest.fixture(autouse=True)
def site_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo after each test what the layers change in this process."""
    monkeypatch.setattr(site, "USER_BASE", site.getuserbase())
    monkeypatch.setattr(site, "USER_SITE", site.getusersitepackages())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv(USER_BASE, "")


class Installer:
    """Installs modules in place of pip, and records what it installed."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.installed: list[str] = []

    def install(self, *packages: str, runtime: tuple[str, ...] = RUNTIME) -> None:
        """Install the layers; the program's module has the version of its package in its name."""
        self.installed = []
        _, version = packages[0].split("#")
        layers = PackageLayers(self.work, runtime, packages)
        layers.install(lambda: self._add("runtime_module"), lambda: self._add(f"program_{version}"))

    def _add(self, name: str) -> None:
        self.installed.append(name)
        (Path(site.getusersitepackages()) / f"{name}.py").write_text("")


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    installer = Installer(tmp_path)
    installer.install(PACKAGE)
    return installer


def can_import(module: str) -> bool:
    """Return whether a program that starts now can import the module."""
    command = [sys.executable, "-c", f"import {module}"]
    environ = {**os.environ, USER_BASE: os.environ[USER_BASE]}
    environ.pop("PYTHONNOUSERSITE", None)
    # A virtual environment has no user site: the base interpreter of this one does.
    command[0] = os.path.realpath(sys.executable)
    return subprocess.run(command, env=environ, capture_output=True, check=False).returncode == 0


def test_both_layers_are_installed_and_found_by_programs(installer: Installer) -> None:
    assert installer.installed == ["runtime_module", "program_1"]
    assert can_import("runtime_module")
    assert can_import("program_1")
    assert [Path(folder).parent.name.split("-")[0] for folder in program_folders()] == [
        "job",
        "runtime",
    ]


def test_equal_packages_need_no_pip(installer: Installer) -> None:
    installer.install(PACKAGE)
    assert installer.installed == []
    assert can_import("program_1")


def test_edited_program_replaces_the_upper_layer_alone(installer: Installer) -> None:
    installer.install("gs://b/trainer.tar.gz#2")
    assert installer.installed == ["program_2"]
    assert can_import("runtime_module")
    assert not can_import("program_1"), "what works on a taken VM works on a new one"


def test_another_runtime_replaces_both(installer: Installer) -> None:
    installer.install(PACKAGE, runtime=("numpy==2.1",))
    assert installer.installed == ["runtime_module", "program_1"]


def test_layer_that_a_program_changed_is_built_again(installer: Installer) -> None:
    (Path(site.getusersitepackages()) / "leftover.py").write_text("")
    installer.install(PACKAGE)
    assert installer.installed == ["program_1"]
    assert not can_import("leftover")


def test_package_without_a_version_is_installed_again(tmp_path: Path) -> None:
    installer = Installer(tmp_path)
    for _ in range(2):
        installer.installed = []
        PackageLayers(tmp_path, RUNTIME, ["gs://b/trainer.tar.gz"]).install(
            lambda: installer._add("runtime_module"), lambda: installer._add("program_1")
        )
    assert installer.installed == ["program_1"]


def test_installation_that_failed_is_repeated(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no network")

    layers = PackageLayers(tmp_path, RUNTIME, [PACKAGE])
    with pytest.raises(OSError, match="no network"):
        layers.install(lambda: None, fail)
    installer = Installer(tmp_path)
    installer.install(PACKAGE)
    assert installer.installed == ["program_1"]
