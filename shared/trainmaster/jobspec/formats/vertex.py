"""The job documents of Vertex AI: a CustomJob as in its API, and a TrainingPipeline around one.

    VertexCustomJob
    ├── jobId                    Trainmaster's: a Vertex AI job has a number, a job here has a name
    ├── displayName, labels, encryptionSpec
    ├── jobSpec                  CustomJobSpec
    │   ├── workerPoolSpecs      [primary, workers, parameter servers, evaluators]; `{}` skips one
    │   │   ├── machineSpec, replicaCount, diskSpec
    │   │   └── containerSpec or pythonPackageSpec
    │   ├── scheduling, baseOutputDirectory, serviceAccount, network
    │   └── …                    fields that only exist to be refused by name (`unsupported`)
    └── trainmaster              Extension (`formats.extension`)

A CustomJobSpec may stand by itself, as in `gcloud ai custom-jobs create --config`.

Source: the discovery document of `aiplatform` v1 (revision 20261106), and the requests of
google-cloud-aiplatform 2.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from trainmaster.jobspec.formats.ai_platform import (
    DiskConfig,
    EncryptionConfig,
    PackageUris,
    ReplicaCount,
)
from trainmaster.jobspec.formats.base_model import WireModel, wire_field
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.scalars import (
    TEXT,
    AcceleratorType,
    Boolean,
    OptionalInt,
    OptionalString,
    RunningTime,
    String,
    duration,
    one_of,
)

DISPLAY_NAME_CHARS_MAX: Final = 128
CUSTOM_TASK: Final = (
    "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
)
"""The only `trainingTaskDefinition` of custom training. The SDK accepts no other in an answer."""


class Strategy(StrEnum):
    """How VMs are bought. ON_DEMAND and LOW_COST are deprecated names of STANDARD and SPOT."""

    STANDARD = "STANDARD"
    SPOT = "SPOT"
    FLEX_START = "FLEX_START"
    ON_DEMAND = "ON_DEMAND"
    LOW_COST = "LOW_COST"


class ReservationAffinityType(StrEnum):
    ANY_RESERVATION = "ANY_RESERVATION"
    NO_RESERVATION = "NO_RESERVATION"
    SPECIFIC_RESERVATION = "SPECIFIC_RESERVATION"


DisplayName = Annotated[Annotated[str, Field(max_length=DISPLAY_NAME_CHARS_MAX)] | None, TEXT]

_IMAGE: Final = "us-docker.pkg.dev/my-project/training/trainer:1"
_PACKAGES: Final = ["gs://my-bucket/packages/trainer-0.1.tar.gz"]
_CONTAINER: Final = {"imageUri": _IMAGE}
_POOL: Final = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "containerSpec": _CONTAINER,
}
_KEY: Final = "projects/my-project/locations/us-central1/keyRings/my-ring/cryptoKeys/my-key"
_UNSUPPORTED: Final = "Not supported."
_NO_EFFECT: Final = "Without effect: listed as a substitution."


class EnvVar(WireModel):
    name: OptionalString = wire_field("Name of the environment variable.", example="LEVEL")
    value: OptionalString = wire_field("Its value.", example="debug")


class ContainerSpec(WireModel):
    image_uri: OptionalString = wire_field("Container image.", example=_IMAGE)
    command: tuple[String, ...] = wire_field(
        "Replaces the image's ENTRYPOINT.", example=["python", "-m", "trainer.task"], default=()
    )
    args: tuple[String, ...] = wire_field(
        "Arguments of the program.", example=["--epochs", "5"], default=()
    )
    env: tuple[EnvVar, ...] = wire_field(
        "Environment variables.", example=[{"name": "LEVEL", "value": "debug"}], default=()
    )


class PythonPackageSpec(WireModel):
    executor_image_uri: OptionalString = wire_field(
        "One of Google's prebuilt training images; it selects the runtime.",
        example="us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest",
    )
    package_uris: PackageUris = wire_field(
        "Python packages, installed in this order.", example=_PACKAGES, default=()
    )
    python_module: OptionalString = wire_field(
        "Module to run with python -m.", example="trainer.task"
    )
    args: tuple[String, ...] = wire_field(
        "Arguments of the program.", example=["--epochs", "5"], default=()
    )
    env: tuple[EnvVar, ...] = wire_field(
        "Environment variables.", example=[{"name": "LEVEL", "value": "debug"}], default=()
    )


class ReservationAffinity(WireModel):
    reservation_affinity_type: Annotated[
        ReservationAffinityType | None, one_of(ReservationAffinityType)
    ] = wire_field(
        "Which reservations may be used: ANY_RESERVATION, or SPECIFIC_RESERVATION in all pools.",
        example="ANY_RESERVATION",
    )
    key: OptionalString = wire_field(
        "Key of a specific reservation.", example="compute.googleapis.com/reservation-name"
    )
    values: tuple[String, ...] = wire_field(
        "The reservation, with its project and zone; one for all pools.",
        example=["projects/my-project/zones/us-central1-a/reservations/my-reservation"],
        default=(),
    )


class MachineSpec(WireModel):
    machine_type: OptionalString = wire_field(
        "Machine type of each replica. Required.", example="n1-standard-4"
    )
    accelerator_type: AcceleratorType = wire_field("GPU or TPU type.", example="NVIDIA_TESLA_T4")
    accelerator_count: OptionalInt = wire_field("GPUs per VM.", example=1)
    tpu_topology: OptionalString = wire_field("Shape of the TPU slice.", example="2x4")
    gpu_partition_size: OptionalString = wire_field(_UNSUPPORTED, example="1g.10gb")
    reservation_affinity: ReservationAffinity | None = wire_field(
        "The reservation that the VMs use, the same in all pools; see trainmaster.reservation.",
        example={"reservationAffinityType": "ANY_RESERVATION"},
    )


class WorkerPoolSpec(WireModel):
    machine_spec: MachineSpec | None = wire_field(
        "The machine of each replica.", example={"machineType": "n1-standard-4"}
    )
    replica_count: ReplicaCount = wire_field("Number of replicas.", example=1)
    disk_spec: DiskConfig | None = wire_field(
        "Boot disk.", example={"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}
    )
    container_spec: ContainerSpec | None = wire_field("The container to run.", example=_CONTAINER)
    python_package_spec: PythonPackageSpec | None = wire_field(
        "The Python package to run.",
        example={"packageUris": _PACKAGES, "pythonModule": "trainer.task"},
    )
    nfs_mounts: tuple[Mapping[str, object], ...] = wire_field(_UNSUPPORTED, example=[], default=())
    lustre_mounts: tuple[Mapping[str, object], ...] = wire_field(
        _UNSUPPORTED, example=[], default=()
    )


class CustomJobScheduling(WireModel):
    timeout: RunningTime = wire_field(
        "Time limit from RUNNING on; default: seven days.", example="7200s"
    )
    restart_job_on_worker_restart: Boolean = wire_field(
        "Rerun the whole job whenever one replica restarts.", example=True, default=False
    )
    disable_retries: Boolean = wire_field(
        "End the job at its first failure.", example=True, default=False
    )
    strategy: Annotated[Strategy | None, one_of(Strategy)] = wire_field(
        "On-demand, Spot or flex-start VMs.", example="SPOT"
    )
    max_wait_duration: Annotated[int | None, duration(0, example_s=1_800)] = wire_field(
        "Time limit until RUNNING; 0s and default: none.", example="3600s"
    )


class GcsDestination(WireModel):
    output_uri_prefix: OptionalString = wire_field(
        "Directory in Cloud Storage.", example="gs://my-bucket/digits"
    )


class CustomJobSpec(WireModel):
    worker_pool_specs: tuple[WorkerPoolSpec, ...] = wire_field(
        "At most four pools: primary, workers, parameter servers, evaluators.",
        example=[_POOL],
        default=(),
    )
    scheduling: CustomJobScheduling = wire_field(
        "Time limits and how VMs are bought.",
        example={"timeout": "7200s"},
        factory=CustomJobScheduling,
    )
    base_output_directory: GcsDestination = wire_field(
        "Base of AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR.",
        example={"outputUriPrefix": "gs://my-bucket/digits"},
        factory=GcsDestination,
    )
    service_account: OptionalString = wire_field(
        "Service account of the VMs.", example="trainer@my-project.iam.gserviceaccount.com"
    )
    network: OptionalString = wire_field(
        "VPC network of the VMs.", example="projects/123456789012/global/networks/default"
    )
    enable_web_access: Boolean = wire_field(_NO_EFFECT, example=False, default=False)
    enable_dashboard_access: Boolean = wire_field(_NO_EFFECT, example=False, default=False)
    persistent_resource_id: OptionalString = wire_field(
        "Jobs with the same name take the machines that one of them has kept.",
        example="my-resource",
    )
    reserved_ip_ranges: tuple[String, ...] = wire_field(
        _UNSUPPORTED, example=["my-range"], default=()
    )
    psc_interface_config: Mapping[str, object] | None = wire_field(_UNSUPPORTED, example={})
    tensorboard: OptionalString = wire_field(
        _NO_EFFECT, example="projects/1/locations/us-central1/tensorboards/2"
    )
    experiment: OptionalString = wire_field(
        _UNSUPPORTED, example="projects/1/locations/us-central1/metadataStores/default/contexts/e"
    )
    experiment_run: OptionalString = wire_field(
        _UNSUPPORTED, example="projects/1/locations/us-central1/metadataStores/default/contexts/r"
    )
    models: tuple[String, ...] = wire_field(
        _UNSUPPORTED, example=["projects/1/locations/us-central1/models/2"], default=()
    )
    protected_artifact_location_id: OptionalString = wire_field(_UNSUPPORTED, example="us-central1")


class VertexJob(WireModel):
    """The fields around a specification, whichever way that is given."""

    job_id: OptionalString = wire_field(
        "Id of the job: letters, digits and underscores.", example="digits_20261121"
    )
    display_name: DisplayName = wire_field("Name of the job for people.", example="digits")
    labels: Mapping[str, String] = wire_field(
        "Labels of the job and its VMs.", example={"team": "vision"}, factory=dict
    )
    encryption_spec: EncryptionConfig = wire_field(
        "Encryption of the boot disks.", example={"kmsKeyName": _KEY}, factory=EncryptionConfig
    )
    trainmaster: Extension = wire_field(
        "Region, and what the service had no field for.",
        example={"region": "us-central1"},
        factory=Extension,
    )


class VertexCustomJob(VertexJob):
    job_spec: CustomJobSpec = wire_field(
        "What to run.", example={"workerPoolSpecs": [_POOL]}, factory=CustomJobSpec
    )


class VertexPipeline(VertexCustomJob):
    """A CustomJob as Vertex AI's SDK sends it, with its spec under `trainingTaskInputs`."""

    other_names: ClassVar[Mapping[str, str]] = {
        "trainingTaskInputs": "jobSpec",
        "training_task_inputs": "jobSpec",
    }

    training_task_definition: OptionalString = wire_field(
        "Kind of the task: custom training only.", example=CUSTOM_TASK
    )
    input_data_config: Mapping[str, object] | None = wire_field(_UNSUPPORTED, example={})
    model_to_upload: Mapping[str, object] | None = wire_field(_UNSUPPORTED, example={})
    model_id: OptionalString = wire_field(_UNSUPPORTED, example="17")
    parent_model: OptionalString = wire_field(
        _UNSUPPORTED, example="projects/1/locations/us-central1/models/2"
    )
