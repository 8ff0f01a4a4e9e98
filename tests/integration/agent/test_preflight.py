"""A real agent on a machine with a fault: what it reports, and whether its program starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainmaster.core.events import ExitCause
from trainmaster.messaging.agent_messages import decode_replica_exit, decode_vm_ready

from .support.cloud import Cloud, Message
from .support.vm import Vm

XID = "#!/bin/sh\necho '[   90.117] NVRM: Xid (PCI:0000:00:04): 79, GPU has fallen off the bus.'\n"
FOUND = "Xid (PCI:0000:00:04): 79, GPU has fallen off the bus"


@pytest.fixture
def broken(vm: Vm, tmp_path: Path) -> Vm:
    """A VM that has lost a GPU."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "dmesg"
    program.write_text(XID)
    program.chmod(0o755)
    vm.environ["PATH"] = f"{program.parent}{os.pathsep}{vm.environ['PATH']}"
    return vm


def data_of(message: Message) -> bytes:
    return json.dumps(message.body).encode()


def test_machine_with_a_fault_starts_no_program_and_explains_what_else_has_failed(
    cloud: Cloud, broken: Vm
) -> None:
    broken.configure(preflight="on", gpus=1, package_uris=["gs://b/missing-0.1.tar.gz"])
    cloud.direct(attempt=1, incarnation=1)
    broken.boot()
    message = cloud.wait_for_message("replica-exit")
    assert message.body["cause"] == "setup", "every release of the control plane knows this cause"
    event = decode_replica_exit(data_of(message))
    assert event.cause is ExitCause.UNFIT
    assert event.error is not None
    assert (event.error.type, event.tail) == ("UnfitMachine", FOUND)
    assert cloud.published() == [("replica-exit", (1, 1))]
    assert not broken.lines("[trainmaster] Running command: ")


@pytest.mark.parametrize("action", ["run", "hold"])
def test_fault_that_is_only_reported_is_in_vm_ready(action: str, cloud: Cloud, broken: Vm) -> None:
    broken.program("print('TRAINED')")
    broken.configure(preflight="report", gpus=1)
    cloud.direct(attempt=1, incarnation=1, action=action)
    broken.boot()
    assert decode_vm_ready(data_of(cloud.wait_for_message("vm-ready"))).finding == FOUND
    if action == "run":
        assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0


def test_config_of_an_earlier_control_plane_requests_no_preflight(cloud: Cloud, broken: Vm) -> None:
    broken.program("print('TRAINED')")
    cloud.direct(attempt=1, incarnation=1)
    broken.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    assert "finding" not in cloud.wait_for_message("vm-ready").body
