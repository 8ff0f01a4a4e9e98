"""IAM for Pub/Sub and Firestore: one address per service account, which refuses calls that infra/
does not permit.

    function submit ──► its address ──► Google's emulators, which have no IAM

`python -m trainmaster_emulators.services.grpc_gate --firestore HOST:PORT --pubsub HOST:PORT --infra
DIR --account submit=PORT …` serves until it is ended, and prints a line for each call that it
refuses. `realism.call_access` has the rules. Requests and responses are forwarded as bytes. The
address identifies the caller, because Google's clients send no token to an emulator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
from google.pubsub_v1.types import PublishRequest

from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.realism.call_access import (
    FIRESTORE,
    PUBLISH_METHOD,
    PUBSUB,
    REFUSED,
    TABLE_FILE,
    Access,
    granted_access,
    refusal,
)
from trainmaster_emulators.rest.command_line import EmulatorParser, split_pairs
from trainmaster_local.memory.bus import message_problem

NAME: Final = "grpc-gate"
THREADS: Final = 16
STREAMED_RESPONSES: Final = ("BatchGetDocuments", "RunQuery", "RunAggregationQuery")
NO_DEADLINE_S: Final = 86_400.0
OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
"""Google's clients have no limits of their own either."""


class Gate(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Forwards the calls of one account and refuses those that it may not make.

    `upstreams`: beginning of a method's name, such as FIRESTORE → `host:port` of the emulator.
    """

    def __init__(
        self, account: str, grants: frozenset[Access], upstreams: Mapping[str, str]
    ) -> None:
        self._account = account
        self._grants = grants
        self._channels = {
            prefix: grpc.insecure_channel(address, options=OPTIONS)
            for prefix, address in upstreams.items()
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = handler_call_details.method
        if method.endswith(STREAMED_RESPONSES):
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._stream(method, request, context)
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._call(method, request, context)
        )

    def _call(self, method: str, request: bytes, context: Any) -> Any:
        self._check(method, request, context)
        try:
            return self._channel(method).unary_unary(method)(
                request, _deadline_s(context), _metadata(context)
            )
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata() or ())
            context.abort(error.code(), error.details())

    def _stream(self, method: str, request: bytes, context: Any) -> Iterator[bytes]:
        self._check(method, request, context)
        try:
            yield from self._channel(method).unary_stream(method)(
                request, _deadline_s(context), _metadata(context)
            )
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata() or ())
            context.abort(error.code(), error.details())

    def _check(self, method: str, request: bytes, context: Any) -> None:
        published = PublishRequest()
        if method == PUBLISH_METHOD:
            published = PublishRequest.deserialize(request)
        refused = refusal(self._account, self._grants, method, published.topic)
        if refused:
            print(f"{REFUSED}{refused}", flush=True)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, refused)
        # Google's emulator has no limits.
        for message in published.messages:
            problem = message_problem(message.data, message.attributes)
            if problem:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)

    def _channel(self, method: str) -> grpc.Channel:
        return next(
            channel for prefix, channel in self._channels.items() if method.startswith(prefix)
        )


def _deadline_s(context: Any) -> float | None:
    """Return the time that the client still waits; None: it has no deadline, which gRPC reports as
    many years.
    """
    remaining: float | None = context.time_remaining()
    return remaining if remaining is not None and remaining < NO_DEADLINE_S else None


def _metadata(context: Any) -> list[tuple[str, str | bytes]]:
    """Return the client's own metadata, such as the header that names a database."""
    return [(key, value) for key, value in context.invocation_metadata() if key != "user-agent"]


def listen(gate: Gate, port: int = 0) -> tuple[grpc.Server, str]:
    """Start a server on a loopback port (0: a free one), and return it with its address."""
    server = grpc.server(ThreadPoolExecutor(THREADS), handlers=[gate], options=OPTIONS)
    bound = server.add_insecure_port(f"{LOOPBACK}:{port}")
    server.start()
    return server, f"{LOOPBACK}:{bound}"


def main(argv: list[str] | None = None) -> int:
    parser = EmulatorParser("services.grpc_gate")
    parser.add_argument("--firestore", required=True, metavar="HOST:PORT")
    parser.add_argument("--pubsub", required=True, metavar="HOST:PORT")
    parser.add_infra()
    parser.add_argument("--account", action="append", required=True, metavar="FUNCTION=PORT")
    options = parser.parse_args(argv)
    table = (options.infra / TABLE_FILE).read_text(encoding="utf-8")
    upstreams = {FIRESTORE: options.firestore, PUBSUB: options.pubsub}
    servers = []
    for account, port in split_pairs(options.account):
        gate = Gate(account, granted_access(account, table), upstreams)
        server, _ = listen(gate, int(port))
        servers.append(server)
    for server in servers:
        server.wait_for_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
