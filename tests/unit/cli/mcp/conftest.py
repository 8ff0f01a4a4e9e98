"""The installation that the tools of these tests use."""

from __future__ import annotations

import pytest

from tests.unit.cli.mcp.sessions import an_installation
from trainmaster_local.testing import Installation


@pytest.fixture
def installation() -> Installation:
    """An installation in memory, with list prices."""
    return an_installation()
