"""Valid jobs and their plans."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, Final

import pytest

from tests.support.jobs import change_plan
from tests.unit.jobspec.bodies import MINIMAL, custom, gpus, job
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import Accelerator, Program, TaskGroup, Variable
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.catalog.regions import REGION_ZONES
from trainmaster.jobspec.catalog.scale_tiers import TIERS
from trainmaster.jobspec.reading.parse_document import parse_document

LEGACY_JOB: Final = b"""
# A file for gcloud ai-platform jobs submit training --config.
trainingInput:
  scaleTier: CUSTOM
  masterType: standard
  workerType: standard_gpu
  workerCount: 2
  parameterServerType: large_model
  parameterServerCount: 1
  runtimeVersion: '2.11'
  pythonVersion: '3.7'
  region: europe-west1
  packageUris:
  - gs://my-bucket/digits/packages/abc/trainer-0.0.0.tar.gz
  pythonModule: trainer.task
  args: [--epochs, '5']
  jobDir: gs://my-bucket/digits
  scheduling: {maxRunningTime: 7200s, maxWaitTime: 3600.5s}
labels: {team: vision}
"""


def plan_of(document: dict[str, object]) -> Plan:
    return accept(document, default_job_id=None).plan


def groups_of(document: dict[str, object]) -> dict[str, tuple[int, str]]:
    return {
        group.task_type.value: (group.count, group.machine_type)
        for group in plan_of(document).groups
    }


def substitutions_of(document: dict[str, object]) -> dict[str, tuple[str, str]]:
    return {
        note.field: (note.requested, note.replacement)
        for note in plan_of(document).origin.substitutions
    }


def test_legacy_job_file_gets_current_machines_and_runtime() -> None:
    spec = accept(parse_document(LEGACY_JOB, "jobs/digits.yaml"), default_job_id="digits_1")
    plan = spec.plan

    assert spec.job_id == "digits_1"
    assert spec.labels == {"team": "vision"}
    assert plan.groups == (
        TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"),
        TaskGroup(TaskType.WORKER, 2, "n1-standard-8", Accelerator("nvidia-tesla-t4", 1)),
        TaskGroup(TaskType.PS, 1, "n1-highmem-8"),
    )
    assert plan.program == Program(
        ("gs://my-bucket/digits/packages/abc/trainer-0.0.0.tar.gz",),
        "trainer.task",
        ("--epochs", "5"),
        "gs://my-bucket/digits",
        environment=(Variable("TF_USE_LEGACY_KERAS", "1"),),
    )
    assert plan.where.zones == ("europe-west1-b", "europe-west1-c", "europe-west1-d")
    assert (plan.limits.max_running_s, plan.limits.max_wait_s) == (7200, 3601)
    assert plan.image.runtime == "tensorflow"
    assert {
        (note.field.removeprefix("trainingInput."), note.requested, note.replacement)
        for note in plan.origin.substitutions
    } == {
        ("runtimeVersion", "2.11", "2.21"),
        ("runtimeVersion", "Keras of 2.11", "TF_USE_LEGACY_KERAS=1"),
        ("pythonVersion", "3.7", "3.12"),
        ("masterType", "standard", "n1-standard-4"),
        ("workerType", "standard_gpu", "n1-standard-8 + 1 x nvidia-tesla-t4"),
        ("parameterServerType", "large_model", "n1-highmem-8"),
    }
    for substitution in plan.origin.substitutions:
        assert substitution.reason.endswith(".")
        assert ". " not in substitution.reason, "one sentence"


def test_smallest_job_is_one_chief_on_the_basic_tier_with_documented_defaults() -> None:
    plan = plan_of(job())

    assert plan.groups == (TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"),)
    assert plan.primary == ReplicaId(TaskType.CHIEF, 0)
    assert plan.where.zones == REGION_ZONES["us-central1"]
    assert (plan.limits.max_running_s, plan.limits.max_wait_s) == (604_800, None)
    assert plan.origin.substitutions == ()
    assert not plan.restarts.restart_job_on_worker_restart
    assert not plan.restarts.disable_retries


@pytest.mark.parametrize(
    ("tier", "groups"),
    [
        ("BASIC", {"chief": (1, "n1-standard-4")}),
        (
            "STANDARD_1",
            {
                "chief": (1, "n1-highcpu-8"),
                "worker": (4, "n1-highcpu-8"),
                "ps": (3, "n1-standard-4"),
            },
        ),
        (
            "PREMIUM_1",
            {
                "chief": (1, "n1-highcpu-16"),
                "worker": (19, "n1-highcpu-16"),
                "ps": (11, "n1-highmem-8"),
            },
        ),
        ("BASIC_GPU", {"chief": (1, "n1-standard-8")}),
    ],
)
def test_scale_tier_is_its_documented_cluster(
    tier: str, groups: dict[str, tuple[int, str]]
) -> None:
    assert groups_of(job(scaleTier=tier)) == groups


def test_basic_gpu_gets_t4_with_a_substitution() -> None:
    plan = plan_of(job(scaleTier="BASIC_GPU"))

    assert plan.groups[0].accelerator == Accelerator("nvidia-tesla-t4", 1)
    assert [
        (note.field, note.requested, note.replacement) for note in plan.origin.substitutions
    ] == [("trainingInput.scaleTier", "1 x NVIDIA_TESLA_K80", "1 x nvidia-tesla-t4")]


@pytest.mark.parametrize(
    ("version", "primary"),
    [
        (None, "chief"),
        ("1.0", "master"),
        ("1.14", "master"),
        ("1.15", "master"),
        ("2.1", "chief"),
        ("2.11", "chief"),
        ("2.21", "chief"),
        ("pytorch-2.13", "chief"),
    ],
)
def test_primary_is_chief_since_runtime_2_1_and_master_before(
    version: str | None, primary: str
) -> None:
    assert list(groups_of(job(runtimeVersion=version))) == [primary]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.21", "tensorflow"),
        ("2.6", "tensorflow"),
        ("pytorch-2.13", "pytorch"),
        ("scikit-learn-1.9", "scikit-learn"),
    ],
)
def test_runtime_version_selects_runtime(version: str, name: str) -> None:
    assert plan_of(job(runtimeVersion=version)).image.runtime == name


def test_roles_of_custom_tier_get_their_own_machines() -> None:
    document = custom(
        masterType="n1-highcpu-16",
        workerType="n1-highcpu-16",
        workerCount="9",
        parameterServerType="n1-highmem-8",
        parameterServerCount="3",
        evaluatorType="n1-highcpu-16",
        evaluatorCount=1,
    )

    assert groups_of(document) == {
        "chief": (1, "n1-highcpu-16"),
        "worker": (9, "n1-highcpu-16"),
        "ps": (3, "n1-highmem-8"),
        "evaluator": (1, "n1-highcpu-16"),
    }
    assert substitutions_of(document) == {}


@pytest.mark.parametrize(
    ("machine", "config", "accelerator"),
    [
        ("n1-standard-8", gpus("NVIDIA_TESLA_T4", "1"), Accelerator("nvidia-tesla-t4", 1)),
        ("n1-standard-32", gpus("NVIDIA_TESLA_K80", 8), Accelerator("nvidia-tesla-t4", 4)),
        ("n1-highcpu-64", gpus("NVIDIA_TESLA_P100", 4), Accelerator("nvidia-tesla-t4", 4)),
        ("g2-standard-24", None, Accelerator("nvidia-l4", 2)),
        ("g2-standard-24", gpus("NVIDIA_L4", 2), Accelerator("nvidia-l4", 2)),
        ("a2-highgpu-1g", gpus("NVIDIA_TESLA_A100", 1), Accelerator("nvidia-tesla-a100", 1)),
        ("a3-highgpu-8g", None, Accelerator("nvidia-h100-80gb", 8)),
        ("c3-standard-22", None, None),
        ("complex_model_l_gpu", None, Accelerator("nvidia-tesla-t4", 4)),
    ],
)
def test_gpus_have_compute_engine_names_and_count_per_vm(
    machine: str, config: dict[str, object] | None, accelerator: Accelerator | None
) -> None:
    assert (
        plan_of(custom(masterType=machine, masterConfig=config)).groups[0].accelerator
        == accelerator
    )


def test_requested_boot_disk_is_used() -> None:
    plan = plan_of(
        job(masterConfig={"diskConfig": {"bootDiskSizeGb": 500, "bootDiskType": "pd-standard"}})
    )

    assert (plan.groups[0].boot_disk_gib, plan.groups[0].boot_disk_type) == (500, "pd-standard")


def test_extension_sets_zones_and_restart_of_job() -> None:
    extension = {"zones": ["us-central1-f", "us-central1-a"], "restartJobOnWorkerRestart": True}
    plan = plan_of({**job(), "trainmaster": extension})

    assert plan.where.zones == ("us-central1-f", "us-central1-a")
    assert plan.restarts.restart_job_on_worker_restart


def test_replicas_are_independent_only_if_the_job_says_so() -> None:
    assert not plan_of(job()).restarts.independent
    assert plan_of({**job(), "trainmaster": {"independentReplicas": True}}).restarts.independent


def test_disable_retries_overrides_restart_of_job() -> None:
    plan = plan_of(
        {**job(), "trainmaster": {"disable_retries": "true", "restart_job_on_worker_restart": True}}
    )

    assert plan.restarts.disable_retries
    assert not plan.restarts.restart_job_on_worker_restart


def test_tfx_body_with_snake_case_names_is_accepted() -> None:
    spec = accept(
        {
            "job_id": "tfx_20240102030405",
            "training_input": {**MINIMAL, "scaleTier": None, "args": None, "jobDir": ""},
            "labels": {"tfx_runner": "kubeflow", "tfx_py_version": "3-7", "tfx_version": "1-0-0"},
        },
        default_job_id="unused",
    )

    assert spec.job_id == "tfx_20240102030405"
    assert spec.labels["tfx_py_version"] == "3-7"


def test_tensorflow_cloud_body_with_unspecified_values_is_accepted() -> None:
    no_gpus = gpus("ACCELERATOR_TYPE_UNSPECIFIED", "0")
    document = custom(
        scaleTier="custom",
        masterConfig=no_gpus,
        workerCount="0",
        workerConfig=no_gpus,
        use_chief_in_tf_config=True,
    )

    assert plan_of(document).groups == (TaskGroup(TaskType.CHIEF, 1, "n1-standard-8"),)


def test_fmltc_body_on_basic_gpu_is_accepted() -> None:
    document: dict[str, object] = {
        "jobId": "train_0f8c",
        "trainingInput": {
            "region": "us-central1",
            "scheduling": {"maxRunningTime": "7200s"},
            "jobDir": "gs://my-bucket/models/1",
            "args": ["--model_dir", "gs://my-bucket/models/1"],
            "scaleTier": "BASIC_GPU",
            "packageUris": [
                "gs://my-bucket/object_detection-0.1.tar.gz",
                "gs://my-bucket/slim-0.1.tar.gz",
            ],
            "pythonModule": "object_detection.model_main_tf2",
            "runtimeVersion": "2.6",
            "pythonVersion": "3.7",
        },
    }

    plan = plan_of(document)

    assert plan.limits.max_running_s == 7200
    assert plan.program.package_uris[1] == "gs://my-bucket/slim-0.1.tar.gz"


@pytest.mark.parametrize(("value", "primary"), [("True", "chief"), ("False", "master")])
def test_boolean_may_be_a_string(value: str, primary: str) -> None:
    """The primary of a container is the master unless `useChiefInTfConfig` is true."""
    training = {
        "region": "us-central1",
        "masterConfig": {"imageUri": "gcr.io/p/trainer:1"},
        "useChiefInTfConfig": value,
    }
    assert set(groups_of({"jobId": "digits_1", "trainingInput": training})) == {primary}


def test_web_access_may_be_disabled() -> None:
    assert plan_of(job(enableWebAccess=False)) == plan_of(job())


def test_spec_is_stored_as_submitted() -> None:
    document: dict[str, object] = {
        "training_input": {
            **MINIMAL,
            "scaleTier": "custom",
            "masterType": "standard",
            "workerCount": "0",
            "args": None,
        },
        "job_id": "a_1",
        "labels": {},
    }

    spec = accept(document, default_job_id=None)

    assert json.loads(spec.spec_json) == document
    assert ": " not in spec.spec_json
    assert spec.spec_json == accept(dict(reversed(document.items())), default_job_id=None).spec_json


def test_job_id_of_document_overrides_the_default() -> None:
    assert accept(job(), default_job_id="other").job_id == "digits_1"


def test_large_job_is_accepted_in_less_than_50_ms() -> None:
    data = json.dumps(
        job(packageUris=[f"gs://my-bucket/p-{n}.whl" for n in range(100)], args=["--x"] * 1000)
    ).encode()
    accept(parse_document(data, "warm.json"), default_job_id=None)
    for name in ("job.json", "job.yaml"):
        started = time.process_time()
        accept(parse_document(data, name), default_job_id=None)
        assert time.process_time() - started < 0.05


def test_import_of_job_formats_imports_only_pydantic() -> None:
    """Other packages would slow the cold start of every function."""
    program = (
        "import sys; before = set(sys.modules); import trainmaster.jobspec.accept,"
        " trainmaster.jobspec.job_document; print(*sorted({name.split('.')[0] for name in"
        " set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    third_party = {name for name in process.stdout.split() if not name.startswith(("_", "cython"))}
    helpers = {"annotated_types", "typing_extensions", "typing_inspection"}
    assert third_party - helpers == {"trainmaster", "pydantic", "pydantic_core"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enableWebAccess", True),
        ("enableDashboardAccess", True),
        ("tensorboard", "projects/1/locations/us-central1/tensorboards/2"),
    ],
)
@pytest.mark.parametrize("wrapper", ["jobSpec", "trialJobSpec", "trainingTaskInputs", None])
def test_convenience_changes_nothing_but_the_list_of_substitutions(
    field: str, value: object, wrapper: str | None
) -> None:
    container = {"imageUri": "us-docker.pkg.dev/my-project/train/cnn:1"}
    body = {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": 1,
                "containerSpec": container,
            }
        ]
    }
    study = {
        "metrics": [{"metricId": "a", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
    }
    other: dict[str, Any] = {"displayName": "cnn", "trainmaster": {"region": "us-central1"}}
    if wrapper == "trialJobSpec":
        other |= {"studySpec": study, "maxTrialCount": 1, "parallelTrialCount": 1}
    if wrapper == "trainingTaskInputs":
        other["trainingTaskDefinition"] = (
            "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
        )

    def accepted(fields: dict[str, Any]) -> AcceptedSpec:
        document = {wrapper: {**body, **fields}} if wrapper else {**body, **fields}
        return accept({**document, **other}, default_job_id=None)

    without, with_it = accepted({}), accepted({field: value})
    assert change_plan(with_it.plan, substitutions=()) == change_plan(
        without.plan, substitutions=()
    )
    assert (with_it.tuning, with_it.resources) == (without.tuning, without.resources)
    (added,) = set(with_it.plan.origin.substitutions) - set(without.plan.origin.substitutions)
    assert (added.field.endswith(field), added.requested) == (
        True,
        "true" if value is True else value,
    )


@pytest.mark.parametrize("tier", TIERS)
def test_scale_tier_is_its_cluster_spelled_out(tier: str) -> None:
    def roles(training: dict[str, Any]) -> list[TaskGroup]:
        fields = {
            "region": "us-central1",
            "masterConfig": {"imageUri": "us-docker.pkg.dev/my-project/train/net:1"},
        }
        plan = accept(
            {"jobId": "j", "trainingInput": {**fields, **training}}, default_job_id=None
        ).plan
        return list(plan.groups)

    spelled: dict[str, Any] = {"scaleTier": "CUSTOM"}
    for role, name in (
        (TIERS[tier].worker, "worker"),
        (TIERS[tier].parameter_server, "parameterServer"),
    ):
        if role:
            spelled |= {f"{name}Type": role.machine_type, f"{name}Count": role.count}
    spelled["masterType"] = TIERS[tier].master.machine_type
    gpu = TIERS[tier].master.gpu
    config: dict[str, Any] = {"imageUri": "us-docker.pkg.dev/my-project/train/net:1"}
    if gpu:
        config["acceleratorConfig"] = {"type": gpu.type, "count": gpu.count}
    version = {"workerConfig": {"tpuTfVersion": "1.15"}} if tier == "BASIC_TPU" else {}
    assert roles({"scaleTier": tier, **version}) == roles(
        {**spelled, "masterConfig": config, **version}
    )
