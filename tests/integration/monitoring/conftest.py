from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.monitoring.cloud import Cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """A Monitoring emulator without time series."""
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.store.close()
