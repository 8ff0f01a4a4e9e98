"""One engine for all of these tests, where there can be one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.containers.engine import Engine, missing, running_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    if reason := missing():
        pytest.skip(reason)
    with running_engine() as engine:
        yield engine
