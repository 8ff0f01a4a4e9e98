"""`trainmaster:` in a job document: requests for which AI Platform Training and Vertex AI have no
field.

These models define the form only; `jobspec.fields` checks what the values mean together. Each field
is declared as `wire_field(DESCRIPTION, example=EXAMPLE)`: error messages show the example, and the
JSON Schema shows both. The example is not the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import WithJsonSchema

from trainmaster.core.model.exit_policy import Preset
from trainmaster.core.model.machine_set import KEEP_S_MAX
from trainmaster.core.model.purchase import QUEUED_PRICES
from trainmaster.core.model.saving import CheckpointSignal, SaveOnNotice
from trainmaster.core.model.watching import Preflight, TrackingRun
from trainmaster.jobspec.formats.base_model import WireModel, wire_field
from trainmaster.jobspec.formats.placement import PlacementSpec, SpotSpec
from trainmaster.jobspec.formats.scalars import (
    Boolean,
    GivenString,
    Money,
    OptionalBoolean,
    OptionalInt,
    OptionalString,
    String,
    duration,
    one_name_of,
    one_of,
)

CONVERTED_FROM: Final = "convertedFrom"
"""Field of `trainmaster` that only converted manifests have."""
WINDOW_S_MIN: Final = 600
"""Shortest exitPolicy.window. In a shorter one, quick failures would never use up the restarts."""
STALL_S_MIN: Final = 60
"""Shortest stallTimeout: the import of a framework, or of a checkpoint, prints nothing for most of
a minute.
"""
STILL_S: Final = 600
"""Seconds for which programs must print nothing, move no bytes and compute hardly anything before
`stallTimeout: auto` ends them.
"""


STANDARD_QUEUE: Final = "STANDARD"
"""Cloud TPU queues the request for a slice, which costs what it costs without the queue."""
NO_QUEUE: Final = "NONE"
"""The slice is requested like a VM, without a queue."""
_QUEUES: Final = (NO_QUEUE, STANDARD_QUEUE, *QUEUED_PRICES)
QueueName = Annotated[
    str | None,
    one_name_of(_QUEUES),
    WithJsonSchema({"type": "string", "enum": [name.lower() for name in _QUEUES]}),
]


class StallMode(StrEnum):
    """Values of `stallTimeout` other than a time without output."""

    AUTO = "auto"
    OFF = "off"


class ExitPolicySpec(WireModel):
    """Exit codes as text: `3`, `64-80`, `worker:137`."""

    preset: Annotated[Preset | None, one_of(Preset)] = wire_field(
        "The rules for all other exit codes.", example="restart"
    )
    fail: tuple[String, ...] = wire_field(
        "Exit codes that end the job as FAILED.", example=["3", "64-80"], default=()
    )
    rerun: tuple[String, ...] = wire_field(
        "Exit codes that rerun the whole job.", example=["75"], default=()
    )
    restart: tuple[String, ...] = wire_field(
        "Exit codes that restart the replica.", example=["ps:2"], default=()
    )
    pauses: Boolean = wire_field(
        "Restart a program after a pause if it keeps failing soon after its start.",
        example=False,
        default=True,
    )
    window: Annotated[int | None, duration(WINDOW_S_MIN, example_s=21_600)] = wire_field(
        "How long a restart counts; by default for the whole attempt.", example="21600s"
    )


class ElasticSpec(WireModel):
    """How a synchronous job goes on while Google has no VM for some of its replicas."""

    min_replicas: OptionalInt = wire_field(
        "Replicas that the job needs to go on, with the primary. Required.", example=2
    )
    after: Annotated[int | None, duration(0, example_s=60)] = wire_field(
        "Time from the refusal of a VM to the start without it; by default none.", example="60s"
    )


class ListedSubstitution(WireModel):
    """Fields that a converter has replaced. The job lists them among its substitutions."""

    field: OptionalString = wire_field(
        "Field of the manifest.", example="spec.runPolicy.backoffLimit"
    )
    requested: OptionalString = wire_field("What it requested.", example="3")
    replacement: OptionalString = wire_field(
        "What the job gets instead.", example="5 restarts of each replica"
    )
    reason: OptionalString = wire_field("Why.", example="The budgets of restarts are fixed.")


class ConvertedFrom(WireModel):
    """The manifest from which the job was converted. It does not change how the job runs."""

    manifest: OptionalString = wire_field(
        "The manifest.", example="PyTorchJob digits (kubeflow.org/v1)"
    )
    substitutions: tuple[ListedSubstitution, ...] = wire_field(
        "What the conversion replaced.", example=[], default=()
    )


class PackedFrom(WireModel):
    """The folder that the job's program was packed from. It does not change how the job runs."""

    folder: OptionalString = wire_field("Name of the folder.", example="digits")
    commit: OptionalString = wire_field(
        "Commit of its git repository.", example="4f2a9c0d5b6e7f8091a2b3c4d5e6f708192a3b4c"
    )
    changed: Boolean = wire_field(
        "Whether its files differed from the commit.", example=True, default=False
    )


