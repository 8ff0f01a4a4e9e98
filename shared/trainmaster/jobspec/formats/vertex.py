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
    name: OptionalString = wire_field("LEVEL", "Name of the environment variable.")
    value: OptionalString = wire_field("debug", "Its value.")


class ContainerSpec(WireModel):
    image_uri: OptionalString = wire_field(_IMAGE, "Container image.")
    command: tuple[String, ...] = wire_field(
        ["python", "-m", "trainer.task"], "Replaces the image's ENTRYPOINT.", default=()
    )
    args: tuple[String, ...] = wire_field(
        ["--epochs", "5"], "Arguments of the program.", default=()
    )
    env: tuple[EnvVar, ...] = wire_field(
        [{"name": "LEVEL", "value": "debug"}], "Environment variables.", default=()
    )


class PythonPackageSpec(WireModel):
    executor_image_uri: OptionalString = wire_field(
        "us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest",
        "One of Google's prebuilt training images; it selects the runtime.",
    )
    package_uris: PackageUris = wire_field(
        _PACKAGES, "Python packages, installed in this order.", default=()
    )
    python_module: OptionalString = wire_field("trainer.task", "Module to run with python -m.")
    args: tuple[String, ...] = wire_field(
        ["--epochs", "5"], "Arguments of the program.", default=()
    )
    env: tuple[EnvVar, ...] = wire_field(
        [{"name": "LEVEL", "value": "debug"}], "Environment variables.", default=()
    )


class ReservationAffinity(WireModel):
    reservation_affinity_type: Annotated[
        ReservationAffinityType | None, one_of(ReservationAffinityType)
    ] = wire_field(
        "ANY_RESERVATION",
        "Which reservations may be used: ANY_RESERVATION, or SPECIFIC_RESERVATION in all pools.",
    )
    key: OptionalString = wire_field(
        "compute.googleapis.com/reservation-name", "Key of a specific reservation."
    )
    values: tuple[String, ...] = wire_field(
        ["projects/my-project/zones/us-central1-a/reservations/my-reservation"],
        "The reservation, with its project and zone; one for all pools.",
        default=(),
    )


class MachineSpec(WireModel):
    machine_type: OptionalString = wire_field(
        "n1-standard-4", "Machine type of each replica. Required."
    )
    accelerator_type: AcceleratorType = wire_field("NVIDIA_TESLA_T4", "GPU or TPU type.")
    accelerator_count: OptionalInt = wire_field(1, "GPUs per VM.")
    tpu_topology: OptionalString = wire_field("2x4", "Shape of the TPU slice.")
    gpu_partition_size: OptionalString = wire_field("1g.10gb", _UNSUPPORTED)
    reservation_affinity: ReservationAffinity | None = wire_field(
        {"reservationAffinityType": "ANY_RESERVATION"},
        "The reservation that the VMs use, the same in all pools; see trainmaster.reservation.",
    )


class WorkerPoolSpec(WireModel):
    machine_spec: MachineSpec | None = wire_field(
        {"machineType": "n1-standard-4"}, "The machine of each replica."
    )
    replica_count: ReplicaCount = wire_field(1, "Number of replicas.")
    disk_spec: DiskConfig | None = wire_field(
        {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}, "Boot disk."
    )
    container_spec: ContainerSpec | None = wire_field(_CONTAINER, "The container to run.")
    python_package_spec: PythonPackageSpec | None = wire_field(
        {"packageUris": _PACKAGES, "pythonModule": "trainer.task"}, "The Python package to run."
    )
    nfs_mounts: tuple[Mapping[str, object], ...] = wire_field([], _UNSUPPORTED, default=())
    lustre_mounts: tuple[Mapping[str, object], ...] = wire_field([], _UNSUPPORTED, default=())


class CustomJobScheduling(WireModel):
    timeout: RunningTime = wire_field("7200s", "Time limit from RUNNING on; default: seven days.")
    restart_job_on_worker_restart: Boolean = wire_field(
        True, "Rerun the whole job whenever one replica restarts.", default=False
    )
    disable_retries: Boolean = wire_field(True, "End the job at its first failure.", default=False)
    strategy: Annotated[Strategy | None, one_of(Strategy)] = wire_field(
        "SPOT", "On-demand, Spot or flex-start VMs."
    )
    max_wait_duration: Annotated[int | None, duration(0, example_s=1_800)] = wire_field(
        "3600s", "Time limit until RUNNING; 0s and default: none."
    )


