from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from tests.integration.api.client import TOKENS, Api, an_app
from tests.integration.api.served import Gcloud, serving
from tests.support.world import World
from trainmaster_local.memory.access import MemoryAccess


@pytest.fixture
def world() -> World:
    """A control plane without a job."""
    return World()


@pytest.fixture
def access() -> MemoryAccess:
    """The permissions that each of `TOKENS` has."""
    return MemoryAccess(TOKENS)


@pytest.fixture
def api(world: World, access: MemoryAccess, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A client of the function `api`. Exceptions become responses, as in production."""
    app = an_app(world, access, monkeypatch)
    app.config["PROPAGATE_EXCEPTIONS"] = False
    return Api(world, access, app.test_client())


@pytest.fixture
def app(world: World, access: MemoryAccess, monkeypatch: pytest.MonkeyPatch) -> Flask:
    """The function `api` over the world."""
    return an_app(world, access, monkeypatch)


@pytest.fixture
def gcloud(app: Flask, tmp_path: Path) -> Iterator[Gcloud]:
    """The real gcloud, which calls the API."""
    with serving(app) as endpoint:
        yield Gcloud(endpoint, tmp_path)
