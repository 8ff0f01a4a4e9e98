"""Machines that Compute Engine or the boot image would refuse later are refused when the job is
submitted.
"""

from __future__ import annotations

import json

import pytest

from tests.unit.jobspec.bodies import custom, gpus
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import Purchase, Reserved, Spot
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.problems import InvalidJob, Problem

OWN_IMAGE = "projects/my-project/global/images/with-driver-535"


def plan_of(document: dict[str, object], **extension: object) -> Plan:
    return accept({**document, "trainmaster": extension}, default_job_id=None).plan


def problem_of(document: dict[str, object], **extension: object) -> Problem:
    with pytest.raises(InvalidJob) as refused:
        plan_of(document, **extension)
    (problem,) = refused.value.problems
    return problem


@pytest.mark.parametrize(
    ("machine", "config", "field", "instead"),
    [
        ("standard_v100", None, "trainingInput.masterType", "a2-highgpu-1g"),
        ("complex_model_l_v100", None, "trainingInput.masterType", "a2-highgpu-8g"),
        (
            "n1-standard-16",
            gpus("NVIDIA_TESLA_V100", 4),
            "trainingInput.masterConfig.acceleratorConfig.type",
            "NVIDIA_TESLA_T4",
        ),
        (
            "n1-standard-8",
            gpus("NVIDIA_TESLA_P4", 1),
            "trainingInput.masterConfig.acceleratorConfig.type",
            "NVIDIA_TESLA_T4",
        ),
    ],
)
def test_gpu_that_the_images_driver_does_not_support_is_refused(
    machine: str, config: dict[str, object] | None, field: str, instead: str
) -> None:
    problem = problem_of(custom(masterType=machine, masterConfig=config))

    assert problem.field == field
    assert instead in problem.example
    assert "trainmaster.image" in problem.problem


def test_gpu_that_the_images_driver_does_not_support_is_refused_for_containers() -> None:
    pool = {
        "machineSpec": {
            "machineType": "n1-standard-8",
            "acceleratorType": "NVIDIA_TESLA_V100",
            "acceleratorCount": 1,
        },
        "replicaCount": 1,
        "containerSpec": {"imageUri": "us-docker.pkg.dev/p/r/i:1"},
    }
    problem = problem_of({"jobId": "a", "workerPoolSpecs": [pool]}, region="us-central1")

    assert problem.field == "workerPoolSpecs[0].machineSpec.acceleratorType"


def test_old_gpu_is_accepted_with_an_image_of_the_user() -> None:
    plan = plan_of(custom(masterType="standard_v100"), image=OWN_IMAGE)

    assert plan.groups[0].accelerator is not None
    assert plan.groups[0].accelerator.type == "nvidia-tesla-v100"


@pytest.mark.parametrize(
    "machine", ["a3-highgpu-1g", "a3-highgpu-4g", "a3-ultragpu-8g", "a4-highgpu-8g"]
)
def test_machine_that_is_not_sold_on_demand_is_refused_without_spot(machine: str) -> None:
    problem = problem_of(custom(masterType=machine))

    assert problem.field == "trainingInput.masterType"
    assert "on demand" in problem.problem
    assert "spot" in problem.example


@pytest.mark.parametrize(
    "machine", ["a3-highgpu-1g", "a3-ultragpu-8g", "a4-highgpu-8g", "a3-highgpu-8g"]
)
def test_machine_that_is_not_sold_on_demand_is_accepted_on_spot_vms(machine: str) -> None:
    (group,) = plan_of(custom(masterType=machine), spot="all").groups
    assert group.purchase == Purchase(Spot())


@pytest.mark.parametrize("machine", ["a3-ultragpu-8g", "a4-highgpu-8g"])
def test_reservation_makes_the_largest_machines_available(machine: str) -> None:
    (group,) = plan_of(custom(masterType=machine), reservation="gpus").groups
    assert group.purchase == Purchase(Reserved("gpus"))


