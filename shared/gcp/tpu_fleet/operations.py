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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from google.api_core import exceptions
from google.cloud import tpu_v2
from google.longrunning import operations_pb2

CALL_TIMEOUT_S: Final = 30.0
ANSWER_S: Final = 300
PAGE_SIZE: Final = 500
"""One page is read: the operations that matter are minutes old."""
POLL_FIRST_S: Final = 0.1
POLL_MAX_S: Final = 2.0
"""Cloud TPU has no call that waits for an operation."""


@dataclass(frozen=True, slots=True)
class Making:
    """The create operation of one node; `made_at` is when it was asked for."""

    node: str
    operation: operations_pb2.Operation
    made_at: datetime


class Operations:
    def __init__(self, client: tpu_v2.TpuClient) -> None:
        self._client = client

    def makings(self, parent: str) -> dict[str, Making]:
        """By full node name, the youngest create of each that still says something."""
        now = datetime.now(UTC)
        found: dict[str, Making] = {}
        for making in sorted(self._creates(parent), key=lambda making: making.made_at):
            found[making.node] = making
        return {
            name: making
            for name, making in found.items()
            if not making.operation.done or now - making.made_at < timedelta(seconds=ANSWER_S)
        }

    def _creates(self, parent: str) -> Iterator[Making]:
        listed = self._client.list_operations(
            operations_pb2.ListOperationsRequest(name=parent, page_size=PAGE_SIZE), timeout=CALL_TIMEOUT_S
        )
        for operation in listed.operations:
            said = tpu_v2.OperationMetadata()
            if operation.metadata.Unpack(tpu_v2.OperationMetadata.pb(said)) and said.verb == "create":
                yield Making(said.target, operation, datetime.fromtimestamp(said.create_time.timestamp(), UTC))

    def followed(self, operation: operations_pb2.Operation, deadline: float) -> operations_pb2.Operation:
        """As it is when it is done, or when the monotonic clock reads `deadline`."""
        pause_s = POLL_FIRST_S
        while not operation.done and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, POLL_MAX_S)
            operation = self._client.get_operation(
                operations_pb2.GetOperationRequest(name=operation.name), timeout=CALL_TIMEOUT_S
            )
        return operation

    def forget(self, operation: operations_pb2.Operation) -> None:
        """Its answer was given."""
        with suppress(exceptions.NotFound, exceptions.MethodNotImplemented, exceptions.BadRequest):
            self._client.delete_operation(
                operations_pb2.DeleteOperationRequest(name=operation.name), timeout=CALL_TIMEOUT_S
            )