class Extension(WireModel):
    """All fields of `trainmaster:`."""

    region: OptionalString = wire_field(
        "Region of a CustomJob; a TrainingInput has its own field.", example="us-central1"
    )
    zones: tuple[String, ...] = wire_field(
        "Zones of the region, tried in this order.",
        example=["us-central1-a", "us-central1-f"],
        default=(),
    )
    placement: PlacementSpec | None = wire_field(
        "Alternatives of region, machine and pricing, of which the job gets the first that has"
        " capacity.",
        example={"ordered": [{"spot": "all"}, {"spot": "none", "after": "1800s"}]},
    )
    env: Mapping[str, String] = wire_field(
        "Environment variables of every replica's program.",
        example={"LEVEL": "debug"},
        factory=dict,
    )
    secrets: Mapping[str, String] = wire_field(
        "Environment variables whose values the VM reads from Secret Manager: name and secret"
        " version.",
        example={"API_KEY": "projects/my-project/secrets/api-key/versions/latest"},
        factory=dict,
    )
    image: OptionalString = wire_field(
        "Boot image of the VMs, or software version of TPU VMs.",
        example="projects/my-project/global/images/family/trainer",
    )
    spot: SpotSpec = wire_field("Use of Spot VMs.", example="workers", factory=SpotSpec)
    queue: QueueName = wire_field(
        "For a job that is one TPU slice: request it as a queued resource of Cloud TPU.",
        example="standard",
    )
    max_cost: Money = wire_field(
        "What the machines of the job may cost at list prices; it is cancelled before they cost"
        " more.",
        example="25 USD",
    )
    reservation: GivenString = wire_field(
        "Compute Engine reservation that the VMs use.", example="my-reservation"
    )
    checkpoint_signal: Annotated[CheckpointSignal | None, one_of(CheckpointSignal)] = wire_field(
        "Signal that asks the program to save before its VM is deleted.", example="SIGUSR1"
    )
    save_on_notice: Annotated[SaveOnNotice | None, one_of(SaveOnNotice)] = wire_field(
        "Who is asked to save when the end of a VM is announced. gang: all members of a synchronous"
        " job, at one moment (its default). replica: the VM's own program (default of other jobs)."
        " off: nobody.",
        example="replica",
    )
    preflight: Annotated[Preflight | None, one_of(Preflight)] = wire_field(
        "Whether a VM is examined before its program starts. on (default): a bad one is replaced."
        " report: it is named.",
        example="report",
    )
    tracking_run: Annotated[TrackingRun | None, one_of(TrackingRun)] = wire_field(
        "Whether restarts continue one run of the experiment tracker. Default: auto (W&B, Comet or"
        " Neptune, if a variable names it). one: MLflow, too. each: the tracker decides.",
        example="one",
    )
    stall_timeout: Annotated[
        StallMode | int | None, duration(STALL_S_MIN, example_s=1_800, words=StallMode)
    ] = wire_field(
        "When a program counts as hung, and is restarted. A time: it prints nothing for so long."
        " auto: all members print nothing, move no bytes and compute nothing for ten minutes or"
        " longer. off: never.",
        example="1800s",
    )
    keep_machines: Annotated[int | None, duration(0, example_s=900, most_s=KEEP_S_MAX)] = (
        wire_field(
            "Take machines that an earlier job of yours has kept, if they fit, and keep this job's"
            " machines so long after its end, at most an hour. 0s: only take.",
            example="900s",
        )
    )
    restart_job_on_worker_restart: Boolean = wire_field(
        "Rerun the whole job whenever one replica restarts.", example=True, default=False
    )
    disable_retries: Boolean = wire_field(
        "End the job at its first failure.", example=True, default=False
    )
    independent_replicas: Boolean = wire_field(
        "Replicas do not wait for each other: each one is judged and restarted alone.",
        example=True,
        default=False,
    )
    gang: Boolean = wire_field(
        "Start only when all VMs exist. False: start with the replicas that have a VM, and add the"
        " rest later.",
        example=False,
        default=True,
    )
    elastic: ElasticSpec | None = wire_field(
        "Go on with fewer replicas while VMs are missing. Default: wait for all.",
        example={"minReplicas": 2},
    )
    exit_policy: ExitPolicySpec = wire_field(
        "What the program's exit codes lead to.",
        example={"preset": "restart", "fail": ["3", "64-80"]},
        factory=ExitPolicySpec,
    )
    gcs: OptionalBoolean = wire_field(
        "The program finds all buckets that its VM may read as folders below `/gcs`. Default: true"
        " for a CustomJob, and for a job that names `/gcs/`.",
        example=True,
    )
    algorithm: OptionalString = wire_field(
        "Built-in algorithm that a TrainingInput runs instead of a package or container.",
        example="boosted_trees",
    )
    resume_previous_job_id: OptionalString = wire_field(
        "Id of an earlier tuning job whose results a HyperparameterTuningJob uses.",
        example="digits_tuning_1",
    )
    converted_from: ConvertedFrom = wire_field(
        "The manifest that the job was converted from.",
        example={"manifest": "PyTorchJob digits (kubeflow.org/v1)"},
        factory=ConvertedFrom,
    )
    packed_from: PackedFrom = wire_field(
        "The folder that the job's program was packed from.",
        example={"folder": "digits"},
        factory=PackedFrom,
    )
