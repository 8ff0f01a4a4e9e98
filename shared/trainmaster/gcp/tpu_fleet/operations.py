"""Long-running operations of Cloud TPU: the only place where it says why a node was not created.

A node that cannot be created simply does not exist, perhaps minutes after the call. So a missing
node is looked up among the operations before it is requested again:

    no create operation             ──► request the node
    a create operation is running   ──► wait for it
    the last one succeeded          ──► request the node
    the last one failed             ──► that is the outcome, reported once

An operation whose outcome was reported is deleted, so that the next request starts afresh. If
Google keeps it, its outcome is valid for `OUTCOME_VALID_S`, and requests are that far apart.

google-cloud-tpu is not used here: an operation contains the resource it created. If that has a
field that the installed client does not know, the client fails to read the whole page of
operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.api_core import exceptions

from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.rest_api import RestApi
from trainmaster.gcp.tpu_fleet.errors import problem_of, problem_of_operation

OUTCOME_VALID_S: Final = 300
"""Time from the start of an operation within which its outcome counts."""
PAGE_SIZE: Final = 500
"""Only one page is read: the operations that matter are minutes old."""
POLL_FIRST_S: Final = 0.1
"""First pause between two polls of an operation. Each further one is twice as long."""
POLL_MAX_S: Final = 2.0
"""Longest pause between two polls of an operation: Cloud TPU has no call that waits for one."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A long-running operation."""

    name: str
    target: str = ""
    """Full name of the resource that it changes."""
    verb: str = ""
    """Its action, such as `create`."""
    started_at: datetime | None = None
    """When it began; None: the API does not report it."""
    done: bool = False
    error: Problem | None = None
    """Why it failed; None: it has not failed."""

    @staticmethod
    def parse(body: Mapping[str, Any]) -> Operation:
        """Return the operation that this JSON of the API describes."""
        metadata = body.get("metadata") or {}
        created_at = metadata.get("createTime")
        return Operation(
            name=body["name"],
            target=metadata.get("target", ""),
            verb=metadata.get("verb", ""),
            started_at=datetime.fromisoformat(created_at) if created_at else None,
            done=bool(body.get("done")),
            error=problem_of_operation(body["error"]) if "error" in body else None,
        )


class Operations:
    """The operations of Cloud TPU. Methods raise GoogleAPICallError."""

    def __init__(self, api: RestApi) -> None:
        self._api = api

    def creations(self, parent: str) -> dict[str, Operation]:
        """Return the last create operation of each resource, by the resource's full name, if its
        outcome is valid.
        """
        page = self._api.get(f"/v2/{parent}/operations", pageSize=str(PAGE_SIZE))
        operations = map(Operation.parse, page.get("operations", []))
        creations = [
            (operation.started_at, operation)
            for operation in operations
            if operation.verb == "create" and operation.started_at is not None
        ]
        creations.sort(key=lambda creation: creation[0])
        valid_since = datetime.now(UTC) - timedelta(seconds=OUTCOME_VALID_S)
        last: dict[str, Operation] = {}
        for started_at, operation in creations:
            if not operation.done or started_at > valid_since:
                last[operation.target] = operation
            else:
                last.pop(operation.target, None)
        return last

    def follow(self, name: str, deadline: float) -> Operation:
        """Return the operation when it is done, or as it is at `deadline` (monotonic clock)."""
        pause_s = POLL_FIRST_S
        while True:
            operation = Operation.parse(self._api.get(f"/v2/{name}"))
            left_s = deadline - time.monotonic()
            if operation.done or left_s <= 0:
                return operation
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, POLL_MAX_S)

    def finish_deletion(self, start: Callable[[], str], wait_s: float) -> bool:
        """Delete a resource, and wait for some seconds until it is gone. True: it is gone.

        `start`: sends the deletion and returns the name of its operation.
        """
        try:
            name = start()
        except exceptions.NotFound:
            return True
        except exceptions.GoogleAPICallError as error:
            if problem_of(error).code == "FAILED_PRECONDITION":
                return False  # another call is creating or changing the resource
            raise
        finished = self.follow(name, time.monotonic() + wait_s)
        return finished.done and finished.error is None

    def delete(self, operation: Operation) -> None:
        """Delete an operation whose outcome was reported.

        It may not exist, or Google may keep it.
        """
        with suppress(exceptions.NotFound, exceptions.MethodNotImplemented, exceptions.BadRequest):
            self._api.call("DELETE", f"/v2/{operation.name}")
