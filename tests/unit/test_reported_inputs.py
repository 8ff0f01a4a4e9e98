"""Inputs of users that were once answered wrongly, each with its answer today.

Each row is the smallest document or error that shows the fault, and says what happened before. The
tests of the module that was repaired have more of the same kind.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.jobs import CHIEF, a_job, a_plan, exited
from trainmaster.agent.program.conventions import launch_variables
from trainmaster.agent.program.tracebacks import parse_traceback
from trainmaster.core.cluster.environment import environment
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.events import ProgramError
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.rules.remedies import remedy_of_exit
from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.program_errors.meaning import Meaning, Place, meaning_of
from trainmaster.wiring.folders import read_requirements

IMAGE: Final = "us-docker.pkg.dev/demo/training/demo:1"
ACCEPTED: Final = "accepted"


def job(**fields: object) -> dict[str, Any]:
    training = {"region": "us-central1", "packageUris": ["gs://demo-bucket/t-0.1.tar.gz"]}
    return {
        "jobId": "demo_1",
        "trainingInput": {**training, "pythonModule": "trainer.task", **fields},
    }


def custom_job(*pools: dict[str, Any], name: str = "demo") -> dict[str, Any]:
    spec = {"workerPoolSpecs": list(pools)}
    return {"displayName": name, "jobSpec": spec, "trainmaster": {"region": "europe-west4"}}


def pool(machine_type: str = "n1-standard-8", **machine: object) -> dict[str, Any]:
    return {
        "machineSpec": {"machineType": machine_type, **machine},
        "replicaCount": 1,
        "containerSpec": {"imageUri": IMAGE},
    }


def reserved(zone: str) -> dict[str, Any]:
    affinity = {
        "reservationAffinityType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [f"projects/demo-project/zones/{zone}/reservations/res-1"],
    }
    gpus = {"acceleratorType": "NVIDIA_H200_141GB", "acceleratorCount": 8}
    return pool("a3-ultragpu-8g", **gpus, reservationAffinity=affinity)


def jobset(command: str, selector: dict[str, str] | None = None, **limits: object) -> str:
    container = {
        "name": "train",
        "image": IMAGE,
        "command": ["bash", "-c", command],
        "resources": {"limits": limits or {"cpu": 8, "memory": "32Gi"}},
    }
    pod = {"nodeSelector": selector or {}, "containers": [container]}
    indexed = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo"},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": indexed}}]},
    }
    return yaml.safe_dump(document)


def pytorch_job(pod: str, worker: str = "") -> str:
    return f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: demo}}
spec:
  pytorchReplicaSpecs:
    Master:
      template: &pod
        spec: {{containers: [{{name: pytorch, image: {IMAGE}, command: [torchrun, a.py], {pod}}}]}}
{worker}
"""


SHARED_POD: Final = "    Worker: {replicas: 2, template: *pod}"
TPU_7X: Final = {
    "cloud.google.com/gke-tpu-accelerator": "tpu7x",
    "cloud.google.com/gke-tpu-topology": "4x4x4",
}

