from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.logging.cloud import Cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """A Logging emulator with nothing in it."""
    made = Cloud(tmp_path)
    yield made
    made.entries.close()