class GcsDestination(WireModel):
    output_uri_prefix: OptionalString = wire_field(
        "gs://my-bucket/digits", "Directory in Cloud Storage."
    )


class CustomJobSpec(WireModel):
    worker_pool_specs: tuple[WorkerPoolSpec, ...] = wire_field(
        [_POOL], "At most four pools: primary, workers, parameter servers, evaluators.", default=()
    )
    scheduling: CustomJobScheduling = wire_field(
        {"timeout": "7200s"}, "Time limits and how VMs are bought.", factory=CustomJobScheduling
    )
    base_output_directory: GcsDestination = wire_field(
        {"outputUriPrefix": "gs://my-bucket/digits"},
        "Base of AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR.",
        factory=GcsDestination,
    )
    service_account: OptionalString = wire_field(
        "trainer@my-project.iam.gserviceaccount.com", "Service account of the VMs."
    )
    network: OptionalString = wire_field(
        "projects/123456789012/global/networks/default", "VPC network of the VMs."
    )
    enable_web_access: Boolean = wire_field(False, _NO_EFFECT, default=False)
    enable_dashboard_access: Boolean = wire_field(False, _NO_EFFECT, default=False)
    persistent_resource_id: OptionalString = wire_field(
        "my-resource", "Jobs with the same name take the machines that one of them has kept."
    )
    reserved_ip_ranges: tuple[String, ...] = wire_field(["my-range"], _UNSUPPORTED, default=())
    psc_interface_config: Mapping[str, object] | None = wire_field({}, _UNSUPPORTED)
    tensorboard: OptionalString = wire_field(
        "projects/1/locations/us-central1/tensorboards/2", _NO_EFFECT
    )
    experiment: OptionalString = wire_field(
        "projects/1/locations/us-central1/metadataStores/default/contexts/e", _UNSUPPORTED
    )
    experiment_run: OptionalString = wire_field(
        "projects/1/locations/us-central1/metadataStores/default/contexts/r", _UNSUPPORTED
    )
    models: tuple[String, ...] = wire_field(
        ["projects/1/locations/us-central1/models/2"], _UNSUPPORTED, default=()
    )
    protected_artifact_location_id: OptionalString = wire_field("us-central1", _UNSUPPORTED)


class VertexJob(WireModel):
    """The fields around a specification, whichever way that is given."""

    job_id: OptionalString = wire_field(
        "digits_20261121", "Id of the job: letters, digits and underscores."
    )
    display_name: DisplayName = wire_field("digits", "Name of the job for people.")
    labels: Mapping[str, String] = wire_field(
        {"team": "vision"}, "Labels of the job and its VMs.", factory=dict
    )
    encryption_spec: EncryptionConfig = wire_field(
        {"kmsKeyName": _KEY}, "Encryption of the boot disks.", factory=EncryptionConfig
    )
    trainmaster: Extension = wire_field(
        {"region": "us-central1"},
        "Region, and what the service had no field for.",
        factory=Extension,
    )


class VertexCustomJob(VertexJob):
    job_spec: CustomJobSpec = wire_field(
        {"workerPoolSpecs": [_POOL]}, "What to run.", factory=CustomJobSpec
    )


class VertexPipeline(VertexCustomJob):
    """A CustomJob as Vertex AI's SDK sends it, with its spec under `trainingTaskInputs`."""

    other_names: ClassVar[Mapping[str, str]] = {
        "trainingTaskInputs": "jobSpec",
        "training_task_inputs": "jobSpec",
    }

    training_task_definition: OptionalString = wire_field(
        CUSTOM_TASK, "Kind of the task: custom training only."
    )
    input_data_config: Mapping[str, object] | None = wire_field({}, _UNSUPPORTED)
    model_to_upload: Mapping[str, object] | None = wire_field({}, _UNSUPPORTED)
    model_id: OptionalString = wire_field("17", _UNSUPPORTED)
    parent_model: OptionalString = wire_field(
        "projects/1/locations/us-central1/models/2", _UNSUPPORTED
    )
