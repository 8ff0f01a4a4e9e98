"""The job document of AI Platform Training, field for field as in the service's API.

    AiPlatformJob
    ├── jobId, labels
    ├── trainingInput            TrainingInput
    │   ├── scaleTier, masterType, workerType …, workerCount …
    │   ├── masterConfig …       ReplicaConfig ── acceleratorConfig, diskConfig
    │   ├── packageUris, pythonModule, args, jobDir, runtimeVersion, pythonVersion, region
    │   ├── hyperparameters      HyperparameterSpec ── params: ParameterSpec
    │   └── scheduling           Scheduling
    └── trainmaster              Extension (`formats.extension`)

Types and limits of single fields only; `resolve` checks which fields may be combined. Source of
names and types: the discovery document of `ml` v1 (revision 20251213).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from trainmaster.core.model.search_space import ParameterKind
from trainmaster.core.model.tuning import TRIALS_MAX, Algorithm, Goal
from trainmaster.jobspec.formats.base_model import WireModel, wire_field
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.scalars import (
    WHOLE_NUMBER,
    AcceleratorType,
    Boolean,
    Double,
    OptionalDouble,
    OptionalInt,
    OptionalString,
    RunningTime,
    String,
    duration,
    one_of,
)

PACKAGES_MAX: Final = 100
"""Source: both APIs' schemas, `packageUris`."""
DISK_GIB_MIN: Final = 10
DISK_GIB_MAX: Final = 65_536
"""Source: Compute Engine, size limits of persistent disks."""
PRIORITY_MAX: Final = 1_000
"""Source: the API's schema, `scheduling.priority`."""
MAX_WAIT_S_MIN: Final = 1_800
"""Source: the API's schema, `scheduling.maxWaitTime`."""
REPLICAS_MAX: Final = 1_000
"""VMs that one bulk insert can create. Source: Compute Engine, `count` of instances.bulkInsert."""


class ScaleTier(StrEnum):
    """A predefined cluster (`catalog.scale_tiers`), or CUSTOM."""

    BASIC = "BASIC"
    STANDARD_1 = "STANDARD_1"
    PREMIUM_1 = "PREMIUM_1"
    BASIC_GPU = "BASIC_GPU"
    BASIC_TPU = "BASIC_TPU"
    CUSTOM = "CUSTOM"


class ScaleType(StrEnum):
    """How the values of a tuned parameter are spread over its range."""

    NONE = "NONE"
    UNIT_LINEAR_SCALE = "UNIT_LINEAR_SCALE"
    UNIT_LOG_SCALE = "UNIT_LOG_SCALE"
    UNIT_REVERSE_LOG_SCALE = "UNIT_REVERSE_LOG_SCALE"


OptionalGoal = Annotated[Goal | None, one_of(Goal)]
OptionalAlgorithm = Annotated[
    Literal[Algorithm.GRID_SEARCH, Algorithm.RANDOM_SEARCH] | None,
    one_of((Algorithm.GRID_SEARCH, Algorithm.RANDOM_SEARCH)),
]
ReplicaCount = Annotated[Annotated[int, Field(ge=0, le=REPLICAS_MAX)] | None, WHOLE_NUMBER]
TrialCount = Annotated[Annotated[int, Field(ge=1, le=TRIALS_MAX)] | None, WHOLE_NUMBER]
DiskGib = Annotated[Annotated[int, Field(ge=DISK_GIB_MIN, le=DISK_GIB_MAX)] | None, WHOLE_NUMBER]
Priority = Annotated[Annotated[int, Field(ge=0, le=PRIORITY_MAX)] | None, WHOLE_NUMBER]
PackageUris = Annotated[tuple[String, ...], Field(max_length=PACKAGES_MAX)]

_PACKAGE: Final = "gs://my-bucket/packages/trainer-0.1.tar.gz"
_KMS_KEY: Final = "projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key"
_GPU: Final = {"type": "NVIDIA_TESLA_T4", "count": 1}
_PARAMETER: Final = {
    "parameterName": "learning-rate",
    "type": "DOUBLE",
    "minValue": 0.0001,
    "maxValue": 0.1,
}


class AcceleratorConfig(WireModel):
    type: AcceleratorType = wire_field("GPU or TPU type.", example="NVIDIA_TESLA_T4")
    count: OptionalInt = wire_field(
        "GPUs per VM; for a TPU the number in Cloud TPU's type name.", example=1
    )


