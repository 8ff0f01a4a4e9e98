"""Google's command-line clients and trainmaster, with the environment of `trainmaster
local env`.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Lab
from tests.integration.agent.support.packages import wheel_of
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import job_label

HEAVY = pytest.mark.heavy(
    fact="clients and programs reach Cloud Storage",
    quick="`integration/stack/test_googleapis_proxy.py`, `integration/agent/test_gcs_mount.py`",
)

pytestmark = pytest.mark.e2e

WORKER_0 = ReplicaId(TaskType.WORKER, 0)


def a_job_file(lab: Lab, folder: Path, steps: int) -> Path:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(lab.scripted_spec(workers=1, steps=steps)))
    return path


def job_of(lab: Lab, uri: str) -> str:
    job_ids: list[str] = []

    def is_there() -> bool:
        job_ids.extend(
            job.job_id for job in lab.store.recent_jobs(10) if job.submission.startswith(f"{uri}#")
        )
        return bool(job_ids)

    lab.until(is_there, 20)
    return job_ids[0]


@HEAVY
def test_job_submitted_by_gsutil_survives_a_live_migration_by_gcloud(
    lab: Lab, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    uri = f"gs://{lab.bucket}/jobs/with_gsutil.yaml"
    copied = lab.stack.run("gsutil", "cp", str(a_job_file(lab, tmp_path, 100_000)), uri, home=home)
    assert copied.returncode == 0, copied.stderr
    job_id = job_of(lab, uri)
    lab.wait(job_id, "RUNNING")
    vm = lab.vm(job_id, WORKER_0)
    listed = lab.stack.run(
        "gcloud",
        "compute",
        "instances",
        "list",
        f"--filter=labels.trainmaster-job={job_label(job_id)}",
        "--format=value(name,status)",
        home=home,
    )
    assert sorted(line.split() for line in listed.stdout.splitlines()) == sorted(
        [vm.name, "RUNNING"] for vm in lab.fleet.list_vms(job_id)
    ), listed.stderr
    simulated = lab.stack.run(
        "gcloud",
        "compute",
        "instances",
        "simulate-maintenance-event",
        vm.name,
        f"--zone={vm.zone}",
        home=home,
    )
    assert simulated.returncode == 0, simulated.stderr
    lab.until(lambda: "MIGRATE_ON_HOST_MAINTENANCE" in lab.console(job_id, WORKER_0), 30)
    replica = lab.replica(job_id, WORKER_0)
    assert (replica.state, replica.vm_generation, replica.incarnation) == (
        ReplicaState.RUNNING,
        1,
        1,
    ), "the VM moved without a restart"
    assert lab.vm(job_id, WORKER_0).instance_id == vm.instance_id
    lab.cancel(job_id)
    assert list(home.rglob("*")) == [], "gcloud and gsutil leave no files in the user's home"


@HEAVY
def test_program_on_a_vm_reads_its_bucket_with_urllib_gsutil_and_gcloud(lab: Lab) -> None:
    program = """
        import subprocess, sys, urllib.request
        uri = sys.argv[1]
        url = "https://storage.googleapis.com/" + uri[5:]
        print(urllib.request.urlopen(url, timeout=20).read())
        for command in (["gsutil", "cat", uri], ["gcloud", "storage", "cat", uri]):
            print(subprocess.run(command, timeout=60, check=True, stdout=subprocess.PIPE).stdout)
    """
    uri = f"gs://{lab.bucket}/data/greeting.txt"
    lab.objects.write(uri, b"hello from the bucket", content_type="text/plain")
    wheel = f"gs://{lab.bucket}/packages/reader-0.1-py3-none-any.whl"
    files = {"reader/__init__.py": "", "reader/task.py": textwrap.dedent(program)}
    lab.objects.write(wheel, wheel_of("reader", files), content_type="application/zip")
    spec = lab.scripted_spec(workers=0, packageUris=[wheel], pythonModule="reader.task", args=[uri])
    lab.wait_for_success(lab.upload(spec, "reader"), 120)


@HEAVY
def test_job_submitted_by_gcloud_storage_is_described_by_trainmaster(
    lab: Lab, tmp_path: Path
) -> None:
    uri = f"gs://{lab.bucket}/jobs/with_gcloud.yaml"
    copied = lab.stack.run(
        "gcloud", "storage", "cp", str(a_job_file(lab, tmp_path, 1)), uri, home=tmp_path
    )
    assert copied.returncode == 0, copied.stderr
    job_id = job_of(lab, uri)
    lab.wait_for_success(job_id)
    described = lab.stack.run(
        "trainmaster", "jobs", "describe", job_id, "--format", "json", home=tmp_path
    )
    view = json.loads(described.stdout)
    assert (view["jobId"], view["state"]) == (job_id, "SUCCEEDED")
    assert view["trainingInput"]["workerCount"] == 1
    assert view["createTime"] <= view["startTime"] <= view["endTime"]
    table = lab.stack.run("trainmaster", "jobs", "list", home=tmp_path).stdout
    assert [line for line in table.splitlines() if job_id in line and "SUCCEEDED" in line]
    story = lab.stack.run("trainmaster", "jobs", "ledger", job_id, home=tmp_path).stdout
    assert "is the primary and exited 0" in story
