"""What a document of either kind means, before it is one plan."""

from __future__ import annotations

from dataclasses import dataclass

from shared.core.model.job import Dialect, Program, Substitution
from shared.core.model.replica_id import TaskType
from shared.core.model.tuning import Tuning
from shared.jobspec.catalog.runtimes import Runtime
from shared.jobspec.machines.role_request import Role
from shared.jobspec.reading.problems import Loc


@dataclass(frozen=True, slots=True)
class Meaning:
    """`is_runtime_named`: the job says which runtime it wants. `spot`, `flex_start_at` (where that is said): the APIs
    own ways to ask."""

    dialect: Dialect
    roles: tuple[Role, ...]
    programs: dict[TaskType, Program]
    runtime: Runtime
    is_runtime_named: bool
    region: str | None
    region_at: Loc
    max_running_s: int
    max_wait_s: int | None
    service_account: str | None
    network: str | None
    kms_key: str | None
    substitutions: list[Substitution]
    priority: int = 0
    spot: str | None = None
    flex_start_at: Loc | None = None
    restart_job_on_worker_restart: bool = False
    disable_retries: bool = False
    output_directory: str | None = None
    tuning: Tuning | None = None
