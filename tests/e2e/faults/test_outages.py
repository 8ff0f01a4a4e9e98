"""Outages of Google Cloud on a realistic stack while jobs run: no VM is replaced, and the jobs go
on afterwards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab, lab_on
from tests.e2e.jobs.test_tpu import ONE_HOST, ONE_SLICE, TpuFleetInZones, TpuLab
from tests.support.stack import local_stack
from trainmaster.core.decisions import Reason
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster_emulators.process.stack_config import StackConfig

OUTAGE_S = float(os.environ.get("TRAINMASTER_TEST_OUTAGE_S", "10"))
"""The environment variable allows longer manual tests, with `-s`, which shows what users read
meanwhile.
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="jobs outlast an outage of Google Cloud without another VM",
        quick=(
            "`unit/flows/test_outages.py`, `unit/flows/test_unreachable_zones.py`,"
            " `sim/test_outage_ends.py`"
        ),
    ),
    pytest.mark.timeout(900 + 5 * OUTAGE_S),
]

COMPUTE_OUTAGES: tuple[dict[str, object], ...] = (
    {"unreachable_zones": [f"us-central1-{letter}" for letter in "abcdef"], "strict_lists": True},
    {"disabled_apis": ["compute"]},
    {"refused_calls": ["set_metadata"]},
)
TPU_OUTAGE: dict[str, object] = {"disabled_apis": ["tpu"]}


@pytest.fixture(scope="module")
def tpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuLab]:
    folder = tmp_path_factory.mktemp("realistic")
    with (
        local_stack(folder / "stack", StackConfig(realistic=True)) as stack,
        lab_on(stack, folder) as lab,
    ):
        endpoint = stack.environment["TRAINMASTER_TPU_ENDPOINT"]
        fleet = TpuFleetInZones(VmDefaults(stack.state.config.project), endpoint=endpoint)
        yield TpuLab(stack, lab.store, fleet, lab.objects, lab.bus, folder)


def restart_in_an_outage(lab: Lab, job_id: str, outage: dict[str, object]) -> None:
    """Kill one program during the outage.

    All VMs run on, and no directive reaches them until it ends. A directive is an order to the
    agent of a VM, such as to run the program again.
    """
    before = {vm.name: vm.instance_id for vm in lab.fleet.list_vms(job_id)}
    victim = max(before)  # the name of a worker, if there is one
    starts_before = ordered_starts(lab, job_id)
    lab.until(lambda: lab.faults.processes(victim)["program"], 30)
    lab.faults.change(**outage)
    try:
        lab.faults.kill_program(victim)
        lab.until(lambda: ordered_starts(lab, job_id) > starts_before, 30)
        time.sleep(OUTAGE_S)
        for words in (["why", job_id], ["doctor"]):
            print(
                f"\n{outage}: trainmaster"
                f" {words[0]}\n{lab.stack.run('trainmaster', *words).stdout[-2_000:]}"
            )
        assert all(lab.faults.processes(name)["init"] for name in before)
        assert not is_everything_running(lab, job_id)
    finally:
        lab.faults.clear()
    lab.until(lambda: is_everything_running(lab, job_id), 90)
    assert {vm.name: vm.instance_id for vm in lab.fleet.list_vms(job_id)} == before


def ordered_starts(lab: Lab, job_id: str) -> tuple[int, int]:
    """Return the numbers of the latest start of all members together, which is a round, and of one
    replica alone, which is an incarnation. Each restart that is ordered makes one of them greater.
    """
    state = lab.state(job_id)
    return state.job.round.number, max(replica.incarnation for replica in state.replicas)


def is_everything_running(lab: Lab, job_id: str) -> bool:
    state = lab.state(job_id)
    return not state.job.round.is_held and all(
        replica.state == "RUNNING" for replica in state.replicas
    )


def check_nothing_was_lost(lab: Lab, job_id: str) -> None:
    assert Reason.OUT_OF_REACH in {entry.decision.reason for entry in lab.store.ledger(job_id)}, (
        lab.story(job_id)
    )
    state = lab.state(job_id)
    assert state.job.attempt == 1
    assert not any(replica.replaced for replica in state.replicas)


def test_program_killed_in_an_outage_restarts_in_its_vm_when_calls_succeed_again(
    tpus: TpuLab,
) -> None:
    with lab_on(tpus.stack, tpus.packages) as lab:
        job_id = lab.scripted(workers=1, steps=MANY_STEPS)
        lab.wait(job_id, "RUNNING", 300)
        # A replica may have been ready in another zone.
        lab.until(lambda: is_everything_running(lab, job_id), 120)
        for outage in COMPUTE_OUTAGES:
            restart_in_an_outage(lab, job_id, outage)
        check_nothing_was_lost(lab, job_id)
        lab.finish(job_id)
        lab.wait_for_success(job_id, 120)


def test_slice_runs_on_while_cloud_tpu_is_out_of_reach(tpus: TpuLab) -> None:
    job_id = tpus.scripted_on_slice(MANY_STEPS, replace(ONE_SLICE, tpu=ONE_HOST))
    tpus.wait(job_id, "RUNNING", 300)
    restart_in_an_outage(tpus, job_id, TPU_OUTAGE)
    check_nothing_was_lost(tpus, job_id)
    tpus.cancel(job_id)
