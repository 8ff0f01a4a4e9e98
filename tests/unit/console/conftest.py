"""A console on adapters in memory, with a signed-in client."""

from __future__ import annotations

import pytest

from tests.support.console_site import Site


@pytest.fixture
def site() -> Site:
    opened = Site()
    opened.open()
    return opened
