"""Long-running operations (google.longrunning): every mutating call returns one.

Cloud TPU has no call that waits for an operation: clients poll it. It stays until it is deleted.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.tpu.tpu_errors import not_found

OPERATIONS_MAX: Final = 5_000
"""The oldest operations beyond this number are deleted."""
_TYPE: Final = "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata"


def timestamp(moment: datetime | None = None) -> str:
    return (moment or datetime.now(UTC)).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(slots=True, eq=False)
class Operation:
    """An operation. `error` or `response` is set when it ends."""

    name: str
    target: str
    """Full resource name of the node or the queued resource."""
    verb: str
    created_at: str = field(default_factory=timestamp)
    ended_at: str | None = None
    error: StatusError | None = None
    response: Json | None = None

    def as_json(self) -> Json:
        metadata: Json = {
            "@type": _TYPE,
            "createTime": self.created_at,
            "target": self.target,
            "verb": self.verb,
            "cancelRequested": False,
            "apiVersion": "v2",
        }
        shown: Json = {"name": self.name, "metadata": metadata, "done": self.ended_at is not None}
        if self.ended_at is not None:
            metadata["endTime"] = self.ended_at
            if self.error:
                shown["error"] = self.error.as_status()
            else:
                shown["response"] = self.response or {}
        return shown


class OperationStore:
    """The latest operations, at most `OPERATIONS_MAX`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}

    def begin(self, parent: str, target: str, verb: str) -> Operation:
        parts = (
            "operation",
            str(int(time.time() * 1000)),
            secrets.token_hex(7)[:13],
            secrets.token_hex(4),
            secrets.token_hex(4),
        )
        operation = Operation(f"{parent}/operations/{'-'.join(parts)}", target, verb)
        with self._lock:
            self._operations[operation.name] = operation
            while len(self._operations) > OPERATIONS_MAX:
                del self._operations[next(iter(self._operations))]
        return operation

    def finish(self, operation: Operation, result: Json | StatusError) -> None:
        """Finish the operation. `result`: the response with its `@type`, or the error."""
        with self._lock:
            if isinstance(result, StatusError):
                operation.error = result
            else:
                operation.response = result
            operation.ended_at = timestamp()

    def get(self, name: str) -> Json:
        with self._lock:
            return self._get(name).as_json()

    def list_of(self, parent: str) -> list[Json]:
        with self._lock:
            return [
                operation.as_json()
                for name, operation in self._operations.items()
                if name.startswith(f"{parent}/")
            ]

    def delete(self, name: str) -> None:
        """Delete the record of an operation. This does not cancel the operation."""
        with self._lock:
            del self._operations[self._get(name).name]

    def _get(self, name: str) -> Operation:
        if name not in self._operations:
            raise not_found(name)
        return self._operations[name]
