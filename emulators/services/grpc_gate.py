"""Pub/Sub or Firestore with IAM for one function's account: a gRPC proxy that refuses what infra/ does not grant.

`emulators.realism.call_access` has the rules. Requests and responses are forwarded as bytes. The address takes the
place of a token, because Google's clients send none to an emulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from emulators.realism.call_access import Access, refusal
from emulators.stack.processes import LOOPBACK

THREADS: Final = 16
STREAMED_RESPONSES: Final = ("BatchGetDocuments", "RunQuery", "RunAggregationQuery")


class Gate(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Forwards the calls of one account to the emulator at `upstream` and counts those that it refuses."""

    def __init__(self, account: str, grants: frozenset[Access], upstream: str) -> None:
        self.refusals: Counter[str] = Counter()
        """Message of a refusal → number of calls."""
        self._account, self._grants = account, grants
        self._channel = grpc.insecure_channel(upstream)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = handler_call_details.method
        if method.endswith(STREAMED_RESPONSES):
            return grpc.unary_stream_rpc_method_handler(lambda request, context: self._stream(method, request, context))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._call(method, request, context))

    def _call(self, method: str, request: bytes, context: Any) -> Any:
        self._check(method, request, context)
        try:
            return self._channel.unary_unary(method)(request, context.time_remaining(), _metadata(context))
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata() or ())
            context.abort(error.code(), error.details())

    def _stream(self, method: str, request: bytes, context: Any) -> Iterator[bytes]:
        self._check(method, request, context)
        try:
            yield from self._channel.unary_stream(method)(request, context.time_remaining(), _metadata(context))
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata() or ())
            context.abort(error.code(), error.details())

    def _check(self, method: str, request: bytes, context: Any) -> None:
        if message := refusal(self._account, self._grants, method, request):
            self.refusals[message] += 1
            context.abort(grpc.StatusCode.PERMISSION_DENIED, message)


def _metadata(context: Any) -> list[tuple[str, str | bytes]]:
    """Return the client's own metadata, such as the header that names a database."""
    return [(key, value) for key, value in context.invocation_metadata() if key != "user-agent"]


def listen(gate: Gate, port: int = 0) -> tuple[grpc.Server, str]:
    """Start a server on a loopback port (0: a free one), and return it with its address."""
    server = grpc.server(ThreadPoolExecutor(THREADS), handlers=[gate])
    bound = server.add_insecure_port(f"{LOOPBACK}:{port}")
    server.start()
    return server, f"{LOOPBACK}:{bound}"
