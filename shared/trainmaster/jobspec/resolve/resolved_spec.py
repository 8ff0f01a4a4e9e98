"""The meaning of a document in either format, before its parts become one plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.origin import BuiltInAlgorithm, Dialect
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Program
from trainmaster.core.model.tuning import Tuning
from trainmaster.jobspec.catalog.runtimes import Runtime
from trainmaster.jobspec.formats.placement import SpotUse
from trainmaster.jobspec.machines.role_request import RoleRequest
from trainmaster.jobspec.problems import FieldPath

MAX_RUNNING_S_DEFAULT: Final = 604_800
"""Seven days. Source: both APIs' schemas, `scheduling.maxRunningTime` and `scheduling.timeout`."""


@dataclass(frozen=True, slots=True)
class ResolvedSpec:
    """The meaning of a document in either format."""

    dialect: Dialect
    """The format."""
    roles: tuple[RoleRequest, ...]
    programs: dict[TaskType, Program]
    """The program of each role."""
    runtime: Runtime
    is_runtime_requested: bool
    """Whether the document names a runtime, by a version or an image."""
    region: str | None
    region_path: FieldPath
    """Path of the field that names the region."""
    max_running_s: int
    """Time limit from RUNNING on, in seconds."""
    max_wait_s: int | None
    """Time limit until RUNNING, in seconds; None: no limit."""
    service_account: str | None
    network: str | None
    kms_key: str | None
    priority: int = 0
    """Position in the admission queue: larger first."""
    spot: SpotUse | None = None
    """Use of Spot VMs by the format's own field; `trainmaster.spot` overrides it."""
    queue: str | None = None
    """Queue that the format's own field names, such as `FLEX_START`; None: it names none."""
    queue_path: FieldPath = ()
    """Path of that field; empty: no field of the format names a queue."""
    restart_job_on_worker_restart: bool = False
    disable_retries: bool = False
    output_directory: str | None = None
    """baseOutputDirectory of a CustomJob; None: none is given."""
    persistent_resource: str | None = None
    """persistentResourceId of a CustomJob; None: none is given."""
    algorithm: BuiltInAlgorithm | None = None
    """The built-in algorithm that the job runs."""
    tuning: Tuning | None = None
    """The tuning of a tuning job; the rest of the spec is then that of each trial."""
