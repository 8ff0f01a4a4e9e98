from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.python_image import create_python_image

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import Vm


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """The metadata server, Pub/Sub and Cloud Storage of the agent's VM."""
    cloud = Cloud()
    yield cloud
    cloud.close()


@pytest.fixture
def vm(cloud: Cloud, tmp_path: Path) -> Iterator[Vm]:
    """A VM that is not booted yet."""
    vm = Vm(cloud, tmp_path)
    yield vm
    vm.power_off()
    assert not vm.lines("[trainmaster] Unexpected change"), (
        "the table of the agent's states lacks an edge"
    )


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
    create_python_image(folder)
    return folder


@pytest.fixture
def offline(vm: Vm, image: Path) -> Vm:
    """A VM with that image and without a package index for pip."""
    vm.environ.update(
        PATH=f"{image}/bin{os.pathsep}{os.environ['PATH']}",
        PIP_NO_INDEX="1",
        PIP_CONFIG_FILE=os.devnull,
    )
    del vm.environ["PYTHONPATH"]
    return vm
