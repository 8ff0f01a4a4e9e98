from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.cloud import Cloud
from .support.vm import Vm


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.close()


@pytest.fixture
def vm(cloud: Cloud, tmp_path: Path) -> Iterator[Vm]:
    """Not booted yet."""
    vm = Vm(cloud, tmp_path)
    yield vm
    vm.power_off()
