"""Every method: its address, the permission it asks for, and who answers. Source of the addresses: both APIs' discovery
documents."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.api import custom_jobs, jobs, projects, tuning_jobs
from shared.api.errors import Json
from shared.api.permissions import (
    CANCEL,
    CREATE,
    DELETE,
    GET,
    LIST,
    PROJECT,
    TUNING_CANCEL,
    TUNING_CREATE,
    TUNING_DELETE,
    TUNING_GET,
    TUNING_LIST,
)
from shared.api.request import Call, Service

Handler = Callable[[Call, Service], Json]


@dataclass(frozen=True, slots=True)
class Route:
    """`address` names what stands in its `{}`. `permission` None: any caller with a token that is good. `creates`:
    makes a job, and such requests have a quota of their own."""

    method: str
    address: str
    permission: str | None
    handle: Handler
    creates: bool = False

    def match(self, method: str, path: str) -> dict[str, str] | None:
        found = self._pattern.fullmatch(path) if method == self.method else None
        return found.groupdict() if found else None

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/:]+)", self.address))  # compiled once: re remembers


_PROJECT: Final = "/v1/projects/{project}"
_JOB: Final = f"{_PROJECT}/jobs/{{job}}"
_LOCATION: Final = f"{_PROJECT}/locations/{{location}}"
_CUSTOM_JOB: Final = f"{_LOCATION}/customJobs/{{job}}"
_TUNING_JOB: Final = f"{_LOCATION}/hyperparameterTuningJobs/{{job}}"

ROUTES: Final = (
    Route("POST", f"{_PROJECT}/jobs", CREATE, jobs.create, creates=True),
    Route("GET", f"{_PROJECT}/jobs", LIST, jobs.list_),
    Route("GET", _JOB, GET, jobs.get),
    Route("PATCH", _JOB, CREATE, jobs.patch),
    Route("POST", f"{_JOB}:cancel", CANCEL, jobs.cancel),
    Route("GET", f"{_JOB}:getIamPolicy", GET, projects.get_policy),
    Route("POST", f"{_JOB}:setIamPolicy", CREATE, projects.set_policy),
    Route("POST", f"{_JOB}:testIamPermissions", None, projects.test_permissions),
    Route("GET", f"{_PROJECT}:getConfig", PROJECT, projects.get_config),
    Route("GET", f"{_PROJECT}/locations", PROJECT, projects.list_locations),
    Route("GET", _LOCATION, PROJECT, projects.get_location),
    Route("POST", f"{_LOCATION}/customJobs", CREATE, custom_jobs.create, creates=True),
    Route("GET", f"{_LOCATION}/customJobs", LIST, custom_jobs.list_),
    Route("GET", _CUSTOM_JOB, GET, custom_jobs.get),
    Route("POST", f"{_CUSTOM_JOB}:cancel", CANCEL, custom_jobs.cancel),
    Route("DELETE", _CUSTOM_JOB, DELETE, custom_jobs.delete),
    Route("POST", f"{_LOCATION}/hyperparameterTuningJobs", TUNING_CREATE, tuning_jobs.create, creates=True),
    Route("GET", f"{_LOCATION}/hyperparameterTuningJobs", TUNING_LIST, tuning_jobs.list_),
    Route("GET", _TUNING_JOB, TUNING_GET, tuning_jobs.get),
    Route("POST", f"{_TUNING_JOB}:cancel", TUNING_CANCEL, tuning_jobs.cancel),
    Route("DELETE", _TUNING_JOB, TUNING_DELETE, tuning_jobs.delete),
)


def find(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    for route in ROUTES:
        params = route.match(method, path)
        if params is not None:
            return route, params
    return None
