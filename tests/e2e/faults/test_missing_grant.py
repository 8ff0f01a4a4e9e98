"""IAM on a realistic stack: the grants of infra/ suffice for a job, and a missing one is named
where the job stops.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import psutil
import pytest

from tests.e2e.conftest import Lab, lab_on
from tests.support.serving import serving
from tests.support.stack import LocalStack, local_stack, reserved_ports
from trainmaster.console.iap_sign_in import ASSERTION
from trainmaster.core.model.job import JobState
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process.service import run_alone
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.realism.call_access import INFRA, TABLE_FILE
from trainmaster_emulators.realism.compute_access import ROLES_FILE
from trainmaster_emulators.services import functions_host, grpc_gate, http_gate
from trainmaster_emulators.services.iap_issuer import IapIssuer
from trainmaster_emulators.stack import gates

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="the grants of infra/ suffice for a whole job, and a missing one is named",
        quick=(
            "`infra/test_call_access.py`, `infra/test_storage_access.py`,"
            " `integration/stack/test_http_gate.py`"
        ),
    ),
    pytest.mark.timeout(400),
]

TIME_SCALE = 0.05
NO_SWEEP_S = 3_600.0
AUDIENCE = "/projects/17/locations/us-central1/services/trainmaster-console"
GATES = (grpc_gate.NAME, http_gate.NAME)


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


def gate_of(stack: LocalStack, name: str, account: str) -> str:
    """Return the address of an account at one of the stack's gates."""
    words = psutil.Process(stack.state.services[name].pid).cmdline()
    (port,) = [word.removeprefix(f"{account}=") for word in words if word.startswith(f"{account}=")]
    return f"127.0.0.1:{port}"


@contextmanager
def hosted_console(stack: LocalStack, log: Path) -> Iterator[Callable[[str], str]]:
    """Run the function `console` with the addresses of its account.

    Yields a function that reads a page.
    """
    issuer = IapIssuer()
    grpc_address, http_address = (gate_of(stack, gate, "console") for gate in GATES)
    with serving(issuer.listen()) as keys, reserved_ports() as ports:
        variables = {
            **stack.environment,
            **dict.fromkeys(gates.GRPC_VARIABLES, grpc_address),
            **dict.fromkeys(gates.HTTP_VARIABLES, f"http://{http_address}"),
            "TRAINMASTER_CONSOLE_AUDIENCE": AUDIENCE,
            "TRAINMASTER_CONSOLE_KEYS": keys,
        }
        (service,) = functions_host.services(
            ROOT / "functions", {"console": ports.take()}, variables
        )
        with run_alone(service, log) as console:

            def read(path: str) -> str:
                assertion = issuer.assertion("anna@example.com", AUDIENCE, datetime.now(UTC))
                request = Request(f"http://{console.address}{path}", headers={ASSERTION: assertion})
                return str(urlopen(request, timeout=60).read().decode())

            yield read


def test_job_and_console_need_no_permission_that_infra_does_not_grant(tmp_path: Path) -> None:
    with realistic_lab(tmp_path) as lab:
        job_id = lab.scripted(workers=1)
        lab.wait_for_success(job_id, within_s=120)
        with hosted_console(lab.stack, tmp_path / "console.log") as read:
            assert "SUCCEEDED" in read(f"/jobs/{job_id}")
            assert "Running module trainer.task." in read(f"/jobs/{job_id}/logs")
            read(f"/jobs/{job_id}/resources")
        assert not lab.stack.refusals()


def test_vm_without_the_permission_to_report_names_it(tmp_path: Path) -> None:
    grant = "worker,roles/pubsub.publisher,topic vm-ready,\n"
    refusal = "worker does not have the permission pubsub.topics.publish on topic vm-ready"
    infra = without(tmp_path, TABLE_FILE, grant)
    with realistic_lab(tmp_path, infra_dir=infra) as lab:
        job_id = lab.scripted(workers=1)
        lab.until(lambda: refusal in lab.stack.refusals(), 60)
        assert set(lab.stack.refusals()) == {refusal}
        assert lab.state(job_id).job.state is JobState.PREPARING


def test_log_of_the_function_names_the_missing_topic(tmp_path: Path) -> None:
    grant = "function submit,roles/pubsub.publisher,topic provision,\n"
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
        lab.until(lambda: refusal in lab.story(job_id), 60)
        # For an hour, in which the role can be repaired.
        assert not lab.state(job_id).job.state.is_terminal
