"""HTTP: the calls of Cloud Scheduler's API, page tokens, and errors in Google's format.

/v1/projects/P/locations[/L]                 regions
/v1/projects/P/locations/L/jobs[/JOB]        create, get, list, update, delete
/v1/projects/P/locations/L/jobs/JOB:VERB     pause, resume, run
/emulator/v1/certs                           keys of identity tokens
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Final

from werkzeug.wrappers import Request

from trainmaster_emulators.rest import pages
from trainmaster_emulators.rest.api_errors import Json, StatusError, invalid
from trainmaster_emulators.rest.server import Answer, RestServer, Route, json_body
from trainmaster_emulators.scheduler import execution, resources
from trainmaster_emulators.scheduler.clock import Clock, utc_now
from trainmaster_emulators.scheduler.dispatch import Dispatcher
from trainmaster_emulators.scheduler.execution import ScheduledJob
from trainmaster_emulators.scheduler.job_store import JobStore

PAGE_MAX: Final = 500  # Source: ListJobsRequest.page_size
VERBS: Final = ("pause", "resume", "run")
_LOCATIONS: Final = "/v1/projects/<project>/locations"
_JOBS: Final = f"{_LOCATIONS}/<location>/jobs"


class SchedulerServer(RestServer):
    """The WSGI application."""

    def __init__(
        self,
        project: str,
        store: JobStore,
        clock: Clock,
        dispatcher: Dispatcher,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._project = project
        self._store = store
        self._clock = clock
        self._now = now
        calls: tuple[Route, ...] = (
            ("GET", _LOCATIONS, self._list_locations),
            ("GET", f"{_LOCATIONS}/<location>", self._get_location),
            ("POST", _JOBS, self._create),
            ("GET", _JOBS, self._list),
            ("GET", f"{_JOBS}/<job>", self._get),
            ("PATCH", f"{_JOBS}/<job>", self._update),
            ("DELETE", f"{_JOBS}/<job>", self._delete),
            ("POST", f"{_JOBS}/<job>:<any({','.join(VERBS)}):verb>", self._act),
        )
        super().__init__(
            ("GET", "/emulator/v1/certs", lambda _: dispatcher.certificates()),
            *(
                (method, path, partial(self._in_project, endpoint))
                for method, path, endpoint in calls
            ),
        )

    def _in_project(
        self, endpoint: Callable[..., Answer], request: Request, project: str, **variables: str
    ) -> Answer:
        location = variables.get("location")
        if project != self._project:
            message = f"This emulator serves the project {self._project} only."
            raise StatusError("PERMISSION_DENIED", message)
        if location is not None and location not in _regions():
            raise StatusError("NOT_FOUND", f"Location '{location}' is not a valid location.")
        return endpoint(request, **variables)

    def _parent(self, location: str) -> str:
        return f"projects/{self._project}/locations/{location}"

    def _list_locations(self, request: Request) -> Json:
        return {"locations": [self._get_location(request, region) for region in sorted(_regions())]}

    def _get_location(self, _: Request, location: str) -> Json:
        return {"name": self._parent(location), "locationId": location}

    def _create(self, request: Request, location: str) -> Json:
        job = resources.new_job(
            json_body(request), self._parent(location), secrets.token_hex(8), self._now()
        )
        scheduled = execution.plan_next(job, version=1, now=self._now())
        self._store.add(scheduled)
        return scheduled.job.as_json()

    def _get(self, _: Request, location: str, job: str) -> Json:
        return self._store.get(self._name(location, job)).job.as_json()

    def _list(self, request: Request, location: str) -> Json:
        size_text = request.args.get("pageSize", "")
        wrong_size = f"page_size must be a number between 0 and {PAGE_MAX}, not {size_text!r}."
        size = pages.page_size(size_text, PAGE_MAX, invalid(wrong_size))
        wrong_token = "page_token does not belong to this list."  # noqa: S105 - an error
        after = pages.decode_token(request.args.get("pageToken", ""), invalid(wrong_token))
        found = self._store.page(self._parent(location), after, size + 1)
        shown = found[:size]
        page: Json = {}
        if shown:
            page["jobs"] = [scheduled.job.as_json() for scheduled in shown]
        if len(found) > size:
            page["nextPageToken"] = pages.encode_token(shown[-1].job.name)
        return page

    def _update(self, request: Request, location: str, job: str) -> Json:
        body = json_body(request)
        mask = request.args.get("updateMask", "")

        def change(current: ScheduledJob) -> ScheduledJob:
            changed = resources.changed_job(current.job, body, mask, self._now())
            return execution.plan_next(changed, current.version + 1, self._now())

        return self._store.change(self._name(location, job), change).job.as_json()

    def _delete(self, _: Request, location: str, job: str) -> Json:
        self._store.delete(self._name(location, job))
        return {}

    def _act(self, _: Request, location: str, job: str, verb: str) -> Json:
        name = self._name(location, job)
        if verb == "pause":
            return self._store.change(name, execution.pause).job.as_json()
        if verb == "resume":
            now = self._now()
            resumed = self._store.change(name, lambda current: execution.resume(current, now))
            return resumed.job.as_json()
        scheduled = self._store.get(name)
        self._clock.force(scheduled)
        return scheduled.job.model_copy(update={"last_attempt_time": self._now()}).as_json()

    def _name(self, location: str, job: str) -> str:
        return f"{self._parent(location)}/jobs/{job}"


def _regions() -> Collection[str]:
    # A late import, because it imports all checks of job files.
    from trainmaster.jobspec.catalog.regions import REGION_ZONES

    return REGION_ZONES
