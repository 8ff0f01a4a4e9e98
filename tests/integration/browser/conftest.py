"""One Chromium for all tests of the console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.console_browser import chromium_browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of this folder."""
    with chromium_browser() as running:
        yield running
