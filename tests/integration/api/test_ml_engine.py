"""The commands and files of the old documentation with `gcloud ml-engine`, the first name of
`gcloud ai-platform`.

They are as they were printed, except for project, bucket and the path of the package:
`--package-path` uploads to Cloud Storage, which needs an account.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.api.served import Gcloud
from tests.support.world import World
from trainmaster.core.model.tuning import Algorithm, StoppingRule

pytestmark = pytest.mark.slow

SUBMIT = ("ml-engine", "jobs", "submit", "training")
CENSUS = (
    "--job-dir=gs://my-bucket/census_1",
    "--runtime-version=1.15",
    "--python-version=3.7",
    "--packages=gs://my-bucket/trainer-0.1.tar.gz",
    "--module-name=trainer.task",
    "--region=us-central1",
)
PROGRAM_FLAGS = (
    "--",
    "--train-files",
    "gs://my-bucket/data/adult.data.csv",
    "--train-steps",
    "1000",
    "--verbosity",
    "DEBUG",
)
HPTUNING_CONFIG = """
trainingInput:
  scaleTier: CUSTOM
  masterType: complex_model_m
  workerType: complex_model_m
  parameterServerType: large_model
  workerCount: 9
  parameterServerCount: 3
  hyperparameters:
    goal: MAXIMIZE
    hyperparameterMetricTag: metric1
    maxTrials: 30
    maxParallelTrials: 1
    enableTrialEarlyStopping: True
    params:
    - parameterName: hidden1
      type: INTEGER
      minValue: 40
      maxValue: 400
      scaleType: UNIT_LINEAR_SCALE
    - parameterName: numRnnCells
      type: DISCRETE
      discreteValues:
      - 1
      - 2
      - 3
      - 4
    - parameterName: rnnCellType
      type: CATEGORICAL
      categoricalValues:
      - BasicLSTMCell
      - BasicRNNCell
      - GRUCell
      - LSTMCell
      - LayerNormBasicLSTMCell
"""


TPU_CONFIG = """
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-highcpu-16
  workerType: cloud_tpu
  workerCount: 1
  workerConfig:
    acceleratorConfig:
      type: TPU_V3
      count: 8
