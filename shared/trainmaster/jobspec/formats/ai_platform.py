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
    type: AcceleratorType = wire_field("NVIDIA_TESLA_T4", "GPU or TPU type.")
    count: OptionalInt = wire_field(
        1, "GPUs per VM; for a TPU the number in Cloud TPU's type name."
    )


class DiskConfig(WireModel):
    boot_disk_size_gb: DiskGib = wire_field(100, "Size of the boot disk in GB.")
    boot_disk_type: OptionalString = wire_field(
        "pd-ssd", "Compute Engine disk type of the boot disk."
    )


class ReplicaConfig(WireModel):
    image_uri: OptionalString = wire_field(
        "us-docker.pkg.dev/my-project/training/trainer:1",
        "Container image; default: that of masterConfig.",
    )
    accelerator_config: AcceleratorConfig = wire_field(
        _GPU, "GPUs of each VM, or the TPU.", factory=AcceleratorConfig
    )
    disk_config: DiskConfig | None = wire_field(
        {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}, "Boot disk."
    )
    container_command: tuple[String, ...] = wire_field(
        ["python", "-m", "trainer.task"], "Replaces the image's ENTRYPOINT.", default=()
    )
    container_args: tuple[String, ...] = wire_field(
        ["--epochs", "5"], "Arguments of the command or of the image's ENTRYPOINT.", default=()
    )
    tpu_tf_version: OptionalString = wire_field("2.11", "Read for compatibility; has no effect.")


class Scheduling(WireModel):
    max_running_time: RunningTime = wire_field(
        "7200s", "Time limit from RUNNING on; default: seven days."
    )
    max_wait_time: Annotated[int | None, duration(MAX_WAIT_S_MIN, example_s=MAX_WAIT_S_MIN)] = (
        wire_field("3600s", "Time limit until RUNNING; default: none.")
    )
    priority: Priority = wire_field(0, "Position in the admission queue: larger numbers first.")


class EncryptionConfig(WireModel):
    kms_key_name: OptionalString = wire_field(
        _KMS_KEY, "Cloud KMS key that encrypts the boot disks."
    )


class ParameterSpec(WireModel):
    parameter_name: OptionalString = wire_field(
        "learning-rate", "Name of the parameter: the program gets --NAME."
    )
    type: Annotated[ParameterKind | None, one_of(ParameterKind)] = wire_field(
        "DOUBLE", "Kind of values."
    )
    min_value: OptionalDouble = wire_field(0.0001, "Smallest value of DOUBLE and INTEGER.")
    max_value: OptionalDouble = wire_field(0.1, "Largest value of DOUBLE and INTEGER.")
    categorical_values: tuple[String, ...] = wire_field(
        ["adam", "sgd"], "Values of CATEGORICAL.", default=()
    )
    discrete_values: tuple[Double, ...] = wire_field(
        [16, 32, 64], "Values of DISCRETE, increasing.", default=()
    )
    scale_type: Annotated[ScaleType | None, one_of(ScaleType)] = wire_field(
        "UNIT_LOG_SCALE", "How values are spread over the range."
    )


class HyperparameterSpec(WireModel):
    goal: OptionalGoal = wire_field(
        "MAXIMIZE", "Whether larger or smaller metrics are better; default: MAXIMIZE."
    )
    params: tuple[ParameterSpec, ...] = wire_field(
        [_PARAMETER], "The parameters to tune.", default=()
    )
    max_trials: TrialCount = wire_field(10, "Number of trials; default: 1.")
    max_parallel_trials: TrialCount = wire_field(2, "Trials that run at the same time; default: 1.")
    max_failed_trials: TrialCount = wire_field(3, "Failed trials after which the job fails.")
    hyperparameter_metric_tag: OptionalString = wire_field(
        "accuracy", "Name of the metric that trials report."
    )
    algorithm: OptionalAlgorithm = wire_field(
        "RANDOM_SEARCH", "Search algorithm; default: Bayesian optimization."
    )
    enable_trial_early_stopping: Boolean = wire_field(
        True,
        "Whether trials worse than the median of the completed ones are stopped.",
        default=False,
    )
    resume_previous_job_id: OptionalString = wire_field(
        "digits_tuning_1", "Id of an earlier tuning job whose results are used."
    )


