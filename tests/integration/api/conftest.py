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
    return World()


@pytest.fixture
def access() -> MemoryAccess:
    return MemoryAccess(TOKENS)


@pytest.fixture
def api(world: World, access: MemoryAccess, monkeypatch: pytest.MonkeyPatch) -> Api:
    app = an_app(world, access, monkeypatch)
    app.config["PROPAGATE_EXCEPTIONS"] = False
    return Api(world, access, app.test_client())


@pytest.fixture
def app(world: World, access: MemoryAccess, monkeypatch: pytest.MonkeyPatch) -> Flask:
    return an_app(world, access, monkeypatch)


@pytest.fixture
def gcloud(app: Flask, tmp_path: Path) -> Iterator[Gcloud]:
    """The real gcloud, which calls the API."""
    with serving(app) as endpoint:
        yield Gcloud(endpoint, tmp_path)
