"""TPU nodes of a realistic stack: creations and deletions take their time, and some creations fail
at their end.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tests.integration.tpu.slices import ONE_HOST, RUNTIME, ZONE
from trainmaster_emulators.machines.catalog import Catalog, Links
from trainmaster_emulators.machines.injected_faults import FaultInjector
from trainmaster_emulators.machines.vm_metadata import Project
from trainmaster_emulators.machines.vm_power import VmPower
from trainmaster_emulators.machines.vm_tokens import TokenIssuer
from trainmaster_emulators.machines.vm_transitions import Timing
from trainmaster_emulators.realism.profile import GOOGLE_CLOUD, Profile, Span
from trainmaster_emulators.tpu.cloud import TpuCloud
from trainmaster_emulators.tpu.hosts import SliceHosts
from trainmaster_emulators.tpu.nodes import NodeState
from trainmaster_emulators.tpu.operations import Operation

FAST = replace(
    GOOGLE_CLOUD,
    tpu_create=Span(low_s=0.4, high_s=0.5),
    tpu_delete=Span(low_s=0.3, high_s=0.4),
    tpu_stockouts=0.0,
)
BODY = {
    "acceleratorType": ONE_HOST.type,
    "runtimeVersion": RUNTIME,
    "metadata": {"startup-script": "trap exit TERM; sleep 60 & wait"},
}


def tpus_like(profile: Profile, folder: Path) -> TpuCloud:
    project = Project("my-project", 123456789012)
    for name in ("vms", "serial"):
        (folder / name).mkdir()
    power = VmPower(project, "127.0.0.1", TokenIssuer(), vm_environment={})
    catalog = Catalog(Links("http://127.0.0.1/compute/v1", project.id), images={})
    tpus = TpuCloud(
        SliceHosts(power, catalog, folder), FaultInjector(), Timing(step_s=0.0, shutdown_s=2.0)
    )
    tpus.lifecycle.behave_like(profile)
    return tpus


def wait(operation: Operation) -> float:
    """Wait until the operation has ended; return how long that took, in seconds."""
    start = time.monotonic()
    while operation.ended_at is None:
        assert time.monotonic() - start < 30
        time.sleep(0.01)
    return time.monotonic() - start


def test_node_is_created_and_deleted_slowly(tmp_path: Path) -> None:
    tpus = tpus_like(FAST, tmp_path)
    assert wait(tpus.create(ZONE, "tm-a", BODY)) >= FAST.tpu_create.low_s - 0.05
    assert tpus.get(ZONE, "tm-a").state is NodeState.READY
    assert wait(tpus.transition("delete", ZONE, "tm-a")) >= FAST.tpu_delete.low_s
    assert tpus.list_all() == []


def test_creation_that_lacks_capacity_fails_at_its_end_and_leaves_no_node(tmp_path: Path) -> None:
    tpus = tpus_like(replace(FAST, tpu_stockouts=1.0), tmp_path)
    operation = tpus.create(ZONE, "tm-a", BODY)
    assert wait(operation) >= FAST.tpu_create.low_s - 0.05
    assert operation.error is not None
    assert "no more capacity" in str(operation.error)
    assert tpus.list_all() == []