DOCUMENTS: Final = [
    pytest.param(
        "job.yaml",
        jobset("torchrun --node_rank=$JOB_COMPLETION_INDEX a.py"),
        ["{'name': 'JOB_COMPLETION_INDEX', 'value': '$(RANK)'}"],
        id="an index of Kubernetes: was accepted, and empty on the VMs",
    ),
    pytest.param(
        "job.yaml",
        jobset("export RANK=${HOSTNAME##*-}; python a.py"),
        ["{'name': 'HOSTNAME', 'value': 'demo-workers-0-$(RANK)'}"],
        id="a rank of the host name: was accepted, and two replicas had rank 0",
    ),
    pytest.param(
        "job.yaml",
        jobset("python -c \"import socket; print(socket.gethostname().rsplit('-', 1)[1])\""),
        ["takes a number from the host name"],
        id="a rank of the host name in Python: was accepted, and there were two ranks 0",
    ),
    pytest.param(
        "job.yaml",
        custom_job(reserved("europe-west4-a"), reserved("europe-west4-a")),
        ["Reserved(name='projects/demo-project/reservations/res-1'", "zones=('europe-west4-a',)"],
        id="one reservation in every pool: was refused with six problems",
    ),
    pytest.param(
        "job.yaml",
        custom_job(reserved("europe-west4-a"), reserved("europe-west4-b")),
        ["a job has one reservation"],
        id="two reservations: were six problems",
    ),
    pytest.param(
        "job.yaml",
        pytorch_job("resources: {limits: {cpu: 4}}", SHARED_POD),
        [ACCEPTED],
        id="an anchor: was refused, unlike by kubectl",
    ),
    pytest.param(
        "job.yaml",
        "displayName: demo\nworkerPoolSpecs:\n- &pool\n  replicaCount: 1\n"
        f"  machineSpec: {{machineType: n1-standard-8}}\n  containerSpec: {{imageUri: {IMAGE}}}\n"
        "- {<<: *pool, replicaCount: 3}\ntrainmaster: {region: us-central1}\n",
        [ACCEPTED],
        id="a merge key: was refused, unlike by gcloud",
    ),
    pytest.param(
        "job.yaml",
        jobset("python a.py", TPU_7X, **{"google.com/tpu": 4}),
        ["is tpu7x, a type of TPU that jobs cannot have"],
        id="tpu7x: labels were said to be missing",
    ),
    pytest.param(
        "job.yaml",
        job(labels={"team": "vision"}),
        ["is not known here: it belongs next to trainingInput"],
        id="labels in trainingInput: were answered with 26 names",
    ),
    pytest.param(
        "job.yaml",
        job(jobDir="gs://demo-bucket/my runs/exp"),
        ["a space is not allowed in it"],
        id="a space in jobDir: was not named",
    ),
    pytest.param(
        "job.yaml",
        job(jobDir="gs://demo-bucket/exp#1"),
        ['"#" is not allowed in it'],
        id="another character in jobDir: was not named",
    ),
    pytest.param(
        "job.yaml",
        job(packageUris=["gs://Demo_Bucket/t-0.1.tar.gz"]),
        ["a bucket's name has no capital letters"],
        id="capitals in a bucket: were not named",
    ),
    pytest.param(
        "job.json",
        '{\n  // nightly\n  "jobId": "demo_1"\n}',
        ["line 2, column 3: is a comment, which JSON does not have"],
        id="a comment in JSON: was called a missing name in quotes",
    ),
    pytest.param(
        "job.json",
        '{"displayName": "demo", "trainmaster": {"region": "us-central1",},'
        '"workerPoolSpecs": [{"replicaCount": 1, "machineSpec": {"machineType": "n1-standard-8"},'
        f'"containerSpec": {{"imageUri": "{IMAGE}"}}}},],}}',
        [ACCEPTED],
        id="commas behind last values in JSON: were refused, unlike by gcloud",
    ),
    pytest.param(
        "job.yaml",
        custom_job(pool(acceleratorType="NVIDIA_TESLA_L4", acceleratorCount=1)),
        [
            'has no value "NVIDIA_TESLA_L4"; did you mean NVIDIA_L4?',
            'Example: acceleratorType: "NVIDIA_L4"',
        ],
        id="another name of a GPU: was answered with 22 names",
    ),
    pytest.param(
        "job.yaml",
        job(scaleTier="BASIC_GPUS"),
        ['has no value "BASIC_GPUS"; did you mean BASIC_GPU?'],
        id="a misspelled tier: was answered with all names",
    ),
    pytest.param(
        "job.yaml",
        job(scaleTier="HUGE"),
        ["must be one of BASIC, ", 'not "HUGE"'],
        id="a tier like none: is answered with all names",
    ),
    pytest.param(
        "job.yaml",
        pytorch_job("resources: {limits: {cpu: 4k, memory: 16gb}}"),
        ["resources.limits.memory: is '16gb', which is not a quantity. Example: 16Gi"],
        id="a wrong quantity: was two problems, at another field",
    ),
    pytest.param(
        "job.yaml",
        pytorch_job("").replace("spec: {containers", "spec: {schedulingGates: [a], containers"),
        ["schedulingGates: is not supported"],
        id="a field of Kubernetes: was said to be unknown",
    ),
    pytest.param(
        "job.yaml",
        pytorch_job("").replace(
            "spec: {containers", "spec: {shareProcessNamespace: true, containers"
        ),
        [ACCEPTED],
        id="a field without effect: was said to be unknown",
    ),
    pytest.param(
        "job.yaml",
        {**job(), "trainmaster": {"exitPolicy": {"exitPolicy": {"preset": "service"}}}},
        ["trainmaster.exitPolicy.exitPolicy: is not a known name"],
        id="a block nested in itself: was accepted and ignored",
    ),
]


