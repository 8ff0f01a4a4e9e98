"""IAM on a realistic stack: the grants of infra/ suffice for a job, and a missing one is named where the job stops."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulators.realism.call_access import INFRA, TABLE_FILE
from emulators.realism.compute_access import ROLES_FILE
from emulators.stack.state import StackConfig
from shared.core.model.job import JobState
from tests.e2e.conftest import Lab, lab_on
from tests.support.stack import local_stack

pytestmark = [pytest.mark.e2e, pytest.mark.heavy, pytest.mark.timeout(400)]

TIME_SCALE = 0.05
NO_SWEEP_S = 3_600.0


@contextmanager
def realistic_lab(folder: Path, **changes: object) -> Iterator[Lab]:
    config = StackConfig(realistic=True, time_scale=TIME_SCALE).model_copy(update=changes)
    with local_stack(folder / "stack", config) as stack, lab_on(stack, folder) as lab:
        yield lab


def without(folder: Path, file: str, grant: str) -> Path:
    """Return a copy of infra/ that lacks a grant."""
    for name in (TABLE_FILE, ROLES_FILE):
        shutil.copy(INFRA / name, folder / name)
    text = (folder / file).read_text(encoding="utf-8")
    assert text.count(grant) == 1
    (folder / file).write_text(text.replace(grant, ""), encoding="utf-8")
    return folder


def test_job_needs_no_permission_that_infra_does_not_grant(tmp_path: Path) -> None:
    with realistic_lab(tmp_path) as lab:
        lab.wait_for_success(lab.scripted(workers=1), within_s=120)
        assert not lab.stack.refusals()


def test_vm_without_the_permission_to_report_names_it(tmp_path: Path) -> None:
    grant = "| worker | `roles/pubsub.publisher` | topic vm-ready |  |\n"
    refusal = "worker does not have the permission pubsub.topics.publish on topic vm-ready"
    infra = without(tmp_path, TABLE_FILE, grant)
    with realistic_lab(tmp_path, infra_dir=infra) as lab:
        job_id = lab.scripted(workers=1)
        lab.until(lambda: refusal in lab.stack.refusals(), 60)
        assert set(lab.stack.refusals()) == {refusal}
        assert lab.state(job_id).job.state is JobState.PREPARING


def test_log_of_the_function_names_the_missing_topic(tmp_path: Path) -> None:
    grant = "| function submit | `roles/pubsub.publisher` | topic provision |  |\n"
    refusal = "submit does not have the permission pubsub.topics.publish on topic provision"
    infra = without(tmp_path, TABLE_FILE, grant)
    # Without sweeps: `sweep` has the grant, and continues what `submit` could not.
    with realistic_lab(tmp_path, infra_dir=infra, sweep_every_s=NO_SWEEP_S) as lab:
        job_id = lab.scripted(workers=1)
        lab.until(lambda: refusal in lab.stack.log("submit"), 60)
        assert set(lab.stack.refusals()) == {refusal}
        assert not lab.fleet.list_all()
        assert not lab.state(job_id).job.state.is_terminal


def test_job_without_the_permission_to_create_vms_names_it(tmp_path: Path) -> None:
    refusal = "provision does not have the permission compute.instances.create on project"
    infra = without(tmp_path, ROLES_FILE, '    "compute.instances.create",\n')
    with realistic_lab(tmp_path, infra_dir=infra) as lab:
        job_id = lab.scripted(workers=1)
        lab.until(lambda: refusal in lab.stack.refusals(), 60)
        lab.wait(job_id, "FAILED")
        assert refusal in (lab.state(job_id).job.error_message or "")
