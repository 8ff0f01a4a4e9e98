"""Jobs that name a built-in algorithm: what they resolve to, and what is refused before a VM is
paid for.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.jobspec.bodies import gpus
from trainmaster.algorithms.arguments.tables import TABLES
from trainmaster.core.model.package_uri import BUILT_IN
from trainmaster.core.model.plan import Plan
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.algorithms import ALGORITHMS
from trainmaster.jobspec.problems import InvalidJob, Problem

T: Final = "trainingInput"
ARGUMENTS: Final = {
    "boosted_trees": ("--objective=binary:logistic",),
    "xgboost_dist": ("--objective=binary:logistic",),
}
TYPE: Final = ("--model_type=classification",)


def job(
    algorithm: str, *, by_name: bool = False, args: tuple[str, ...] = (), **training: Any
) -> dict[str, Any]:
    """Return a valid job of the algorithm with these fields of the training input changed."""
    known = ALGORITHMS.get(algorithm)
    workers = (
        {"workerType": "n1-standard-4", "workerCount": 2} if known and known.is_distributed else {}
    )
    body = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        **workers,
        "region": "us-central1",
        "jobDir": "gs://bkt/dir",
        "args": ["--training_data_path=gs://bkt/t.csv", *ARGUMENTS.get(algorithm, TYPE), *args],
    }
    if by_name:
        return {
            "jobId": "digits_1",
            T: {**body, **training},
            "trainmaster": {"algorithm": algorithm},
        }
    image = f"gcr.io/cloud-ml-algos/{known.images[0] if known else algorithm}:latest"
    master = {"imageUri": image, **training.pop("masterConfig", {})}
    return {"jobId": "digits_1", T: {**body, "masterConfig": master, **training}}


def plan_of(document: dict[str, Any]) -> Plan:
    return accept(document, default_job_id=None).plan


def problems_of(document: dict[str, Any]) -> dict[str, Problem]:
    with pytest.raises(InvalidJob) as caught:
        accept(document, default_job_id=None)
    return {problem.field: problem for problem in caught.value.problems}


def test_every_algorithm_has_a_table_of_arguments() -> None:
    assert set(ALGORITHMS) == set(TABLES)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_image_is_replaced_by_the_module_with_a_listed_substitution(name: str) -> None:
    plan = plan_of(job(name))

    assert plan.program.package_uris == (BUILT_IN,)
    assert plan.program.python_module == f"algorithms.{name}"
    assert plan.program.container is None
    (note,) = plan.origin.substitutions
    assert (note.field, note.requested) == (
        f"{T}.masterConfig.imageUri",
        f"gcr.io/cloud-ml-algos/{ALGORITHMS[name].images[0]}:latest",
    )
    assert name in note.replacement


@pytest.mark.parametrize("name", ALGORITHMS)
def test_name_selects_the_same_program_as_the_image(name: str) -> None:
    by_image, by_name = plan_of(job(name)), plan_of(job(name, by_name=True))

    assert by_name.origin.substitutions == ()
    assert (by_name.program, by_name.image, by_name.origin.algorithm) == (
        by_image.program,
        by_image.image,
        by_image.origin.algorithm,
    )


def test_both_images_of_an_algorithm_are_known() -> None:
    document = job(
        "linear_learner", masterConfig={"imageUri": "gcr.io/cloud-ml-algos/linear_learner_gpu"}
    )

    assert plan_of(document).program.python_module == "algorithms.linear_learner"


@pytest.mark.parametrize("name", ["image_classification", "image_object_detection", "ncf", "bert"])
@pytest.mark.parametrize("by_name", [True, False])
def test_algorithm_that_is_not_available_is_refused_with_where_to_go(
    name: str, *, by_name: bool
) -> None:
    problems = problems_of(job(name, by_name=by_name, args=("--anything=1",)))

    ((field, problem),) = problems.items()
    assert field == ("trainmaster.algorithm" if by_name else f"{T}.masterConfig.imageUri")
    assert name in problem.problem
    assert "TensorFlow Model Garden" in problem.problem


def test_unknown_algorithm_is_refused_with_the_nearest_one() -> None:
    problems = problems_of(job("boosted_tree", by_name=True))

    assert problems["trainmaster.algorithm"].example == 'algorithm: "boosted_trees"'


@pytest.mark.parametrize(
    ("document", "field", "expected"),
    [
        (
            job("tab_net", args=("--feature_dim=one",)),
            f"{T}.args",
            "--feature_dim must be a whole number",
        ),
        (
            job("tab_net", args=("--colour=red", "--batch_size=0")),
            f"{T}.args",
            "--colour is not an argument",
        ),
        (
            job("tab_net", args=("--validation_data_path=/tmp/v.csv",)),
            f"{T}.args",
            "--validation_data_path must be",
        ),
        (job("tab_net", jobDir=None), f"{T}.jobDir", "is required"),
        (
            job("tab_net", packageUris=["gs://bkt/a.whl"]),
            f"{T}.packageUris",
            "the algorithm determines it",
        ),
        (job("tab_net", pythonModule="a.b"), f"{T}.pythonModule", "the algorithm determines it"),
        (
            job("tab_net", runtimeVersion="2.11"),
            f"{T}.runtimeVersion",
            "the algorithm determines it",
        ),
        (
            job("tab_net", masterConfig={"containerCommand": ["a"]}),
            f"{T}.masterConfig.containerCommand",
            "the algorithm determines it",
        ),
        (
            {**job("tab_net"), "trainmaster": {"algorithm": "tab_net"}},
            "trainmaster.algorithm",
            "cannot be combined with trainingInput.masterConfig.imageUri",
        ),
    ],
)
def test_wrong_job_of_an_algorithm_is_refused_at_its_field(
    document: dict[str, Any], field: str, expected: str
) -> None:
    problems = problems_of(document)

    assert set(problems) == {field}
    assert expected in problems[field].problem


@pytest.mark.parametrize(
    ("document", "field", "expected"),
    [
        (
            job("boosted_trees", masterConfig=gpus("NVIDIA_TESLA_T4", 1)),
            f"{T}.masterConfig.acceleratorConfig",
            "no GPU",
        ),
        (job("boosted_trees", masterType="standard_gpu"), f"{T}.masterType", "no GPU"),
        (
            job("tab_net", masterConfig=gpus("NVIDIA_TESLA_T4", 2)),
            f"{T}.masterConfig.acceleratorConfig",
            "one GPU per VM",
        ),
        (
            job("tab_net", workerType="n1-standard-4", workerCount=1),
            f"{T}.workerCount",
            "needs a master alone",
        ),
        (
            job("xgboost_dist", workerCount=None, workerType=None),
            f"{T}.workerCount",
            "must be at least 1",
        ),
        (
            job("xgboost_dist", parameterServerType="n1-standard-4", parameterServerCount=1),
            f"{T}.parameterServerCount",
            "a master and workers, without other roles",
        ),
        (
            job("xgboost_dist", masterConfig=gpus("NVIDIA_TESLA_T4", 1)),
            f"{T}.workerType",
            "must be the GPU of the master",
        ),
        (
            job("linear_learner", scaleTier="STANDARD_1", masterType=None),
            f"{T}.scaleTier",
            "needs a master alone",
        ),
        (
            job("linear_learner", scaleTier="BASIC_TPU", masterType=None),
            f"{T}.scaleTier",
            "is a TPU",
        ),
    ],
)
def test_machines_that_an_algorithm_cannot_use_are_refused(
    document: dict[str, Any], field: str, expected: str
) -> None:
    problems = problems_of(document)

    assert set(problems) == {field}
    assert expected in problems[field].problem


def test_distributed_xgboost_on_gpus_runs_in_an_image_with_a_driver() -> None:
    gpu = gpus("NVIDIA_TESLA_T4", 1)
    plan = plan_of(job("xgboost_dist", masterConfig=gpu, workerConfig=gpu))

    assert "cu129" in plan.image.source
    assert "xgboost==3.2.*" in plan.image.packages
    assert plan.origin.algorithm is not None
    assert plan.origin.algorithm.python_version == "3.12"


@pytest.mark.parametrize(
    ("parameters", "tag", "field", "expected"),
    [
        (
            {"parameterName": "depth"},
            "accuracy",
            "params[0].parameterName",
            "is not an argument of boosted_trees",
        ),
        (
            {"parameterName": "eta", "maxValue": 2},
            "accuracy",
            "params[0].maxValue",
            "--eta, which must be a number",
        ),
        (
            {
                "parameterName": "booster",
                "type": "CATEGORICAL",
                "categoricalValues": ["gbtree", "oak"],
            },
            "accuracy",
            "params[0].categoricalValues",
            "the value oak of --booster, which must be one of gbtree",
        ),
        (
            {"parameterName": "eta"},
            "rmse",
            "hyperparameterMetricTag",
            "accuracy, loss, logloss, error",
        ),
        (
            {"parameterName": "eta"},
            None,
            "hyperparameterMetricTag",
            "accuracy, loss, logloss, error",
        ),
    ],
)
def test_tuning_that_an_algorithm_cannot_follow_is_refused(
    parameters: dict[str, Any], tag: str | None, field: str, expected: str
) -> None:
    parameter = parameters
    if "categoricalValues" not in parameters:
        parameter = {"type": "DOUBLE", "minValue": 0.1, "maxValue": 0.5, **parameters}
    tuning = {"maxTrials": 2, "hyperparameterMetricTag": tag, "params": [parameter]}
    problems = problems_of(job("boosted_trees", hyperparameters=tuning))

    assert set(problems) == {f"{T}.hyperparameters.{field}"}
    assert expected in problems[f"{T}.hyperparameters.{field}"].problem


def test_tuned_argument_need_not_be_given() -> None:
    parameter = {
        "parameterName": "model_type",
        "type": "CATEGORICAL",
        "categoricalValues": ["classification"],
    }
    tuning = {"maxTrials": 1, "hyperparameterMetricTag": "loss", "params": [parameter]}
    document = job("linear_learner", args=(), hyperparameters=tuning)
    document[T]["args"] = ["--training_data_path=gs://bkt/t.csv"]

    assert accept(document, default_job_id=None).tuning is not None


def test_custom_job_cannot_name_an_algorithm() -> None:
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "gcr.io/cloud-ml-algos/boosted_trees:latest"},
    }
    problems = problems_of(
        {
            "displayName": "digits",
            "jobSpec": {"workerPoolSpecs": [pool]},
            "trainmaster": {"region": "us-central1", "algorithm": "boosted_trees"},
        }
    )

    assert set(problems) == {
        "trainmaster.algorithm",
        "jobSpec.workerPoolSpecs[0].containerSpec.imageUri",
    }
