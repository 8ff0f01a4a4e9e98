"""What a job leaves in a real container engine is removed before the next job of its VM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.containers.engine import Client
from tests.integration.containers.host_engine import HostEngine
from trainmaster.agent.program.container_engine import KINDS, ContainerEngine
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.previous_containers import remember_first_objects, remove_left_objects
from trainmaster.agent.workspace import Workspace

pytestmark = pytest.mark.timeout(300)


def test_containers_volumes_and_networks_of_the_last_job_are_removed(
    host_engine: HostEngine, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path, {}, Console())
    client = host_engine.install_client(tmp_path) / "docker"
    engine = ContainerEngine(str(client), "vm")
    run = host_engine.client.run
    run("volume", "create", "of-the-image")
    try:
        remember_first_objects(workspace, [engine])
        before = engine.objects()
        image = host_engine.image("trainmaster-tests/left:1", {})
        run("network", "create", "--driver", "bridge", "left")
        volumes = ["--volume", "left:/data", "--volume", "/anonymous"]
        always = ["run", "--detach", "--restart", "always", "--network", "none", *volumes]
        Client(str(client), {}).run(*always, image, "sleep", "98765")
        left = engine.objects()
        assert {kind: len(left[kind]) - len(before[kind]) for kind in KINDS} == {
            "container": 1,
            "volume": 2,
            "network": 1,
        }
        assert remove_left_objects(workspace, [engine]) == (1, [])
        assert engine.objects() == before
    finally:
        run("volume", "rm", "of-the-image")
