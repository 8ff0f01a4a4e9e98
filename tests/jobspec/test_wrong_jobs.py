"""Wrong jobs: every problem at once, at the right field, with an example of right."""

from __future__ import annotations

import time
from typing import Final

import pytest

from shared.jobspec import InvalidJob, Problem, accept
from tests.jobspec.bodies import CUSTOM, MINIMAL, custom, gpus, job

T: Final = "trainingInput"


def problems_of(document: dict[str, object]) -> dict[str, Problem]:
    with pytest.raises(InvalidJob) as caught:
        accept(document, default_job_id=None)
    return {problem.field: problem for problem in caught.value.problems}


def without(*names: str) -> dict[str, object]:
    return {"jobId": "a", T: {name: value for name, value in MINIMAL.items() if name not in names}}


WRONG: Final[dict[str, tuple[dict[str, object], set[str]]]] = {
    "nothing at all": ({}, {"jobId", T}),
    "no job id and no default": ({T: MINIMAL}, {"jobId"}),
    "a job id with a dash": ({**job(), "jobId": "my-job"}, {"jobId"}),
    "a job id that starts with a digit": ({**job(), "jobId": "1job"}, {"jobId"}),
    "a job id that is too long": ({**job(), "jobId": "a" * 129}, {"jobId"}),
    "a job id that is a number": ({**job(), "job_id": 1} | {"jobId": None}, {"jobId"}),
    "a training input that is a list": ({"jobId": "a", T: [MINIMAL]}, {T}),
    "a bare training input": ({"jobId": "a", **MINIMAL}, {T}),
    "a bare training input with an error of its own": (
        {"jobId": "a", **MINIMAL, "workerCount": "two"},
        {T, "workerCount"},
    ),
    "an unknown name at the top": ({**job(), "frobnicate": 1}, {"frobnicate"}),
    "a field of the training input at the top": ({**job(), "scaleTier": "BASIC"}, {"scaleTier"}),
    "a typo in an optional field": (job(workerCuont=2), {f"{T}.workerCuont"}),
    "a typo in a required field is one problem": (
        {"jobId": "a", T: {**without("region")[T], "regoin": "us-central1"}},  # type: ignore[dict-item]
        {f"{T}.regoin"},
    ),
    "an unknown name deep down": (
        job(masterConfig={"diskConfig": {"bootDiskSizeGB": 100}}),
        {f"{T}.masterConfig.diskConfig.bootDiskSizeGB"},
    ),
    "a name in both spellings": (job(pythonModule="a.b", python_module="a.c"), {f"{T}.pythonModule"}),
    "what the service sets itself": ({**job(), "state": "RUNNING"}, {"state"}),
    "nothing required given": ({"jobId": "a", T: {}}, {f"{T}.region", f"{T}.packageUris", f"{T}.pythonModule"}),
    "no packages": (without("packageUris"), {f"{T}.packageUris"}),
    "an empty list of packages": (job(packageUris=[]), {f"{T}.packageUris"}),
    "a local package": (job(packageUris=["dist/trainer.tar.gz"]), {f"{T}.packageUris[0]"}),
    "a package that leads out of its bucket": (job(packageUris=["gs://bkt/../x.whl"]), {f"{T}.packageUris[0]"}),
    "a package with a wildcard": (job(packageUris=["gs://bkt/*.whl"]), {f"{T}.packageUris[0]"}),
    "a package that is a directory": (job(packageUris=["gs://bkt/dir/"]), {f"{T}.packageUris[0]"}),
    "a package that pip cannot install": (job(packageUris=["gs://bkt/task.py"]), {f"{T}.packageUris[0]"}),
    "two packages of one file name": (job(packageUris=["gs://b-1/a.whl", "gs://b-2/a.whl"]), {f"{T}.packageUris[1]"}),
    "more than a hundred packages": (job(packageUris=[f"gs://bkt/{n}.whl" for n in range(101)]), {f"{T}.packageUris"}),
    "a module that is a file": (job(pythonModule="trainer/task.py"), {f"{T}.pythonModule"}),
    "a module with a space": (job(pythonModule="trainer task"), {f"{T}.pythonModule"}),
    "arguments as one string": (job(args="--epochs 5"), {f"{T}.args"}),
    "arguments that are no strings": (job(args=["--epochs", 5, True, None]), {f"{T}.args[{n}]" for n in (1, 2, 3)}),
    "an argument no process can get": (job(args=["a\0b"]), {f"{T}.args[0]"}),
    "an argument no process can get, before one that is a number": (
        job(args=["a\0b", 5]),
        {f"{T}.args[0]", f"{T}.args[1]"},
    ),
    "a training input that is no JSON, beside a stray field": (
        {"jobId": "a", T: float("inf"), "region": "us-central1"},
        {T, "region"},
    ),
    "a local job directory": (job(jobDir="/tmp/out"), {f"{T}.jobDir"}),
    "a job directory with a way out": (job(jobDir="gs://bkt/a/../b"), {f"{T}.jobDir"}),
    "no region": (without("region"), {f"{T}.region"}),
    "an unknown region": (job(region="us-central9"), {f"{T}.region"}),
    "a zone for a region": (job(region="us-central1-a"), {f"{T}.region"}),
    "an unknown tier": (job(scaleTier="HUGE"), {f"{T}.scaleTier"}),
    "a machine type on a tier of its own": (job(masterType="n1-standard-4"), {f"{T}.masterType"}),
    "a worker count on a tier of its own": (
        job(scaleTier="BASIC", workerCount=2, workerType="n1-standard-4"),
        {f"{T}.workerCount", f"{T}.workerType"},
    ),
    "a GPU on a tier of its own": (
        job(masterConfig=gpus("NVIDIA_TESLA_T4", 1)),
        {f"{T}.masterConfig.acceleratorConfig"},
    ),
    "custom without a master": (job(scaleTier="CUSTOM"), {f"{T}.masterType"}),
    "workers without a type": (custom(workerCount=2), {f"{T}.workerType"}),
    "a worker type without workers": (custom(workerType="n1-standard-4"), {f"{T}.workerType"}),
    "a negative count": (custom(workerCount=-1), {f"{T}.workerCount"}),
    "a count in words hides no complaint about its type": (
        custom(workerCount="two", workerType="n1-standard-4"),
        {f"{T}.workerCount"},
    ),
    "half a worker": (custom(workerCount=1.5, workerType="n1-standard-4"), {f"{T}.workerCount"}),
    "too many workers": (custom(workerCount="9223372036854775807", workerType="n1-standard-4"), {f"{T}.workerCount"}),
    "too many replicas in all": (
        custom(
            workerCount=900, workerType="n1-standard-4", parameterServerCount=200, parameterServerType="n1-standard-4"
        ),
        {f"{T}.workerCount"},
    ),
    "an unknown machine type": (custom(masterType="n1-standard-5"), {f"{T}.masterType"}),
    "machine names of two categories": (custom(workerCount=1, workerType="standard"), {f"{T}.workerType"}),
    "a GPU on a legacy machine": (
        custom(masterType="standard_gpu", masterConfig=gpus("NVIDIA_TESLA_K80", 1)),
        {f"{T}.masterConfig.acceleratorConfig"},
    ),
    "an impossible number of GPUs": (
        custom(masterConfig=gpus("NVIDIA_TESLA_T4", 3)),
        {f"{T}.masterConfig.acceleratorConfig.count"},
    ),
    "a GPU that does not fit so large a machine": (
        custom(masterType="n1-standard-64", masterConfig=gpus("NVIDIA_TESLA_P100", 4)),
        {f"{T}.masterConfig.acceleratorConfig"},
    ),
    "a GPU on a machine that takes none": (
        custom(masterType="e2-standard-8", masterConfig=gpus("NVIDIA_TESLA_T4", 1)),
        {f"{T}.masterConfig.acceleratorConfig"},
    ),
    "a GPU that comes with another machine": (
        custom(masterConfig=gpus("NVIDIA_TESLA_A100", 1)),
        {f"{T}.masterConfig.acceleratorConfig"},
    ),
    "another GPU than the machine's own": (
        custom(masterType="g2-standard-4", masterConfig=gpus("NVIDIA_TESLA_T4", 1)),
        {f"{T}.masterConfig.acceleratorConfig"},
    ),
    "a GPU without a count": (
        custom(masterConfig={"acceleratorConfig": {"type": "NVIDIA_TESLA_T4"}}),
        {f"{T}.masterConfig.acceleratorConfig.count"},
    ),
    "an unknown GPU": (
        custom(masterConfig=gpus("NVIDIA_TESLA_T5", 1)),
        {f"{T}.masterConfig.acceleratorConfig.type"},
    ),
    "a disk too small and of no kind": (
        job(masterConfig={"diskConfig": {"bootDiskSizeGb": 1, "bootDiskType": "ssd"}}),
        {f"{T}.masterConfig.diskConfig.bootDiskSizeGb", f"{T}.masterConfig.diskConfig.bootDiskType"},
    ),
    "a runtime version without quotes": (job(runtimeVersion=2.11), {f"{T}.runtimeVersion"}),
    "a runtime version there never was": (job(runtimeVersion="2.99"), {f"{T}.runtimeVersion"}),
    "a Python that its runtime never had": (
        job(runtimeVersion="2.1", pythonVersion="2.7"),
        {f"{T}.pythonVersion"},
    ),
    "durations without a unit, too long and too short": (
        job(scheduling={"maxRunningTime": "2h", "maxWaitTime": "1799s"}),
        {f"{T}.scheduling.maxRunningTime", f"{T}.scheduling.maxWaitTime"},
    ),
    "a duration that no clock can hold": (
        job(scheduling={"maxRunningTime": "999999999999s", "maxWaitTime": 3600}),
        {f"{T}.scheduling.maxRunningTime", f"{T}.scheduling.maxWaitTime"},
    ),
    "a service account that is no address": (job(serviceAccount="trainer"), {f"{T}.serviceAccount"}),
    "a boolean that is neither": (job(enableWebAccess="maybe"), {f"{T}.enableWebAccess"}),
    "labels that are no labels": (
        {**job(), "labels": {"Team": "x", "team": "A B", "n": 3, "trainmaster-job": "x"}},
        {"labels.Team", "labels.team", "labels.n", "labels.trainmaster-job"},
    ),
    "too many labels": ({**job(), "labels": {f"l{n}": "x" for n in range(65)}}, {"labels"}),
    "zones elsewhere and twice": (
        {**job(), "trainmaster": {"zones": ["us-east1-b", "us-central1-a", "us-central1-a"]}},
        {"trainmaster.zones[0]", "trainmaster.zones[2]"},
    ),
    "an unknown extension": ({**job(), "trainmaster": {"spot": True}}, {"trainmaster.spot"}),
    "a container instead of packages": (
        {
            "jobId": "a",
            T: {"region": "us-central1", "scaleTier": "BASIC_GPU", "masterConfig": {"imageUri": "gcr.io/a/b"}},
        },
        {f"{T}.masterConfig.imageUri"},
    ),
    "a TPU by tier": (job(scaleTier="BASIC_TPU"), {f"{T}.scaleTier"}),
    "a TPU by worker": (
        custom(masterType="standard", workerType="cloud_tpu", workerCount=1, workerConfig=gpus("TPU_V2", 8)),
        {f"{T}.workerType", f"{T}.workerConfig.acceleratorConfig.type"},
    ),
    "tuning, a network, a key, a shell and a priority": (
        job(
            hyperparameters={"goal": "MAXIMIZE"},
            network="projects/1/global/networks/n",
            encryptionConfig={"kmsKeyName": "k"},
            enableWebAccess=True,
            scheduling={"priority": 5},
        ),
        {
            f"{T}.hyperparameters",
            f"{T}.network",
            f"{T}.encryptionConfig",
            f"{T}.enableWebAccess",
            f"{T}.scheduling.priority",
        },
    ),
    "a Vertex AI job": ({"jobId": "a", "displayName": "x", "jobSpec": {}}, {"displayName", "jobSpec"}),
    "names that are no strings": ({**job(), "labels": {1: "x"}}, {"labels"}),
    "everything at once": (
        {
            "jobId": "my-job",
            "labels": {"Team": "x"},
            "training_input": {
                "scale_tier": "CUSTOM",
                "worker_count": "3",
                "package_uris": ["trainer.tar.gz"],
                "python_module": "trainer/task.py",
                "regoin": "x",
                "args": [1],
                "scheduling": {"max_wait_time": "60s"},
            },
        },
        {
            "jobId",
            "labels.Team",
            "training_input.master_type",
            "training_input.worker_type",
            "training_input.package_uris[0]",
            "training_input.python_module",
            "training_input.regoin",
            "training_input.args[0]",
            "training_input.scheduling.max_wait_time",
        },
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_job_is_refused_with_every_problem_at_its_field(name: str) -> None:
    document, fields = WRONG[name]
    started = time.process_time()
    problems = problems_of(document)
    took = time.process_time() - started

    assert set(problems) == fields
    assert took < 0.05
    for problem in problems.values():
        assert problem.problem
        assert problem.example


@pytest.mark.parametrize(
    ("document", "field", "example"),
    [
        (job(args=["--epochs", 5]), f"{T}.args[1]", '"5"'),
        (job(runtimeVersion=2.11), f"{T}.runtimeVersion", 'runtimeVersion: "2.11"'),
        (job(scheduling={"maxRunningTime": 7200}), f"{T}.scheduling.maxRunningTime", 'maxRunningTime: "7200s"'),
        (job(pythonModule="trainer/task.py"), f"{T}.pythonModule", 'pythonModule: "trainer.task"'),
        (job(region="us-centrall1"), f"{T}.region", 'region: "us-central1"'),
        ({**job(), "jobId": "my-job"}, "jobId", 'jobId: "my_job"'),
        (job(workerCuont=2), f"{T}.workerCuont", "workerCount: 2"),
        (
            custom(masterType="n1-standard-8", masterConfig=gpus("NVIDIA_TESLA_T4", 3)),
            f"{T}.masterConfig.acceleratorConfig.count",
            "count: 4",
        ),
        (custom(worker_count=2), f"{T}.worker_type", 'worker_type: "n1-standard-4"'),
    ],
)
def test_the_example_is_what_the_sender_most_likely_meant(
    document: dict[str, object], field: str, example: str
) -> None:
    assert problems_of(document)[field].example == example


def test_a_bare_training_input_is_told_where_to_go() -> None:
    problem = problems_of({"jobId": "a", **CUSTOM})[T]

    assert "belong under it" in problem.problem
    assert problem.example.startswith("trainingInput: {")


def test_the_text_of_the_error_is_in_the_services_style_one_line_per_problem() -> None:
    with pytest.raises(InvalidJob) as caught:
        accept({"jobId": "1", T: {**CUSTOM, "workerCount": 1}, "labels": {"A": "b"}}, default_job_id=None)

    heads = [line.split(" Error: ")[0] for line in str(caught.value).splitlines()]
    assert heads == ["Field: job.job_id", "Field: job.labels.A", "Field: training_input.worker_type"]


def test_a_spec_too_large_for_a_vms_metadata_is_refused() -> None:
    assert set(problems_of(job(args=["x" * 70_000]))) == {"job"}


def test_a_spec_nested_too_deep_is_refused() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    assert set(problems_of(job(hyperparameters={"params": deep}))) == {"job"}


def test_a_default_job_id_must_be_legal_too() -> None:
    with pytest.raises(InvalidJob):
        accept({T: MINIMAL}, default_job_id="not-legal")