class DiskConfig(WireModel):
    boot_disk_size_gb: DiskGib = wire_field("Size of the boot disk in GB.", example=100)
    boot_disk_type: OptionalString = wire_field(
        "Compute Engine disk type of the boot disk.", example="pd-ssd"
    )


class ReplicaConfig(WireModel):
    image_uri: OptionalString = wire_field(
        "Container image; default: that of masterConfig.",
        example="us-docker.pkg.dev/my-project/training/trainer:1",
    )
    accelerator_config: AcceleratorConfig = wire_field(
        "GPUs of each VM, or the TPU.", example=_GPU, factory=AcceleratorConfig
    )
    disk_config: DiskConfig | None = wire_field(
        "Boot disk.", example={"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}
    )
    container_command: tuple[String, ...] = wire_field(
        "Replaces the image's ENTRYPOINT.", example=["python", "-m", "trainer.task"], default=()
    )
    container_args: tuple[String, ...] = wire_field(
        "Arguments of the command or of the image's ENTRYPOINT.",
        example=["--epochs", "5"],
        default=(),
    )
    tpu_tf_version: OptionalString = wire_field(
        "Read for compatibility; has no effect.", example="2.11"
    )


class Scheduling(WireModel):
    max_running_time: RunningTime = wire_field(
        "Time limit from RUNNING on; default: seven days.", example="7200s"
    )
    max_wait_time: Annotated[int | None, duration(MAX_WAIT_S_MIN, example_s=MAX_WAIT_S_MIN)] = (
        wire_field("Time limit until RUNNING; default: none.", example="3600s")
    )
    priority: Priority = wire_field(
        "Position in the admission queue: larger numbers first.", example=0
    )


class EncryptionConfig(WireModel):
    kms_key_name: OptionalString = wire_field(
        "Cloud KMS key that encrypts the boot disks.", example=_KMS_KEY
    )


class ParameterSpec(WireModel):
    parameter_name: OptionalString = wire_field(
        "Name of the parameter: the program gets --NAME.", example="learning-rate"
    )
    type: Annotated[ParameterKind | None, one_of(ParameterKind)] = wire_field(
        "Kind of values.", example="DOUBLE"
    )
    min_value: OptionalDouble = wire_field("Smallest value of DOUBLE and INTEGER.", example=0.0001)
    max_value: OptionalDouble = wire_field("Largest value of DOUBLE and INTEGER.", example=0.1)
    categorical_values: tuple[String, ...] = wire_field(
        "Values of CATEGORICAL.", example=["adam", "sgd"], default=()
    )
    discrete_values: tuple[Double, ...] = wire_field(
        "Values of DISCRETE, increasing.", example=[16, 32, 64], default=()
    )
    scale_type: Annotated[ScaleType | None, one_of(ScaleType)] = wire_field(
        "How values are spread over the range.", example="UNIT_LOG_SCALE"
    )


class HyperparameterSpec(WireModel):
    goal: OptionalGoal = wire_field(
        "Whether larger or smaller metrics are better; default: MAXIMIZE.", example="MAXIMIZE"
    )
    params: tuple[ParameterSpec, ...] = wire_field(
        "The parameters to tune.", example=[_PARAMETER], default=()
    )
    max_trials: TrialCount = wire_field("Number of trials; default: 1.", example=10)
    max_parallel_trials: TrialCount = wire_field(
        "Trials that run at the same time; default: 1.", example=2
    )
    max_failed_trials: TrialCount = wire_field(
        "Failed trials after which the job fails.", example=3
    )
    hyperparameter_metric_tag: OptionalString = wire_field(
        "Name of the metric that trials report.", example="accuracy"
    )
    algorithm: OptionalAlgorithm = wire_field(
        "Search algorithm; default: Bayesian optimization.", example="RANDOM_SEARCH"
    )
    enable_trial_early_stopping: Boolean = wire_field(
        "Whether trials worse than the median of the completed ones are stopped.",
        example=True,
        default=False,
    )
    resume_previous_job_id: OptionalString = wire_field(
        "Id of an earlier tuning job whose results are used.", example="digits_tuning_1"
    )


class TrainingInput(WireModel):
    scale_tier: Annotated[ScaleTier | None, one_of(ScaleTier)] = wire_field(
        "Predefined cluster, or CUSTOM; default: BASIC.", example="CUSTOM"
    )
    master_type: OptionalString = wire_field("Machine type of the master.", example="n1-standard-4")
    worker_type: OptionalString = wire_field(
        "Machine type of the workers.", example="n1-standard-4"
    )
    parameter_server_type: OptionalString = wire_field(
        "Machine type of the parameter servers.", example="n1-highmem-8"
    )
    evaluator_type: OptionalString = wire_field(
        "Machine type of the evaluators.", example="n1-standard-4"
    )
    worker_count: ReplicaCount = wire_field("Number of workers.", example=2)
    parameter_server_count: ReplicaCount = wire_field("Number of parameter servers.", example=1)
    evaluator_count: ReplicaCount = wire_field("Number of evaluators.", example=1)
    master_config: ReplicaConfig = wire_field(
        "Image, accelerators and disk of the master.",
        example={"acceleratorConfig": _GPU},
        factory=ReplicaConfig,
    )
    worker_config: ReplicaConfig = wire_field(
        "Image, accelerators and disk of the workers.",
        example={"acceleratorConfig": _GPU},
        factory=ReplicaConfig,
    )
    parameter_server_config: ReplicaConfig = wire_field(
        "Image and disk of the parameter servers.",
        example={"diskConfig": {"bootDiskSizeGb": 200}},
        factory=ReplicaConfig,
    )
    evaluator_config: ReplicaConfig = wire_field(
        "Image and disk of the evaluators.",
        example={"diskConfig": {"bootDiskSizeGb": 200}},
        factory=ReplicaConfig,
    )
    package_uris: PackageUris = wire_field(
        "Python packages, installed in this order.", example=[_PACKAGE], default=()
    )
    python_module: OptionalString = wire_field(
        "Module to run with python -m.", example="trainer.task"
    )
    args: tuple[String, ...] = wire_field(
        "Arguments of the program.", example=["--epochs", "5"], default=()
    )
    hyperparameters: HyperparameterSpec | None = wire_field(
        "Makes the job a tuning job.",
        example={
            "goal": "MAXIMIZE",
            "maxTrials": 10,
            "params": [{"parameterName": "learning-rate"}],
        },
    )
    region: OptionalString = wire_field("Compute Engine region. Required.", example="us-central1")
    job_dir: OptionalString = wire_field(
        "Directory that the program gets as --job-dir.", example="gs://my-bucket/digits"
    )
    runtime_version: OptionalString = wire_field(
        "Runtime in which Python packages run.", example="2.21"
    )
    python_version: OptionalString = wire_field("Python version of the runtime.", example="3.12")
    encryption_config: EncryptionConfig = wire_field(
        "Encryption of the boot disks.", example={"kmsKeyName": _KMS_KEY}, factory=EncryptionConfig
    )
    scheduling: Scheduling = wire_field(
        "Time limits and priority.", example={"maxRunningTime": "7200s"}, factory=Scheduling
    )
    network: OptionalString = wire_field(
        "VPC network of the VMs.", example="projects/123456789012/global/networks/default"
    )
    service_account: OptionalString = wire_field(
        "Service account of the VMs.", example="trainer@my-project.iam.gserviceaccount.com"
    )
    use_chief_in_tf_config: Boolean = wire_field(
        "For containers: name the primary chief, not master.", example=True, default=False
    )
    enable_web_access: Boolean = wire_field(
        "Without effect: trainmaster ssh opens a shell.", example=False, default=False
    )


class AiPlatformJob(WireModel):
    job_id: OptionalString = wire_field(
        "Id of the job: letters, digits and underscores.", example="digits_20261121"
    )
    labels: Mapping[str, String] = wire_field(
        "Labels of the job and its VMs.", example={"team": "vision"}, factory=dict
    )
    training_input: TrainingInput | None = wire_field(
        "What to run, and where.",
        example={
            "region": "us-central1",
            "packageUris": [_PACKAGE],
            "pythonModule": "trainer.task",
        },
    )
    trainmaster: Extension = wire_field(
        "What the service had no field for.",
        example={"zones": ["us-central1-a", "us-central1-f"]},
        factory=Extension,
    )
