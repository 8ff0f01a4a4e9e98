from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.logging.cloud import Cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """A Logging emulator without entries."""
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.entries.close()