class TrainingInput(WireModel):
    scale_tier: Annotated[ScaleTier | None, one_of(ScaleTier)] = wire_field(
        "CUSTOM", "Predefined cluster, or CUSTOM; default: BASIC."
    )
    master_type: OptionalString = wire_field("n1-standard-4", "Machine type of the master.")
    worker_type: OptionalString = wire_field("n1-standard-4", "Machine type of the workers.")
    parameter_server_type: OptionalString = wire_field(
        "n1-highmem-8", "Machine type of the parameter servers."
    )
    evaluator_type: OptionalString = wire_field("n1-standard-4", "Machine type of the evaluators.")
    worker_count: ReplicaCount = wire_field(2, "Number of workers.")
    parameter_server_count: ReplicaCount = wire_field(1, "Number of parameter servers.")
    evaluator_count: ReplicaCount = wire_field(1, "Number of evaluators.")
    master_config: ReplicaConfig = wire_field(
        {"acceleratorConfig": _GPU},
        "Image, accelerators and disk of the master.",
        factory=ReplicaConfig,
    )
    worker_config: ReplicaConfig = wire_field(
        {"acceleratorConfig": _GPU},
        "Image, accelerators and disk of the workers.",
        factory=ReplicaConfig,
    )
    parameter_server_config: ReplicaConfig = wire_field(
        {"diskConfig": {"bootDiskSizeGb": 200}},
        "Image and disk of the parameter servers.",
        factory=ReplicaConfig,
    )
    evaluator_config: ReplicaConfig = wire_field(
        {"diskConfig": {"bootDiskSizeGb": 200}},
        "Image and disk of the evaluators.",
        factory=ReplicaConfig,
    )
    package_uris: PackageUris = wire_field(
        [_PACKAGE], "Python packages, installed in this order.", default=()
    )
    python_module: OptionalString = wire_field("trainer.task", "Module to run with python -m.")
    args: tuple[String, ...] = wire_field(
        ["--epochs", "5"], "Arguments of the program.", default=()
    )
    hyperparameters: HyperparameterSpec | None = wire_field(
        {"goal": "MAXIMIZE", "maxTrials": 10, "params": [{"parameterName": "learning-rate"}]},
        "Makes the job a tuning job.",
    )
    region: OptionalString = wire_field("us-central1", "Compute Engine region. Required.")
    job_dir: OptionalString = wire_field(
        "gs://my-bucket/digits", "Directory that the program gets as --job-dir."
    )
    runtime_version: OptionalString = wire_field("2.21", "Runtime in which Python packages run.")
    python_version: OptionalString = wire_field("3.12", "Python version of the runtime.")
    encryption_config: EncryptionConfig = wire_field(
        {"kmsKeyName": _KMS_KEY}, "Encryption of the boot disks.", factory=EncryptionConfig
    )
    scheduling: Scheduling = wire_field(
        {"maxRunningTime": "7200s"}, "Time limits and priority.", factory=Scheduling
    )
    network: OptionalString = wire_field(
        "projects/123456789012/global/networks/default", "VPC network of the VMs."
    )
    service_account: OptionalString = wire_field(
        "trainer@my-project.iam.gserviceaccount.com", "Service account of the VMs."
    )
    use_chief_in_tf_config: Boolean = wire_field(
        True, "For containers: name the primary chief, not master.", default=False
    )
    enable_web_access: Boolean = wire_field(
        False, "Without effect: trainmaster ssh opens a shell.", default=False
    )


class AiPlatformJob(WireModel):
    job_id: OptionalString = wire_field(
        "digits_20261121", "Id of the job: letters, digits and underscores."
    )
    labels: Mapping[str, String] = wire_field(
        {"team": "vision"}, "Labels of the job and its VMs.", factory=dict
    )
    training_input: TrainingInput | None = wire_field(
        {"region": "us-central1", "packageUris": [_PACKAGE], "pythonModule": "trainer.task"},
        "What to run, and where.",
    )
    trainmaster: Extension = wire_field(
        {"zones": ["us-central1-a", "us-central1-f"]},
        "What the service had no field for.",
        factory=Extension,
    )
