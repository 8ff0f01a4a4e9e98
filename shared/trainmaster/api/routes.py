"""All methods of the API: address, required permission, handler.

Source of the addresses: both discovery documents, except for `explain`, which is Trainmaster's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trainmaster.api import jobs, projects
from trainmaster.api.custom_jobs import CUSTOM_JOBS
from trainmaster.api.errors import Json
from trainmaster.api.permissions import (
    CANCEL,
    CREATE,
    DELETE,
    GET,
    LIST,
    PIPELINE_CANCEL,
    PIPELINE_CREATE,
    PIPELINE_DELETE,
    PIPELINE_GET,
    PIPELINE_LIST,
    PROJECT,
    TUNING_CANCEL,
    TUNING_CREATE,
    TUNING_DELETE,
    TUNING_GET,
    TUNING_LIST,
)
from trainmaster.api.request import Call, Service
from trainmaster.api.training_pipelines import TRAINING_PIPELINES
from trainmaster.api.tuning_jobs import TUNING_JOBS

Handler = Callable[[Call, Service], Json]


@dataclass(frozen=True, slots=True)
class Route:
    """A method of the API."""

    method: str
    address: str
    """Path with variables in `{}`."""
    permission: str | None
    """None: any caller with a valid token."""
    handle: Handler
    creates_job: bool = False
    """Such requests have a quota of their own."""

    @property
    def changes_something(self) -> bool:
        """Whether the caller's token must have the full scope. Reading a policy or permissions changes nothing."""
        return self.method != "GET" and self.permission is not None

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """Return the values of the variables; None if the route does not match."""
        match = self._pattern.fullmatch(path) if method == self.method else None
        return match.groupdict() if match else None

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/:]+)", self.address))  # `re` caches compiled patterns


_PROJECT: Final = "/v1/projects/{project}"
_JOB: Final = f"{_PROJECT}/jobs/{{job}}"
_LOCATION: Final = f"{_PROJECT}/locations/{{location}}"
_CUSTOM_JOB: Final = f"{_LOCATION}/customJobs/{{job}}"
_TUNING_JOB: Final = f"{_LOCATION}/hyperparameterTuningJobs/{{job}}"
_PIPELINES: Final = f"{_LOCATION}/trainingPipelines"
_PIPELINE: Final = f"{_PIPELINES}/{{job}}"

ROUTES: Final = (
    Route("POST", f"{_PROJECT}/jobs", CREATE, jobs.create, creates_job=True),
    Route("GET", f"{_PROJECT}/jobs", LIST, jobs.list_jobs),
    Route("GET", _JOB, GET, jobs.get),
    Route("PATCH", _JOB, CREATE, jobs.patch),
    Route("GET", f"{_JOB}:explain", GET, jobs.explain),
    Route("POST", f"{_JOB}:cancel", CANCEL, jobs.cancel),
    Route("GET", f"{_JOB}:getIamPolicy", GET, projects.get_policy),
    Route("POST", f"{_JOB}:setIamPolicy", CREATE, projects.set_policy),
    Route("POST", f"{_JOB}:testIamPermissions", None, projects.test_permissions),
    Route("GET", f"{_PROJECT}:getConfig", PROJECT, projects.get_config),
    Route("GET", f"{_PROJECT}/locations", PROJECT, projects.list_locations),
    Route("GET", _LOCATION, PROJECT, projects.get_location),
    Route("POST", f"{_LOCATION}/customJobs", CREATE, CUSTOM_JOBS.create, creates_job=True),
    Route("GET", f"{_LOCATION}/customJobs", LIST, CUSTOM_JOBS.list_jobs),
    Route("GET", _CUSTOM_JOB, GET, CUSTOM_JOBS.get),
    Route("GET", f"{_CUSTOM_JOB}:explain", GET, CUSTOM_JOBS.explain),
    Route("POST", f"{_CUSTOM_JOB}:cancel", CANCEL, CUSTOM_JOBS.cancel),
    Route("DELETE", _CUSTOM_JOB, DELETE, CUSTOM_JOBS.delete),
    Route("POST", f"{_LOCATION}/hyperparameterTuningJobs", TUNING_CREATE, TUNING_JOBS.create, creates_job=True),
    Route("GET", f"{_LOCATION}/hyperparameterTuningJobs", TUNING_LIST, TUNING_JOBS.list_jobs),
    Route("GET", _TUNING_JOB, TUNING_GET, TUNING_JOBS.get),
    Route("GET", f"{_TUNING_JOB}:explain", TUNING_GET, TUNING_JOBS.explain),
    Route("POST", f"{_TUNING_JOB}:cancel", TUNING_CANCEL, TUNING_JOBS.cancel),
    Route("DELETE", _TUNING_JOB, TUNING_DELETE, TUNING_JOBS.delete),
    Route("POST", _PIPELINES, PIPELINE_CREATE, TRAINING_PIPELINES.create, creates_job=True),
    Route("GET", _PIPELINES, PIPELINE_LIST, TRAINING_PIPELINES.list_jobs),
    Route("GET", _PIPELINE, PIPELINE_GET, TRAINING_PIPELINES.get),
    Route("POST", f"{_PIPELINE}:cancel", PIPELINE_CANCEL, TRAINING_PIPELINES.cancel),
    Route("DELETE", _PIPELINE, PIPELINE_DELETE, TRAINING_PIPELINES.delete),
)


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """Return the route of a request and the values of its variables; None if there is none."""
    for route in ROUTES:
        params = route.match(method, path)
        if params is not None:
            return route, params
    return None
