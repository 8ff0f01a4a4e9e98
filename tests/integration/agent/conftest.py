from __future__ import annotations

import os
import shutil
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import Vm


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.close()


@pytest.fixture
def vm(cloud: Cloud, tmp_path: Path) -> Iterator[Vm]:
    """A VM that is not booted yet."""
    vm = Vm(cloud, tmp_path)
    yield vm
    vm.power_off()
    assert not vm.lines("[trainmaster] Unexpected change"), "the table of the agent's states lacks an edge"


@pytest.fixture
def docker(vm: Vm, tmp_path: Path) -> Iterator[Docker]:
    """A container engine on the VM, whose job is a container unless the test configures another."""
    vm.configure(container={"image": IMAGE, "command": []}, python_module="")
    docker = Docker(vm, tmp_path)
    yield docker
    docker.close()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a VM image: pip, setuptools that can build wheels, and a user site."""
    folder = tmp_path_factory.mktemp("image")
    venv.EnvBuilder(system_site_packages=True, symlinks=True).create(folder)
    version = ".".join(map(str, sys.version_info[:2]))
    site = folder / "lib" / f"python{version}" / "site-packages"
    pip, tools = distribution("pip"), distribution("setuptools")
    assert tuple(map(int, tools.version.split(".")[:2])) >= (70, 1), "these tests need setuptools 70.1 or later"
    for file in (*(pip.files or ()), *(tools.files or ())):
        if ".." not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), site / file)  # with its time, so that the compiled files stay valid
    return folder


@pytest.fixture
def offline(vm: Vm, image: Path) -> Vm:
    """A VM with that image and without a package index for pip."""
    vm.environ.update(PATH=f"{image}/bin{os.pathsep}{os.environ['PATH']}", PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    del vm.environ["PYTHONPATH"]
    return vm
