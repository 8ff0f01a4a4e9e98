"""Containers that emulated VMs start: each VM has its own, and they end when the VM ends for any
reason.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.compute.emulator import PROJECT, ZONE, Emulator, running_emulator
from tests.integration.containers.engine import Engine
from tests.support.stack import eventually, local_stack, recording_functions
from trainmaster_emulators.process.stack_config import StackConfig

pytestmark = [
    pytest.mark.heavy(
        fact="containers belong to their emulated VM",
        quick="`integration/compute/test_vms.py` with processes",
    ),
    pytest.mark.timeout(600),
]

ENGINE_S = 60.0
RUN_CONTAINER = (
    'docker run --rm --network=host {image} python3 -uc "import time; print(1); time.sleep(600)"'
)


@pytest.fixture(scope="module")
def image(engine: Engine) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)
        yield engine.debian("bookworm")


@pytest.fixture
def emulator(image: str, tmp_path: Path) -> Iterator[Emulator]:
    with running_emulator(
        tmp_path, "--vm-env", "GREETING=hello", "--vm-env", f"A_FILE={__file__}"
    ) as emulator:
        yield emulator
        emulator.delete_all()


def start_containers(emulator: Emulator, engine: Engine, image: str, *names: str) -> None:
    for name in names:
        emulator.run(name, RUN_CONTAINER.format(image=image))
    eventually(lambda: len(engine.containers("status=running")) == len(names), ENGINE_S)


def delete(emulator: Emulator) -> None:
    emulator.instances.delete_unary(project=PROJECT, zone=ZONE, instance="vm")


def stop(emulator: Emulator) -> None:
    emulator.instances.stop_unary(project=PROJECT, zone=ZONE, instance="vm")


def crash(emulator: Emulator) -> None:
    emulator.fault("vm", "crash")


def kill_init(emulator: Emulator) -> None:
    """Kill the process that stands in for the VM's init, as the kernel may do."""
    disk = f"/vms/{emulator.get('vm').id}/".encode()
    for pid in emulator.vm_processes():
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"vm_init.py" in arguments and disk in arguments:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("end_vm", [delete, stop, crash, kill_init])
def test_containers_end_with_their_vm(
    emulator: Emulator, engine: Engine, image: str, end_vm: Callable[[Emulator], None]
) -> None:
    start_containers(emulator, engine, image, "vm", "other")
    end_vm(emulator)
    eventually(lambda: emulator.status("vm") in ("TERMINATED", "DELETED"), ENGINE_S)
    eventually(lambda: len(engine.containers()) == 1, ENGINE_S)
    assert "other" in emulator.names()


def test_killed_emulator_leaves_no_container(engine: Engine, image: str, tmp_path: Path) -> None:
    with running_emulator(tmp_path) as emulator:
        start_containers(emulator, engine, image, "vm")
        emulator.process.kill()
        eventually(lambda: not engine.containers(), ENGINE_S)


def test_container_reaches_the_services_of_its_vm(emulator: Emulator, image: str) -> None:
    lines = (
        "import os, urllib.request",
        "address = 'http://' + os.environ['GCE_METADATA_HOST']",
        "address += '/computeMetadata/v1/instance/name'",
        "request = urllib.request.Request(address, headers={'Metadata-Flavor': 'Google'})",
        "print(os.environ['GREETING'], urllib.request.urlopen(request).read().decode())",
        "print(open(os.environ['A_FILE']).readline())",
        "print('PATH of the image:', os.environ['PATH'])",
    )
    source = "\\n".join(lines)
    emulator.run("vm", f'docker run --rm --network=host {image} python3 -c "$(printf "{source}")"')
    eventually(lambda: "exit status" in emulator.serial("vm"), ENGINE_S)
    output = emulator.serial("vm")
    assert "hello vm" in output
    assert '"""Containers that emulated VMs start' in output
    assert (
        "PATH of the image: /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" in output
    )


def test_vm_sees_only_its_own_containers(emulator: Emulator, engine: Engine, image: str) -> None:
    start_containers(emulator, engine, image, "vm")
    emulator.run("other", "echo counted $(docker ps --all --quiet | wc --lines)")
    eventually(lambda: "counted" in emulator.serial("other"), ENGINE_S)
    assert "counted 0" in emulator.serial("other")


def test_kill_program_kills_the_program_in_the_container(
    emulator: Emulator, engine: Engine, image: str
) -> None:
    start_containers(emulator, engine, image, "vm")
    (container,) = engine.containers()
    pid = int(engine.docker("inspect", "--format", "{{.State.Pid}}", container))
    assert emulator.fault("vm", "kill-program", signal="KILL") == {"pid": pid, "signal": "SIGKILL"}
    eventually(lambda: "startup-script exit status 137" in emulator.serial("vm"), ENGINE_S)


@pytest.mark.parametrize("victim", ["none", "supervisor"])
def test_ended_stack_leaves_no_container(
    engine: Engine, image: str, tmp_path: Path, victim: str
) -> None:
    config = StackConfig(
        functions_dir=recording_functions(tmp_path / "functions"), functions=("upload",)
    )
    with local_stack(tmp_path / "state", config) as local:
        script = RUN_CONTAINER.format(image=image)
        create = ["gcloud", "compute", "instances", "create", "vm", f"--zone={ZONE}"]
        created = local.run(*create, f"--metadata=startup-script={script}")
        assert created.returncode == 0, created.stderr
        eventually(lambda: engine.containers("status=running"), ENGINE_S)
        if victim == "supervisor":
            os.kill(local.state.supervisor_pid, signal.SIGKILL)
            eventually(lambda: not engine.containers(), ENGINE_S)
    assert not engine.containers()
