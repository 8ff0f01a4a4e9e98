"""Outages of Compute Engine while a job runs: no VM is replaced, and the job goes on afterwards."""

from __future__ import annotations

import os
import time

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica_id import ReplicaId, TaskType

pytestmark = [pytest.mark.e2e, pytest.mark.heavy, pytest.mark.timeout(900)]

WORKER_0 = ReplicaId(TaskType.WORKER, 0)
OUTAGE_S = float(os.environ.get("TRAINMASTER_TEST_OUTAGE_S", "10"))
"""The environment variable allows longer manual tests."""


OUTAGES: tuple[dict[str, object], ...] = (
    {"unreachable_zones": [f"us-central1-{letter}" for letter in "abcdef"], "strict_lists": True},
    {"disabled_apis": ["compute"]},
    {"refused_calls": ["set_metadata"]},
)


def restart_in_an_outage(lab: Lab, job_id: str, outage: dict[str, object]) -> None:
    """Kill the worker's program during the outage. All VMs run on, and no directive reaches them until it ends."""
    before = {vm.name: vm.instance_id for vm in lab.fleet.list_vms(job_id)}
    worker, ended_round = lab.vm(job_id, WORKER_0).name, lab.state(job_id).job.round.number
    lab.until(lambda: lab.faults.processes(worker)["program"], 30)
    lab.faults.change(**outage)
    try:
        lab.faults.kill_program(worker)
        lab.until(lambda: lab.state(job_id).job.round.number > ended_round, 30)
        time.sleep(OUTAGE_S)
        assert all(lab.faults.processes(name)["init"] for name in before)
        assert lab.state(job_id).job.round.is_held
    finally:
        lab.faults.clear()
    lab.until(lambda: not lab.state(job_id).job.round.is_held, 90)
    assert {vm.name: vm.instance_id for vm in lab.fleet.list_vms(job_id)} == before


def test_program_killed_in_an_outage_restarts_in_its_vm_when_calls_succeed_again(lab: Lab) -> None:
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait(job_id, "RUNNING")
    for outage in OUTAGES:
        restart_in_an_outage(lab, job_id, outage)
    assert Reason.OUT_OF_REACH in {entry.decision.reason for entry in lab.store.ledger(job_id)}
    lab.finish(job_id)
    state = lab.wait_for_success(job_id, 120)
    assert (state.job.attempt, [replica.replaced for replica in state.replicas]) == (1, [0, 0])
