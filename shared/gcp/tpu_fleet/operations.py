"""What became of the nodes that were asked for.

A node that cannot be made is simply not there, perhaps minutes after the call: only its operation knows why. So a node
that is missing is looked for among the operations before it is asked for again:

    no create of it known ──► ask for it        one is running ──► wait for that one
    the youngest one worked ──► ask for it      the youngest one failed ──► that is the answer, given once

An answer that was given is deleted, so that the next try is a try. Where Google keeps it all the same, it stands for
`ANSWER_S`: the tries are then that far apart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.api_core import exceptions

from shared.gcp.tpu_fleet.refusals import Problem, problem_in
from shared.gcp.tpu_fleet.rest import Rest

ANSWER_S: Final = 300
PAGE_SIZE: Final = 500
"""One page is read: the operations that matter are minutes old."""
POLL_FIRST_S: Final = 0.1
POLL_MAX_S: Final = 2.0
"""Cloud TPU has no call that waits for an operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`target` is the full name of what it is about, `verb` what is done to it (`create`), `begun_at` since when."""

    name: str
    target: str = ""
    verb: str = ""
    begun_at: datetime | None = None
    done: bool = False
    error: Problem | None = None

    @staticmethod
    def parse(said: Mapping[str, Any]) -> Operation:
        metadata = said.get("metadata") or {}
        begun = metadata.get("createTime")
        return Operation(
            name=said["name"],
            target=metadata.get("target", ""),
            verb=metadata.get("verb", ""),
            begun_at=datetime.fromisoformat(begun) if begun else None,
            done=bool(said.get("done")),
            error=problem_in(said["error"]) if "error" in said else None,
        )


class Operations:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def makings(self, parent: str) -> dict[str, Operation]:
        """By full name of what is made, the youngest create of each that still says something."""
        listed = self._rest.call("GET", f"/v2/{parent}/operations", pageSize=str(PAGE_SIZE)).get("operations", [])
        creates = [(each.begun_at, each) for each in map(Operation.parse, listed) if each.verb == "create"]
        since = datetime.now(UTC) - timedelta(seconds=ANSWER_S)
        found: dict[str, Operation] = {}
        for begun_at, operation in sorted(((at, it) for at, it in creates if at), key=lambda pair: pair[0]):
            found.pop(operation.target, None)
            if not operation.done or begun_at > since:
                found[operation.target] = operation
        return found

    def followed(self, name: str, deadline: float) -> Operation:
        """As it is when it is done, or when the monotonic clock reads `deadline`."""
        pause_s = POLL_FIRST_S
        while True:
            operation = Operation.parse(self._rest.call("GET", f"/v2/{name}"))
            left_s = deadline - time.monotonic()
            if operation.done or left_s <= 0:
                return operation
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, POLL_MAX_S)

    def forget(self, operation: Operation) -> None:
        """Its answer was given."""
        with suppress(exceptions.NotFound, exceptions.MethodNotImplemented, exceptions.BadRequest):
            self._rest.call("DELETE", f"/v2/{operation.name}")
