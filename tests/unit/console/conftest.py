"""A console on adapters in memory, with a signed-in client."""

from __future__ import annotations

import pytest

from tests.support.console_site import Site


@pytest.fixture
def site() -> Site:
    """The console of an installation without a job, in which the user has signed in."""
    opened = Site()
    opened.open()
    return opened
