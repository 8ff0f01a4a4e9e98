"""IAM on a realistic stack: the grants of infra/ suffice for a job, and a missing one is named where the job stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulators.realism.call_access import TABLE
from emulators.stack.state import StackConfig
from tests.e2e.conftest import Lab, lab_on
from tests.support.stack import local_stack

pytestmark = [pytest.mark.e2e, pytest.mark.heavy, pytest.mark.timeout(400)]

TIME_SCALE = 0.05
NO_SWEEP_S = 3_600.0
GRANT = "| function submit | `roles/pubsub.publisher` | topic provision |  |\n"
REFUSAL = "submit does not have the permission pubsub.topics.publish on topic provision"


@contextmanager
def realistic_lab(folder: Path, **changes: object) -> Iterator[Lab]:
    config = StackConfig(realistic=True, time_scale=TIME_SCALE).model_copy(update=changes)
    with local_stack(folder / "stack", config) as stack:
        yield from lab_on(stack, folder / "packages")


def test_job_needs_no_permission_that_infra_does_not_grant(tmp_path: Path) -> None:
    with realistic_lab(tmp_path) as lab:
        lab.wait_for_success(lab.scripted(workers=1), within_s=120)
        lab.until(lambda: not lab.fleet.list_all(), 60)
        assert not lab.stack.refusals()


def test_log_of_the_function_names_the_missing_grant(tmp_path: Path) -> None:
    table = TABLE.read_text(encoding="utf-8")
    assert GRANT in table
    grants = tmp_path / "grants.md"
    grants.write_text(table.replace(GRANT, ""), encoding="utf-8")
    # Without sweeps: `sweep` has the grant, and continues what `submit` could not.
    with realistic_lab(tmp_path, grants=grants, sweep_every_s=NO_SWEEP_S) as lab:
        job_id = lab.scripted(workers=1)
        lab.until(lambda: REFUSAL in lab.stack.log("submit"), 60)
        assert set(lab.stack.refusals()) == {REFUSAL}
        assert not lab.fleet.list_all()
        assert not lab.state(job_id).job.state.is_terminal
