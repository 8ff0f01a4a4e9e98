"""Alternatives of a job on the realistic local stack: found in the second region, lost there, and
back in the first.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import MANY_STEPS
from tests.e2e.faults.test_missing_grant import realistic_lab
from tests.e2e.faults.test_vm_loss import provisioning_model
from trainmaster.core.model.replica_id import ReplicaId, TaskType

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="a job moves to its second region and returns",
        quick="`unit/flows/placement`, `sim/test_alternatives.py`",
    ),
    pytest.mark.timeout(900),
]

FIRST = [f"us-central1-{letter}" for letter in "abcf"]
SECOND = [f"us-east1-{letter}" for letter in "bcd"]
REPLICAS = (ReplicaId(TaskType.CHIEF, 0), ReplicaId(TaskType.WORKER, 0))


def test_job_runs_in_the_second_region_loses_its_vms_and_returns_to_the_first(
    tmp_path: Path,
) -> None:
    alternatives = [
        {"spot": "all", "env": {"PLACE": "first"}},
        {
            "regions": ["us-east1"],
            "machineSpec": {"machineType": "n1-standard-8"},
            "env": {"PLACE": "second"},
        },
    ]
    with realistic_lab(tmp_path) as lab:
        lab.faults.change(stockout_zones=FIRST)
        job_id = lab.scripted(
            workers=1,
            steps=MANY_STEPS,
            step_s=0.1,
            trainmaster={"placement": {"ordered": alternatives}},
        )
        lab.wait(job_id, "RUNNING", 120)
        vms = [lab.vm(job_id, replica_id) for replica_id in REPLICAS]
        assert {vm.zone for vm in vms} <= set(SECOND)
        assert [provisioning_model(lab, vm) for vm in vms] == ["STANDARD", "STANDARD"]
        lab.faults.change(stockout_zones=SECOND)
        for vm in vms:
            lab.faults.crash(vm.name)

        def is_back() -> bool:
            now = [vm for vm in lab.fleet.list_vms(job_id) if vm.zone in FIRST]
            return len(now) == len(lab.fleet.list_vms(job_id)) == len(REPLICAS)

        lab.until(is_back, 200)
        vms = [lab.vm(job_id, replica_id) for replica_id in REPLICAS]
        assert [provisioning_model(lab, vm) for vm in vms] == ["SPOT", "SPOT"]
        lab.until(
            lambda: all(
                "begins after step" in lab.console(job_id, replica_id) for replica_id in REPLICAS
            ),
            120,
        )
        lab.finish(job_id)
        state = lab.wait_for_success(job_id, 120)
        assert [replica.restarts_used for replica in state.replicas] == [0, 0]
        texts = "\n".join(entry.decision.text for entry in lab.decisions(job_id))
        assert "trying n1-standard-8 in us-east1-" in texts
        assert "trying Spot n1-standard-4 in us-central1-" in texts
        assert not lab.stack.refusals()
