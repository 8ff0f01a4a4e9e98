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
        "workers", "Which replicas run on Spot VMs."
    )
    on_demand_after: AtLeastOne = wire_field(
        3, "A replica that has lost this many Spot VMs gets one on demand."
    )


class AlternativeMachine(WireModel):
    machine_type: OptionalString = wire_field(
        "a2-highgpu-1g", "Machine type of each replica. Required."
    )
    accelerator_type: AcceleratorType = wire_field(
        "NVIDIA_TESLA_T4", "GPU type, for machines without built-in GPUs."
    )
    accelerator_count: OptionalInt = wire_field(1, "GPUs per VM.")
    tpu_topology: OptionalString = wire_field("2x4", "Shape of the TPU slice.")


class Alternative(WireModel):
    """One way to run the job. What it leaves out is as in the job."""

    regions: tuple[String, ...] = wire_field(
        ["us-central1", "us-east4"],
        "All zones of these regions; `any`: all regions in which Trainmaster is installed.",
        default=(),
    )
    zones: tuple[String, ...] = wire_field(
        ["us-central1-a", "us-east4-b"],
        "These zones, in any regions. Not together with `regions`.",
        default=(),
    )
    machine_spec: AlternativeMachine | None = wire_field(
        {"machineType": "a2-highgpu-1g"}, "Another machine."
    )
    roles: tuple[Annotated[TaskType | None, one_of(TaskType)], ...] = wire_field(
        ["worker"],
        "Task types that get the machine. Default: those with accelerators, or all if none has"
        " any.",
        default=(),
    )
    spot: SpotSpec = wire_field("all", "Use of Spot VMs.", factory=SpotSpec)
    reservation: OptionalString = wire_field(
        "my-reservation", "Reservation that the VMs use; needs `zones`."
    )
    env: Mapping[str, String] = wire_field(
        {"BATCH": "16"}, "Environment variables, besides the job's.", factory=dict
    )
    after: Annotated[int | None, duration(1, example_s=1_800)] = wire_field(
        "1800s", "The alternative is used when the search for capacity has lasted so long."
    )


class DataSpec(WireModel):
    """Input of the job, which VMs in other regions read across regions."""

    uri: OptionalString = wire_field("gs://my-data/set", "Where the input is.")
    gib: AtLeastOne = wire_field(200, "GiB that all VMs together read at each start.")


class PlacementSpec(WireModel):
    """Exactly one of `anyOf` and `ordered`."""

    any_of: tuple[Alternative, ...] = wire_field(
        [{"regions": ["us-central1", "us-east4"], "spot": "all"}],
        "Alternatives, the cheapest first.",
        default=(),
    )
    ordered: tuple[Alternative, ...] = wire_field(
        [{"spot": "all"}, {"spot": "none", "after": "1800s"}],
        "Alternatives, in this order.",
        default=(),
    )
    data: DataSpec | None = wire_field(
        {"uri": "gs://my-data/set", "gib": 200},
        "Input that each start reads, perhaps from another region.",
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
