"""Long-running operations: every mutating call returns one, and its caller waits for it.

    PENDING ──start──► RUNNING ──finish──► DONE (progress 100, with or without `error`)

A request id makes a call repeatable: a call with the same id returns the same operation, whatever
its status. Events that the user did not request (preemption, host error) are operations as well.
Their user is `system`, their names begin with `systemevent-`, and they are DONE when the event is
over.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from trainmaster_emulators.machines.catalog import Links
from trainmaster_emulators.machines.compute_errors import Json, OperationError, invalid, not_found

OPERATIONS_MAX: Final = 20_000
"""The oldest operations beyond this number are deleted. Google keeps operations for 14 days."""
WAIT_MAX_S: Final = 120.0
"""Source: operations.wait returns as early as possible, at the latest after 2 minutes."""
USER: Final = "user@example.com"
SYSTEM: Final = "system"


def timestamp(moment: datetime | None = None) -> str:
    """Return a time (None: now) in Compute's format: RFC 3339 with milliseconds and offset."""
    return (moment or datetime.now(UTC)).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Operation:
    """An operation of a zone or of a region. The store changes it under its lock."""

    id: int
    name: str
    type: str
    scope: tuple[str, str]
    """`zones` or `regions`, and the location."""
    target_link: str
    target_id: str
    user: str
    request_id: str | None
    group_id: str | None
    inserted_at: str = field(default_factory=timestamp)
    started_at: str | None = None
    ended_at: str | None = None
    status: str = "PENDING"
    status_message: str | None = None
    errors: Sequence[OperationError] = ()

    @property
    def location(self) -> str:
        return self.scope[1]

    def as_json(self, links: Links) -> Json:
        shown: Json = {
            "kind": "compute#operation",
            "id": str(self.id),
            "name": self.name,
            "clientOperationId": self.request_id,
            "operationGroupId": self.group_id,
            "operationType": self.type,
            "targetLink": self.target_link,
            "targetId": self.target_id,
            self.scope[0].removesuffix("s"): links(*self.scope),
            "status": self.status,
            "statusMessage": self.status_message,
            "user": self.user,
            "progress": 100 if self.status == "DONE" else 0,
            "insertTime": self.inserted_at,
            "startTime": self.started_at,
            "endTime": self.ended_at,
            "selfLink": links(*self.scope, "operations", self.name),
        }
        if self.errors:
            status = self.errors[0].http_status
            shown["error"] = {"errors": [error.as_json() for error in self.errors]}
            shown |= {
                "httpErrorStatusCode": status.value,
                "httpErrorMessage": status.phrase.upper(),
            }
        return {key: value for key, value in shown.items() if value is not None}


class OperationStore:
    """The operations of one project. Thread-safe."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._changed = threading.Condition()
        self._operations: dict[str, Operation] = {}
        self._by_request: dict[str, Operation] = {}
        self._ids = itertools.count(time.time_ns() // 1000)

    def find_by_request(self, request_id: str | None) -> Operation | None:
        """Return the operation of an earlier call with this request id, or None.

        Raises ApiError for an invalid id.
        """
        if request_id is None:
            return None
        try:
            number = uuid.UUID(request_id).int
        except ValueError:
            number = 0
        if number == 0:
            raise invalid(
                "requestId", request_id, "The request ID must be a valid UUID other than zero."
            )
        with self._changed:
            return self._by_request.get(request_id)

    def begin(
        self,
        type_: str,
        scope: tuple[str, str],
        target_link: str,
        target_id: int,
        *,
        user: str = USER,
        request_id: str | None = None,
        group_id: str | None = None,
    ) -> Operation:
        with self._changed:
            number = next(self._ids)
            kind = "systemevent" if user == SYSTEM else "operation"
            parts = (
                kind,
                str(number // 1000),
                uuid.uuid4().hex[:13],
                uuid.uuid4().hex[:8],
                f"{number % (1 << 32):08x}",
            )
            operation = Operation(
                id=number,
                name="-".join(parts),
                type=type_,
                scope=scope,
                target_link=target_link,
                target_id=str(target_id),
                user=user,
                request_id=request_id,
                group_id=group_id,
            )
            self._operations[operation.name] = operation
            if request_id is not None:
                self._by_request[request_id] = operation
            while len(self._operations) > OPERATIONS_MAX:
                oldest = self._operations.pop(next(iter(self._operations)))
                if oldest.request_id is not None:
                    self._by_request.pop(oldest.request_id, None)
            return operation

    def start(self, operation: Operation, status_message: str | None = None) -> None:
        with self._changed:
            operation.status = "RUNNING"
            operation.started_at = timestamp()
            operation.status_message = status_message

    def finish(self, operation: Operation, errors: Sequence[OperationError] = ()) -> None:
        with self._changed:
            operation.started_at = operation.started_at or timestamp()
            operation.errors = tuple(errors)
            operation.status = "DONE"
            operation.ended_at = timestamp()
            self._changed.notify_all()

    def get(self, location: str | None, name_or_id: str) -> Operation:
        """Return an operation.

        `location`: its zone or region; None for an operation of the project.
        """
        with self._changed:
            operation = self._operations.get(name_or_id)
            if operation is None and name_or_id.isdigit():
                by_id = (
                    operation
                    for operation in self._operations.values()
                    if str(operation.id) == name_or_id
                )
                operation = next(by_id, None)
            if operation is None or operation.location != location:
                raise not_found(self._links.path("operations", name_or_id))
            return operation

    def wait(self, location: str | None, name_or_id: str) -> Operation:
        """Block until the operation is DONE, for two minutes at most."""
        operation = self.get(location, name_or_id)
        with self._changed:
            self._changed.wait_for(lambda: operation.status == "DONE", WAIT_MAX_S)
        return operation

    def list_all(self) -> list[Operation]:
        with self._changed:
            return list(self._operations.values())

    def show(self, operation: Operation) -> Json:
        with self._changed:
            return operation.as_json(self._links)
