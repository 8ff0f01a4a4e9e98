"""The job as it travels: Job, TrainingInput and what they hold, field for field as the service's API had them.

    Job
    ├── jobId, labels
    ├── trainingInput            TrainingInput
    │   ├── scaleTier, masterType, workerType …, workerCount …
    │   ├── masterConfig …       ReplicaConfig ── acceleratorConfig, diskConfig
    │   ├── packageUris, pythonModule, args, jobDir, runtimeVersion, pythonVersion, region
    │   └── scheduling           Scheduling
    └── trainmaster              Extension, in `extension_model`: what the service did not have

Types only; what may be combined with what is in `rules` and `roles`. Sources: the discovery document of `ml` v1
(revision 20251213) for names and types; each field's example is what `Problem.example` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from shared.jobspec.extension_model import Extension
from shared.jobspec.machines import ACCELERATOR_TYPES
from shared.jobspec.schema import Wire
from shared.jobspec.wire import Count, Duration, Flag, Item, Text, word

SCALE_TIERS: Final = ("BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM")

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
    hyperparameters: Mapping[str, object] | None = Field(
        None, examples=[{"goal": "MAXIMIZE", "maxTrials": 10, "params": []}]
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
