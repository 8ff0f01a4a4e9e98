"""Memory of `provision` with a job of 1,000 VMs, whose listings are as large as Compute Engine's.

The function runs from its archive, as on Cloud Functions. Its VMs are those of the emulator, with
their whole metadata, but they have no processes: 1,000 agents need more memory than a development
machine has.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from bench.cold_events import PROJECT, world
from bench.jobs import job_spec
from tests.integration.compute.emulator import Emulator, running_emulator
from tests.integration.cost.staged_function import Function, running_function
from tests.support.jobs import CHIEF, an_incarnation
from tests.support.world import World
from trainmaster.core.events import ReplicaExited
from trainmaster.core.model.vm import DirectiveAction, Vm
from trainmaster.flows.commit.record import record
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.messaging.internal_requests import ProvisionRequest, encode_provision

SIZE: Final = 1_000
MIB_MAX: Final = 512
"""Half of the function's memory in infra/functions.tf: it handles up to four events at once."""
REQUESTS_MAX: Final = 20
EMULATOR_WITHOUT_PROCESSES: Final = """
import sys
from datetime import UTC, datetime
from trainmaster_emulators.compute.__main__ import main
from trainmaster_emulators.machines.vm_power import VmPower

def on(self, instance, **_):
    instance.started_at = datetime.now(UTC)

def off(self, instance, grace_s):
    instance.stopped_at = datetime.now(UTC)

VmPower.on, VmPower.off = on, off
sys.exit(main())
"""


def provision_until(function: Function, job_id: str, emulator: Emulator, attempt: int) -> None:
    """Request provisioning until all VMs exist and have the directive of this attempt."""
    fleet = ComputeFleet(VmDefaults(PROJECT), endpoint=emulator.endpoint)
    directed = 0
    for _ in range(REQUESTS_MAX):
        function.deliver(encode_provision(ProvisionRequest(job_id)))
        directed = sum(_is_directed(vm, attempt) for vm in fleet.list_vms(job_id))
        if directed == SIZE:
            return
        time.sleep(1)
    pytest.fail(f"{directed} VMs have their directive after {REQUESTS_MAX} requests")


def _is_directed(vm: Vm, attempt: int) -> bool:
    """Return whether the VM has the directive to run this attempt."""
    directive = vm.directive
    return (
        directive is not None
        and directive.attempt == attempt
        and directive.action is DirectiveAction.RUN
    )


@pytest.mark.heavy(
    fact="provision of a thousand VMs fits its memory",
    quick="`unit/flows/test_large_gangs.py`, without a limit of memory",
)
def test_provision_of_a_thousand_vms_fits_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ("-c", EMULATOR_WITHOUT_PROCESSES)
    (tmp_path / "compute").mkdir()
    with (
        running_emulator(tmp_path / "compute", "--project", PROJECT, program=program) as emulator,
        world(tmp_path) as cloud,
    ):
        variables = {**cloud.variables, "TRAINMASTER_COMPUTE_ENDPOINT": emulator.endpoint}
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", variables["FIRESTORE_EMULATOR_HOST"])
        store = FirestoreStore(clients.firestore_client(PROJECT))
        job = World(store=store, now=datetime.now(UTC))  # type: ignore[arg-type]  # another store
        job.submit(job_spec(SIZE))
        with running_function("provision", tmp_path, variables) as function:
            provision_until(function, job.job_id, emulator, attempt=1)
            listing = sum(
                len(str(instance))
                for instance in emulator.instances.list(project=PROJECT, zone="us-central1-a")
            )
            crash = ReplicaExited(an_incarnation(CHIEF, job_id=job.job_id), job.now, signal=11)
            record(crash, job.deps)
            provision_until(function, job.job_id, emulator, attempt=2)
            print(f"{function.peak_mib:.0f} MiB, listing of {listing / 1e6:.1f} MB")
            assert function.peak_mib < MIB_MAX
