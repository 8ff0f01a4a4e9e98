"""`trainmaster.placement` and `trainmaster.spot`: where a job runs, and how its VMs are bought."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.formats.base_model import WireModel, wire_field
from trainmaster.jobspec.formats.scalars import (
    WHOLE_NUMBER,
    AcceleratorType,
    OptionalInt,
    OptionalString,
    String,
    duration,
    one_of,
)


class SpotUse(StrEnum):
    """Which replicas run on Spot VMs."""

    NONE = "none"
    ALL = "all"
    WORKERS = "workers"


AtLeastOne = Annotated[Annotated[int, Field(ge=1)] | None, WHOLE_NUMBER]


class SpotSpec(WireModel):
    """`spot: workers` means `spot: {use: workers}`."""

    shorthand: ClassVar[str | None] = "use"

    use: Annotated[SpotUse | None, one_of(SpotUse)] = wire_field(
        "Which replicas run on Spot VMs.", example="workers"
    )
    on_demand_after: AtLeastOne = wire_field(
        "A replica that has lost this many Spot VMs gets one on demand.", example=3
    )


class AlternativeMachine(WireModel):
    machine_type: OptionalString = wire_field(
        "Machine type of each replica. Required.", example="a2-highgpu-1g"
    )
    accelerator_type: AcceleratorType = wire_field(
        "GPU type, for machines without built-in GPUs.", example="NVIDIA_TESLA_T4"
    )
    accelerator_count: OptionalInt = wire_field("GPUs per VM.", example=1)
    tpu_topology: OptionalString = wire_field("Shape of the TPU slice.", example="2x4")


class Alternative(WireModel):
    """One way to run the job. What it leaves out is as in the job."""

    regions: tuple[String, ...] = wire_field(
        "All zones of these regions; `any`: all regions in which Trainmaster is installed.",
        example=["us-central1", "us-east4"],
        default=(),
    )
    zones: tuple[String, ...] = wire_field(
        "These zones, in any regions. Not together with `regions`.",
        example=["us-central1-a", "us-east4-b"],
        default=(),
    )
    machine_spec: AlternativeMachine | None = wire_field(
        "Another machine.", example={"machineType": "a2-highgpu-1g"}
    )
    roles: tuple[Annotated[TaskType | None, one_of(TaskType)], ...] = wire_field(
        "Task types that get the machine. Default: those with accelerators, or all if none has"
        " any.",
        example=["worker"],
        default=(),
    )
    spot: SpotSpec = wire_field("Use of Spot VMs.", example="all", factory=SpotSpec)
    reservation: OptionalString = wire_field(
        "Reservation that the VMs use; needs `zones`.", example="my-reservation"
    )
    env: Mapping[str, String] = wire_field(
        "Environment variables, besides the job's.", example={"BATCH": "16"}, factory=dict
    )
    after: Annotated[int | None, duration(1, example_s=1_800)] = wire_field(
        "The alternative is used when the search for capacity has lasted so long.", example="1800s"
    )


class DataSpec(WireModel):
    """Input of the job, which VMs in other regions read across regions."""

    uri: OptionalString = wire_field("Where the input is.", example="gs://my-data/set")
    gib: AtLeastOne = wire_field("GiB that all VMs together read at each start.", example=200)


class PlacementSpec(WireModel):
    """Exactly one of `anyOf` and `ordered`."""

    any_of: tuple[Alternative, ...] = wire_field(
        "Alternatives, the cheapest first.",
        example=[{"regions": ["us-central1", "us-east4"], "spot": "all"}],
        default=(),
    )
    ordered: tuple[Alternative, ...] = wire_field(
        "Alternatives, in this order.",
        example=[{"spot": "all"}, {"spot": "none", "after": "1800s"}],
        default=(),
    )
    data: DataSpec | None = wire_field(
        "Input that each start reads, perhaps from another region.",
        example={"uri": "gs://my-data/set", "gib": 200},
    )

    @property
    def lists(self) -> dict[str, tuple[Alternative, ...]]:
        """The lists that the job gives, even if empty, by canonical name."""
        lists: dict[str, tuple[Alternative, ...]] = {}
        if "any_of" in self.model_fields_set:
            lists["anyOf"] = self.any_of
        if "ordered" in self.model_fields_set:
            lists["ordered"] = self.ordered
        return lists