def problems_or_job(name: str, document: object) -> tuple[list[str], str]:
    """Return the problems of a document, and the job file that it leads to."""
    text = document if isinstance(document, str) else yaml.safe_dump(document, allow_unicode=True)
    try:
        converted = dict(read_document(text.encode(), name, "us-central1"))
        spec = accept(converted, default_job_id="demo_1")
    except InvalidJob as invalid:
        found = invalid.problems
        return [f"{item.field}: {item.problem}. Example: {item.example}" for item in found], ""
    return [], f"{ACCEPTED} {converted} {spec.plan}"


@pytest.mark.parametrize(("name", "document", "expected"), DOCUMENTS)
def test_document_has_one_problem_or_a_job(
    name: str, document: object, expected: Sequence[str]
) -> None:
    problems, accepted = problems_or_job(name, document)
    assert len(problems) <= 1
    shown = accepted or problems[0]
    assert [text for text in expected if text not in shown] == []


@pytest.mark.parametrize(
    "line",
    [
        "numpy @ file:///croot/numpy_1/work/dist/numpy-1.26.4-cp311-linux_x86_64.whl",
        "mylib @ ../mylib",
        "numpy=1.26.4=py311h_0",
        "mylib-0.1-py3-none-any.whl",
        "./mylib",
    ],
)
def test_requirement_that_no_vm_can_install_is_refused_before_a_vm_starts(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "requirements.txt").write_text(f"pandas==2.2.0\n{line}\n", encoding="utf-8")
    with pytest.raises(PermanentError, match=r"requirements\.txt:2"):
        read_requirements(tmp_path)


def test_jobs_named_in_other_scripts_have_different_ids() -> None:
    ids = {
        accept(custom_job(pool(), name=name), default_job_id=None).job_id
        for name in ("学習ジョブ", "推論ジョブ", "api_世界", "api_你好")
    }
    assert len(ids) == 4


def test_copy_that_a_notebook_keeps_is_no_job_file() -> None:
    copy = UploadedObject("bucket", "jobs/.ipynb_checkpoints/digits-checkpoint.yaml", 1)
    assert not copy.is_job_file
    assert not copy.is_misnamed


@pytest.mark.parametrize(
    ("error_type", "message", "meaning"),
    [
        pytest.param(
            "RuntimeError",
            "Expected all tensors to be on the same device, but found cuda:0 and cpu!",
            Meaning.BUG,
            id="devices: were transient",
        ),
        pytest.param(
            "AssertionError",
            "Torch not compiled with CUDA enabled",
            Meaning.BUG,
            id="no CUDA: was transient",
        ),
        pytest.param(
            "OSError",
            "[Errno 28] No space left on device",
            Meaning.SETTING,
            id="full disk: was unknown",
        ),
    ],
)
def test_words_of_devices_excuse_no_error_that_lasts(
    error_type: str, message: str, meaning: Meaning
) -> None:
    place = Place(has_accelerators=False, has_peers=False)
    assert meaning_of(error_type, message, place=place) is meaning


def test_full_disk_has_advice_with_a_larger_size() -> None:
    error = ProgramError("OSError", "[Errno 28] No space left on device", "a.py:1 in <module>")
    assert "bootDiskSizeGb: 200" in remedy_of_exit(exited(CHIEF, 1, error=error), a_plan())


def test_message_that_begins_with_user_code_names_the_error_behind_it() -> None:
    output = (
        "Traceback (most recent call last):\n"
        '  File "/opt/run/train.py", line 4, in <module>\n    build()\n'
        "AttributeError: in user code:\n\n"
        '    File "train.py", line 2, in build  *\n        w = backend.Variable(1.0)\n\n'
        "    AttributeError: module 'keras.backend' has no attribute 'Variable'\n"
    )
    error = parse_traceback(output)
    assert error is not None
    found = ProgramError(error["type"], error["message"], error["frame"])
    assert found.headline.startswith("in user code: AttributeError: module 'keras.backend' has no")


def test_programs_of_lightgbm_find_their_workers() -> None:
    """They ended with KeyError on three VMs."""
    plan = a_plan(workers=2)
    addresses = {replica_id: f"{replica_id}:2222" for replica_id in plan.replica_ids}
    cluster = Cluster(a_job(plan=plan), "demo", addresses)
    platform = {
        **environment(cluster, CHIEF.task_type, "us-central1-a", ("vm",)),
        "RANK": "0",
        "TF_CONFIG": json.dumps(cluster.tf_config(CHIEF.task_type)),
    }
    assert launch_variables(platform, 0)["WORKER_ADDRS"] == "worker-0,worker-1"
