"""One container engine for all of these tests, if it can be started, and a local stack whose VMs
use it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import lab
from tests.integration.containers.engine import BUILDERS, ENGINE, Engine, missing, running_engine
from tests.integration.containers.host_engine import HostEngine, running_host_engine
from tests.support.stack import LocalStack, local_stack
from trainmaster_emulators.process.stack_config import StackConfig

__all__ = ["lab"]

LIMIT = "192m"
# Emulated VMs have as much memory as this machine, so each container gets a small limit.
LIMITED_CLIENT = """\
#!/bin/sh
if [ "$1" = run ]; then
  shift
  exec {docker} run --memory={limit} --memory-swap={limit} "$@"
fi
exec {docker} "$@"
"""


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A container engine. Its tests are skipped where a program that it needs is missing."""
    if reason := missing({**ENGINE, **BUILDERS}):
        pytest.skip(reason)
    with running_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def host_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostEngine]:
    """An engine whose images have the programs of this machine: it needs nothing but docker."""
    if reason := missing(ENGINE):
        pytest.skip(reason)
    with running_host_engine(tmp_path_factory.mktemp("host-engine")) as engine:
        yield engine


@pytest.fixture(scope="session")
def stack(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A local stack with the engine, which replaces the stack that `lab` uses elsewhere."""
    client = tmp_path_factory.mktemp("bin") / "docker"
    client.write_text(LIMITED_CLIENT.format(docker=shutil.which("docker"), limit=LIMIT))
    client.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)
        patch.setenv("PATH", f"{client.parent}{os.pathsep}{os.environ['PATH']}")
        with local_stack(tmp_path_factory.mktemp("stack"), StackConfig()) as running:
            patch.undo()
            yield running
