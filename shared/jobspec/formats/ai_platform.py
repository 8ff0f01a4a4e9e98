"""The job as it travels: Job, TrainingInput and what they hold, field for field as the service's API had them.

    Job
    ├── jobId, labels
    ├── trainingInput            TrainingInput
    │   ├── scaleTier, masterType, workerType …, workerCount …
    │   ├── masterConfig …       ReplicaConfig ── acceleratorConfig, diskConfig
    │   ├── packageUris, pythonModule, args, jobDir, runtimeVersion, pythonVersion, region
    │   ├── hyperparameters      HyperparameterSpec ── params: ParameterSpec
    │   └── scheduling           Scheduling
    └── trainmaster              Extension, in `extension_model`: what the service did not have

Types only; what may be combined with what is in `rules` and `roles`. Sources: the discovery document of `ml` v1
(revision 20251213) for names and types; each field's example is what `Problem.example` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from shared.jobspec.catalog.machine_types import ACCELERATOR_TYPES
from shared.jobspec.formats.base_model import Wire
from shared.jobspec.formats.extension import Extension
from shared.jobspec.formats.scalars import Count, Duration, Figure, Flag, Item, Number, Text, word

SCALE_TIERS: Final = ("BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM")

GOALS: Final = ("MAXIMIZE", "MINIMIZE")
ALGORITHMS: Final = ("GRID_SEARCH", "RANDOM_SEARCH")
PARAMETER_TYPES: Final = ("DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE")
SCALE_TYPES: Final = ("NONE", "UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")

GoalType = Annotated[str | None, BeforeValidator(lambda value: word(value, GOALS))]
AlgorithmType = Annotated[str | None, BeforeValidator(lambda value: word(value, ALGORITHMS))]
ParameterType = Annotated[str | None, BeforeValidator(lambda value: word(value, PARAMETER_TYPES))]
ScaleType = Annotated[str | None, BeforeValidator(lambda value: word(value, SCALE_TYPES))]
ScaleTier = Annotated[str | None, BeforeValidator(lambda value: word(value, SCALE_TIERS))]
AcceleratorType = Annotated[str | None, BeforeValidator(lambda value: word(value, ACCELERATOR_TYPES))]


class AcceleratorConfig(Wire):
    type: AcceleratorType = Field(None, examples=["NVIDIA_TESLA_T4"])
    count: Count = Field(None, examples=[1])


class DiskConfig(Wire):
    boot_disk_size_gb: Count = Field(None, examples=[100])
    boot_disk_type: Text = Field(None, examples=["pd-ssd"])


class ReplicaConfig(Wire):
    image_uri: Text = Field(None, examples=["us-docker.pkg.dev/my-project/training/trainer:1"])
    accelerator_config: AcceleratorConfig | None = Field(None, examples=[{"type": "NVIDIA_TESLA_T4", "count": 1}])
    disk_config: DiskConfig | None = Field(None, examples=[{"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}])
    container_command: tuple[Item, ...] | None = Field(None, examples=[["python", "-m", "trainer.task"]])
    container_args: tuple[Item, ...] | None = Field(None, examples=[["--epochs", "5"]])
    tpu_tf_version: Text = Field(None, examples=["2.11"])


class Scheduling(Wire):
    max_running_time: Duration = Field(None, examples=["7200s"])
    max_wait_time: Duration = Field(None, examples=["3600s"])
    priority: Count = Field(None, examples=[0])


class EncryptionConfig(Wire):
    kms_key_name: Text = Field(
        None, examples=["projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key"]
    )


class ParameterSpec(Wire):
    parameter_name: Text = Field(None, examples=["learning-rate"])
    type: ParameterType = Field(None, examples=["DOUBLE"])
    min_value: Number = Field(None, examples=[0.0001])
    max_value: Number = Field(None, examples=[0.1])
    categorical_values: tuple[Item, ...] | None = Field(None, examples=[["adam", "sgd"]])
    discrete_values: tuple[Figure, ...] | None = Field(None, examples=[[16, 32, 64]])
    scale_type: ScaleType = Field(None, examples=["UNIT_LOG_SCALE"])


class HyperparameterSpec(Wire):
    goal: GoalType = Field(None, examples=["MAXIMIZE"])
    params: tuple[ParameterSpec, ...] | None = Field(
        None,
        examples=[[{"parameterName": "learning-rate", "type": "DOUBLE", "minValue": 0.0001, "maxValue": 0.1}]],
    )
    max_trials: Count = Field(None, examples=[10])
    max_parallel_trials: Count = Field(None, examples=[2])
    max_failed_trials: Count = Field(None, examples=[3])
    hyperparameter_metric_tag: Text = Field(None, examples=["accuracy"])
    algorithm: AlgorithmType = Field(None, examples=["RANDOM_SEARCH"])
    enable_trial_early_stopping: Flag = Field(default=False, examples=[False])
    resume_previous_job_id: Text = Field(None, examples=["digits_tuning_1"])


class TrainingInput(Wire):
    scale_tier: ScaleTier = Field(None, examples=["CUSTOM"])
    master_type: Text = Field(None, examples=["n1-standard-4"])
    worker_type: Text = Field(None, examples=["n1-standard-4"])
    parameter_server_type: Text = Field(None, examples=["n1-highmem-8"])
    evaluator_type: Text = Field(None, examples=["n1-standard-4"])
    worker_count: Count = Field(None, examples=[2])
    parameter_server_count: Count = Field(None, examples=[1])
    evaluator_count: Count = Field(None, examples=[1])
    master_config: ReplicaConfig | None = Field(
        None, examples=[{"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 1}}]
    )
    worker_config: ReplicaConfig | None = Field(
        None, examples=[{"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 1}}]
    )
    parameter_server_config: ReplicaConfig | None = Field(None, examples=[{"diskConfig": {"bootDiskSizeGb": 200}}])
    evaluator_config: ReplicaConfig | None = Field(None, examples=[{"diskConfig": {"bootDiskSizeGb": 200}}])
    package_uris: tuple[Item, ...] | None = Field(None, examples=[["gs://my-bucket/packages/trainer-0.1.tar.gz"]])
    python_module: Text = Field(None, examples=["trainer.task"])
    args: tuple[Item, ...] | None = Field(None, examples=[["--epochs", "5"]])
    hyperparameters: HyperparameterSpec | None = Field(
        None, examples=[{"goal": "MAXIMIZE", "maxTrials": 10, "params": [{"parameterName": "learning-rate"}]}]
    )
    region: Text = Field(None, examples=["us-central1"])
    job_dir: Text = Field(None, examples=["gs://my-bucket/digits"])
    runtime_version: Text = Field(None, examples=["2.21"])
    python_version: Text = Field(None, examples=["3.12"])
    encryption_config: EncryptionConfig | None = Field(
        None, examples=[{"kmsKeyName": "projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key"}]
    )
    scheduling: Scheduling | None = Field(None, examples=[{"maxRunningTime": "7200s"}])
    network: Text = Field(None, examples=["projects/123456789012/global/networks/default"])
    service_account: Text = Field(None, examples=["trainer@my-project.iam.gserviceaccount.com"])
    use_chief_in_tf_config: Flag = Field(default=False, examples=[True])
    enable_web_access: Flag = Field(default=False, examples=[False])


class Job(Wire):
    job_id: Text = Field(None, examples=["digits_20261121"])
    labels: Mapping[str, Item] | None = Field(None, examples=[{"team": "vision"}])
    training_input: TrainingInput | None = Field(
        None,
        examples=[
            {
                "region": "us-central1",
                "packageUris": ["gs://my-bucket/packages/trainer-0.1.tar.gz"],
                "pythonModule": "trainer.task",
            }
        ],
    )
    trainmaster: Extension | None = Field(None, examples=[{"zones": ["us-central1-a", "us-central1-f"]}])
