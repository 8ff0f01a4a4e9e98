"""A Vertex AI CustomJob as it travels: the second way to say the same job.

    CustomJob
    ├── jobId                    ours: Vertex makes a number, here a job has a name
    ├── displayName, labels, encryptionSpec
    ├── jobSpec                  CustomJobSpec; may stand by itself, as in `gcloud ai custom-jobs create --config`
    │   ├── workerPoolSpecs      [primary, workers, parameter servers, evaluators], `{}` for none
    │   │   ├── machineSpec, replicaCount, diskSpec
    │   │   └── containerSpec or pythonPackageSpec
    │   ├── scheduling, baseOutputDirectory, serviceAccount, network
    │   └── …                    what is modelled only to be refused by name: `unsupported`
    └── trainmaster              Extension

Source: the discovery document of `aiplatform` v1 (revision 20261106).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from shared.jobspec.formats.ai_platform import AcceleratorType, DiskConfig, EncryptionConfig
from shared.jobspec.formats.base_model import Wire
from shared.jobspec.formats.extension import Extension
from shared.jobspec.formats.scalars import Count, Duration, Flag, Item, Text, word

STRATEGIES: Final = ("STANDARD", "SPOT", "FLEX_START", "ON_DEMAND", "LOW_COST")
"""The last two are the deprecated names of the first two."""
RESERVATION_AFFINITIES: Final = ("ANY_RESERVATION", "NO_RESERVATION", "SPECIFIC_RESERVATION")

Strategy = Annotated[str | None, BeforeValidator(lambda value: word(value, STRATEGIES))]
AffinityType = Annotated[str | None, BeforeValidator(lambda value: word(value, RESERVATION_AFFINITIES))]

_IMAGE: Final = "us-docker.pkg.dev/my-project/training/trainer:1"
_PACKAGES: Final = ["gs://my-bucket/packages/trainer-0.1.tar.gz"]
_CONTAINER: Final = {"imageUri": _IMAGE}
_POOL: Final = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": _CONTAINER}
_KEY: Final = "projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key"


class EnvVar(Wire):
    name: Text = Field(None, examples=["LEVEL"])
    value: Text = Field(None, examples=["debug"])


class ContainerSpec(Wire):
    image_uri: Text = Field(None, examples=[_IMAGE])
    command: tuple[Item, ...] | None = Field(None, examples=[["python", "-m", "trainer.task"]])
    args: tuple[Item, ...] | None = Field(None, examples=[["--epochs", "5"]])
    env: tuple[EnvVar, ...] | None = Field(None, examples=[[{"name": "LEVEL", "value": "debug"}]])


class PythonPackageSpec(Wire):
    executor_image_uri: Text = Field(None, examples=["us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest"])
    package_uris: tuple[Item, ...] | None = Field(None, examples=[_PACKAGES])
    python_module: Text = Field(None, examples=["trainer.task"])
    args: tuple[Item, ...] | None = Field(None, examples=[["--epochs", "5"]])
    env: tuple[EnvVar, ...] | None = Field(None, examples=[[{"name": "LEVEL", "value": "debug"}]])


class ReservationAffinity(Wire):
    reservation_affinity_type: AffinityType = Field(None, examples=["ANY_RESERVATION"])
    key: Text = Field(None, examples=["compute.googleapis.com/reservation-name"])
    values: tuple[Item, ...] | None = Field(None, examples=[["my-reservation"]])


class MachineSpec(Wire):
    machine_type: Text = Field(None, examples=["n1-standard-4"])
    accelerator_type: AcceleratorType = Field(None, examples=["NVIDIA_TESLA_T4"])
    accelerator_count: Count = Field(None, examples=[1])
    tpu_topology: Text = Field(None, examples=["2x4"])
    gpu_partition_size: Text = Field(None, examples=["1g.10gb"])
    reservation_affinity: ReservationAffinity | None = Field(
        None, examples=[{"reservationAffinityType": "ANY_RESERVATION"}]
    )


class WorkerPoolSpec(Wire):
    machine_spec: MachineSpec | None = Field(None, examples=[{"machineType": "n1-standard-4"}])
    replica_count: Count = Field(None, examples=[1])
    disk_spec: DiskConfig | None = Field(None, examples=[{"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}])
    container_spec: ContainerSpec | None = Field(None, examples=[_CONTAINER])
    python_package_spec: PythonPackageSpec | None = Field(
        None, examples=[{"packageUris": _PACKAGES, "pythonModule": "trainer.task"}]
    )
    nfs_mounts: tuple[Mapping[str, object], ...] | None = Field(None, examples=[[]])
    lustre_mounts: tuple[Mapping[str, object], ...] | None = Field(None, examples=[[]])


class CustomJobScheduling(Wire):
    timeout: Duration = Field(None, examples=["7200s"])
    restart_job_on_worker_restart: Flag = Field(default=False, examples=[True])
    disable_retries: Flag = Field(default=False, examples=[True])
    strategy: Strategy = Field(None, examples=["SPOT"])
    max_wait_duration: Duration = Field(None, examples=["3600s"])


class GcsDestination(Wire):
    output_uri_prefix: Text = Field(None, examples=["gs://my-bucket/digits"])


class CustomJobSpec(Wire):
    worker_pool_specs: tuple[WorkerPoolSpec, ...] | None = Field(None, examples=[[_POOL]])
    scheduling: CustomJobScheduling | None = Field(None, examples=[{"timeout": "7200s"}])
    base_output_directory: GcsDestination | None = Field(None, examples=[{"outputUriPrefix": "gs://my-bucket/digits"}])
    service_account: Text = Field(None, examples=["trainer@my-project.iam.gserviceaccount.com"])
    network: Text = Field(None, examples=["projects/123456789012/global/networks/default"])
    enable_web_access: Flag = Field(default=False, examples=[False])
    enable_dashboard_access: Flag = Field(default=False, examples=[False])
    persistent_resource_id: Text = Field(None, examples=["my-resource"])
    reserved_ip_ranges: tuple[Item, ...] | None = Field(None, examples=[["my-range"]])
    psc_interface_config: Mapping[str, object] | None = Field(None, examples=[{}])
    tensorboard: Text = Field(None, examples=["projects/1/locations/us-central1/tensorboards/2"])
    experiment: Text = Field(None, examples=["projects/1/locations/us-central1/metadataStores/default/contexts/e"])
    experiment_run: Text = Field(None, examples=["projects/1/locations/us-central1/metadataStores/default/contexts/r"])
    models: tuple[Item, ...] | None = Field(None, examples=[["projects/1/locations/us-central1/models/2"]])
    protected_artifact_location_id: Text = Field(None, examples=["us-central1"])


class CustomJob(Wire):
    job_id: Text = Field(None, examples=["digits_20261121"])
    display_name: Text = Field(None, examples=["digits"])
    labels: Mapping[str, Item] | None = Field(None, examples=[{"team": "vision"}])
    job_spec: CustomJobSpec | None = Field(None, examples=[{"workerPoolSpecs": [_POOL]}])
    encryption_spec: EncryptionConfig | None = Field(None, examples=[{"kmsKeyName": _KEY}])
    trainmaster: Extension | None = Field(None, examples=[{"region": "us-central1"}])
