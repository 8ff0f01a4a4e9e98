"""Google's emulators and fake-gcs-server in containers, for machines without the Cloud SDK."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.containers.engine import Engine
from tests.support.stack import clean_environment, eventually, recording_functions
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process import service
from trainmaster_emulators.process.backends import BackendKind, require_backend
from trainmaster_emulators.process.processes import Ports
from trainmaster_emulators.process.stack_config import EMULATORS_VARIABLE, StackConfig
from trainmaster_emulators.services import firestore
from trainmaster_emulators.stack import stack

pytestmark = [
    pytest.mark.heavy(
        fact="Google's emulators run in containers", quick="`contract` with emulators as processes"
    ),
    pytest.mark.timeout(1200),
]

CONTRACTS = [
    "tests/contract/store",
    "tests/contract/test_objects_contract.py",
    "tests/integration/stack/test_delivery.py",
]
ENGINE_S = 60.0
TESTCONTAINERS = "label=org.testcontainers"


@pytest.fixture(scope="module")
def images(engine: Engine) -> None:
    engine.google_emulators()
    engine.fake_gcs()


@pytest.fixture(autouse=True)
def containers_as_backend(engine: Engine, images: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    monkeypatch.setenv(EMULATORS_VARIABLE, BackendKind.CONTAINERS)


def test_contract_tests_pass_on_emulators_in_containers() -> None:
    environment = {**clean_environment(), EMULATORS_VARIABLE: BackendKind.CONTAINERS}
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CONTRACTS]
    done = subprocess.run(
        run, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


def test_container_ends_with_the_process_that_represents_it(engine: Engine, tmp_path: Path) -> None:
    ports = Ports()
    emulator = firestore.service(
        require_backend(), ports.take_blocked_addresses(firestore.ADDRESSES)
    )
    with service.run_alone(emulator, tmp_path / "log", within_s=ENGINE_S):
        assert len(engine.containers(TESTCONTAINERS)) == 1
        (process,) = [
            child
            for child in psutil.Process().children()
            if "trainmaster_emulators.process.container_service" in child.cmdline()
        ]
        os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: not engine.containers(TESTCONTAINERS), within_s=ENGINE_S)
    ports.close()


def test_stopped_stack_leaves_no_container(engine: Engine, tmp_path: Path) -> None:
    functions = recording_functions(tmp_path / "functions")
    config = StackConfig(functions_dir=functions, functions=("upload",), compute=False)
    with stack.running_stack(tmp_path / "state", config) as state:
        assert state.backend == BackendKind.CONTAINERS
        assert len(engine.containers(TESTCONTAINERS)) == 3
    assert not engine.containers(TESTCONTAINERS)