def test_reservation_does_not_make_small_a3_machines_available() -> None:
    assert (
        "reservation"
        not in problem_of(custom(masterType="a3-highgpu-2g"), reservation="gpus").example
    )


def test_spot_workers_do_not_allow_an_on_demand_master() -> None:
    document = custom(masterType="a3-highgpu-1g", workerType="a3-highgpu-1g", workerCount=1)

    assert problem_of(document, spot="workers").field == "trainingInput.masterType"


def test_fallback_to_on_demand_vms_is_refused_for_machines_that_are_not_sold_on_demand() -> None:
    problem = problem_of(
        custom(masterType="a3-highgpu-1g"), spot={"use": "all", "onDemandAfter": 2}
    )

    assert problem.field == "trainmaster.spot.onDemandAfter"


@pytest.mark.parametrize(("requested", "size"), [(10, 50), (49, 50), (50, 50), (51, 51)])
def test_boot_disk_is_as_large_as_the_deep_learning_image(requested: int, size: int) -> None:
    plan = plan_of(custom(masterConfig={"diskConfig": {"bootDiskSizeGb": requested}}))

    assert plan.groups[0].boot_disk_gib == size
    assert [note.replacement for note in plan.origin.substitutions] == (
        [] if requested >= size else ["50 GB"]
    )


def test_boot_disk_of_another_image_has_the_requested_size() -> None:
    document = custom(
        masterConfig={"diskConfig": {"bootDiskSizeGb": 20}}, runtimeVersion="scikit-learn-1.9"
    )

    assert plan_of(document).groups[0].boot_disk_gib == 20
    assert plan_of(document, image=OWN_IMAGE).groups[0].boot_disk_gib == 20


UNKNOWN_MACHINE = "a9-ultragpu-8g"
POOL = {
    "machineSpec": {"machineType": UNKNOWN_MACHINE},
    "replicaCount": 1,
    "containerSpec": {"imageUri": "us-docker.pkg.dev/p/r/i:1"},
}
VERTEX_TUNING = {
    "displayName": "a",
    "maxTrialCount": 1,
    "parallelTrialCount": 1,
    "studySpec": {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 1.0}}
        ],
    },
    "trialJobSpec": {"workerPoolSpecs": [POOL]},
    "trainmaster": {"region": "us-central1"},
}
MANIFEST = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "a"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {
                "template": {
                    "spec": {
                        "nodeSelector": {"node.kubernetes.io/instance-type": UNKNOWN_MACHINE},
                        "containers": [{"name": "pytorch", "image": "us-docker.pkg.dev/p/r/i:1"}],
                    }
                }
            }
        }
    },
}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param(
            custom(masterType=UNKNOWN_MACHINE), "trainingInput.masterType", id="ai-platform"
        ),
        pytest.param(
            {"jobId": "a", "workerPoolSpecs": [POOL], "trainmaster": {"region": "us-central1"}},
            "workerPoolSpecs[0].machineSpec.machineType",
            id="vertex",
        ),
        pytest.param(
            VERTEX_TUNING,
            "trialJobSpec.workerPoolSpecs[0].machineSpec.machineType",
            id="vertex-tuning",
        ),
        pytest.param(MANIFEST, "spec.pytorchReplicaSpecs.Master.template.spec", id="kubeflow"),
    ],
)
def test_accelerated_family_that_the_table_lacks_is_refused_in_every_format(
    document: dict[str, object], field: str
) -> None:
    text = json.dumps(document).encode()

    with pytest.raises(InvalidJob) as refused:
        accept(read_document(text, "job.json", "us-central1"), default_job_id="a")

    (problem,) = refused.value.problems
    assert problem.field == field
    assert (
        f'"{UNKNOWN_MACHINE}": it is an accelerator-optimized machine type that this release'
        in problem.problem
    )
    assert "`trainmaster machines`" in problem.problem