"""
MNIST = (
    "--job-dir=gs://my-bucket/tpu_mnist_1",
    "--packages=gs://my-bucket/official-0.1.tar.gz",
    "--module-name=official.vision.image_classification.mnist_main",
    "--runtime-version=2.11",
    "--python-version=3.7",
)
MNIST_FLAGS = (
    "--",
    "--distribution_strategy=tpu",
    "--data_dir=gs://tfds-data/datasets",
    "--num_gpus=0",
)


def describe(gcloud: Gcloud, job_id: str) -> dict[str, Any]:
    described = gcloud.run("ml-engine", "jobs", "describe", job_id)
    assert described.returncode == 0, described.stderr
    shown: dict[str, Any] = yaml.safe_load(described.stdout)
    return shown


def test_ml_engine_submits_describes_lists_and_cancels_a_job(gcloud: Gcloud, world: World) -> None:
    submitted = gcloud.run(*SUBMIT, "census_1", *CENSUS, "--scale-tier=STANDARD_1", *PROGRAM_FLAGS)
    assert submitted.returncode == 0, submitted.stderr
    assert "Job [census_1] submitted successfully." in submitted.stderr
    world.job_id = "census_1"
    world.deliver()
    world.report_all_ready()
    shown = describe(gcloud, "census_1")
    assert (shown["state"], shown["trainingInput"]["runtimeVersion"]) == ("RUNNING", "1.15")
    assert shown["trainingInput"]["args"] == list(PROGRAM_FLAGS[1:])
    assert [(str(group.task_type), group.count) for group in world.job.plan.groups] == [
        ("master", 1),
        ("worker", 4),
        ("ps", 3),
    ]
    listed = gcloud.run("ml-engine", "jobs", "list").stdout.splitlines()
    assert listed[1].split()[:2] == ["census_1", "RUNNING"]
    assert gcloud.run("ml-engine", "jobs", "cancel", "census_1").returncode == 0
    assert world.state == "CANCELLED"
    world.check()


def test_documented_tuning_config_is_a_tuning_job_with_early_stopping(
    gcloud: Gcloud, world: World, tmp_path: Path
) -> None:
    (tmp_path / "hptuning_config.yaml").write_text(HPTUNING_CONFIG)
    submitted = gcloud.run(
        *SUBMIT, "census_hp_1", *CENSUS, "--config=hptuning_config.yaml", *PROGRAM_FLAGS
    )
    assert submitted.returncode == 0, submitted.stderr
    world.job_id = "census_hp_1"
    tuning = world.job.tuning
    assert tuning is not None
    assert (tuning.max_trials, tuning.algorithm, tuning.stopping) == (
        30,
        Algorithm.BAYESIAN,
        StoppingRule.MEDIAN,
    )
    assert [parameter.name for parameter in tuning.parameters] == [
        "hidden1",
        "numRnnCells",
        "rnnCellType",
    ]
    shown = describe(gcloud, "census_hp_1")
    assert shown["trainingOutput"]["hyperparameterMetricTag"] == "metric1"
    counts = {group.task_type.value: group.count for group in world.job.plan.groups}
    assert counts == {"master": 1, "worker": 9, "ps": 3}


@pytest.mark.parametrize(
    ("flags", "region", "tpu", "field"),
    [
        (("--scale-tier=BASIC_TPU",), "us-central1", "v2-8", "scaleTier"),
        (("--config=config.yaml",), "europe-west4", "v3-8", "workerType"),
    ],
    ids=["BASIC_TPU", "config.yaml with cloud_tpu"],
)
def test_documented_tpu_job_runs_on_the_host_of_the_tpu(
    gcloud: Gcloud,
    world: World,
    tmp_path: Path,
    flags: tuple[str, ...],
    region: str,
    tpu: str,
    field: str,
) -> None:
    (tmp_path / "config.yaml").write_text(TPU_CONFIG)
    submitted = gcloud.run(
        *SUBMIT, "tpu_mnist_1", *MNIST, f"--region={region}", *flags, *MNIST_FLAGS
    )
    assert submitted.returncode == 0, submitted.stderr
    world.job_id = "tpu_mnist_1"
    (group,) = world.job.plan.groups
    assert (group.count, group.tpu.type if group.tpu else None) == (1, tpu)
    corrections = {
        substitution.field: substitution.replacement
        for substitution in world.job.plan.origin.substitutions
    }
    assert corrections[f"trainingInput.{field}"] == "one replica on the TPU's own host"
    assert "trainingInput.runtimeVersion" in corrections
    assert describe(gcloud, "tpu_mnist_1")["trainingInput"]["args"] == list(MNIST_FLAGS[1:])


@pytest.mark.parametrize(
    ("flags", "correction"),
    [
        (("--runtime-version=2.12",), "2.12"),
        (("--region=us-central2",), "us-central"),
        (("--scale-tier=CUSTOM", "--master-machine-type=large_modle"), "large_model"),
    ],
    ids=["runtime that never existed", "unknown region", "misspelt machine"],
)
def test_wrong_flag_is_answered_with_its_field_and_a_correction(
    gcloud: Gcloud, world: World, flags: tuple[str, ...], correction: str
) -> None:
    names = {flag.partition("=")[0] for flag in flags}
    others = tuple(flag for flag in CENSUS if flag.partition("=")[0] not in names)
    refused = gcloud.run(*SUBMIT, "census_2", *others, *flags)
    assert refused.returncode == 1
    assert "(gcloud.ml-engine.jobs.submit.training) INVALID_ARGUMENT: Field: " in refused.stderr
    assert correction in refused.stderr
    assert world.store.load("census_2") is None
