from __future__ import annotations

import pytest

from shared.memory.access import MemoryAccess
from tests.integration.api.client import TOKENS, Api, an_app
from tests.support.world import World


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
