"""IAM for Cloud Storage: one address per service account, which refuses calls that infra/ does not permit.

    function upload ──► its address ──┐
    VMs and the proxy ► their address ┴─► fake-gcs-server, which has no IAM

`python -m trainmaster_emulators.services.storage_gate --storage HOST:PORT --bucket B --stage-bucket S --account
upload=PORT …` serves until it is ended. `realism.storage_access` has the rules. Google identifies the caller by a
token; here the address does.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import sys
from http import HTTPStatus
from typing import cast
from urllib.parse import urlsplit

from trainmaster_emulators.browser_guard import find_host_refusal
from trainmaster_emulators.process.processes import LOOPBACK, split_address
from trainmaster_emulators.realism.storage_access import Access, StorageAccess
from trainmaster_emulators.services.http_servers import serve_accounts
from trainmaster_emulators.services.storage_forwarder import (
    ForwardingServer,
    StorageHandler,
    is_storage_host,
    read_chunks,
)

NAME = "storage-gate"
HEALTH = "/_internal/healthcheck"


class GateServer(ForwardingServer):
    """Serves one account on one port."""

    def __init__(self, port: int, storage: tuple[str, int], access: StorageAccess) -> None:
        self.storage, self.access = storage, access
        super().__init__((LOOPBACK, port), GateHandler)


class GateHandler(StorageHandler):
    """Forwards a call that the account may make. Buffers the body, which may contain the name of a new object."""

    def _forward(self) -> None:
        # The googleapis proxy forwards the host that its client called. A web page cannot have one of these hosts.
        host = self.headers.get("Host", "")
        if not is_storage_host(host.partition(":")[0].lower()) and (reason := find_host_refusal(host)):
            self.send_google_error(HTTPStatus.FORBIDDEN, reason)
            return
        body, client = self._read_body(), self.rfile
        self.rfile = io.BufferedReader(io.BytesIO(body))
        try:
            self._answer(body)
        finally:
            self.rfile = client

    def _answer(self, body: bytes) -> None:
        access = cast(GateServer, self.server).access
        if denied := access.first_missing(self.command, self.path, body):
            self._refuse(denied)
            return
        host, port = self.server.storage
        self.headers.replace_header("Host", f"{host}:{port}")
        try:
            response = self._send_upstream(host)
        except (OSError, http.client.HTTPException) as error:
            self.send_google_error(HTTPStatus.SERVICE_UNAVAILABLE, f"the local Cloud Storage does not respond: {error}")
            return
        hidden = access.hides_missing(self.command, self.path) if response.status == HTTPStatus.NOT_FOUND else None
        if hidden:
            response.read()
            self._refuse(hidden)
        else:
            self._send_back(response, host)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _forward

    def _read_body(self) -> bytes:
        """Read the body. A chunked one is forwarded with its length."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            body = b"".join(read_chunks(self.rfile))
            del self.headers["Transfer-Encoding"]
            del self.headers["Content-Length"]
            self.headers["Content-Length"] = str(len(body))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        return body

    def _location(self, value: str, host: str) -> str:
        """Return the address of a resumable upload at this gate instead of fake-gcs-server's own."""
        parts = urlsplit(value)
        upstream_host, upstream_port = self.server.storage
        if parts.netloc in (host, f"{upstream_host}:{upstream_port}"):
            return parts._replace(netloc=f"{LOOPBACK}:{self.server.server_address[1]}").geturl()
        return value

    def _refuse(self, denied: Access) -> None:
        """Send Google's error. Source of its text: Cloud Storage's JSON API."""
        resource = "object" if denied.name else "bucket"
        account = cast(GateServer, self.server).access.account
        message = (
            f"{account} does not have {denied.permission} access to the Google Cloud Storage {resource}. Permission "
            f"'{denied.permission}' denied on resource (or it may not exist)."
        )
        error = {"message": message, "domain": "global", "reason": "forbidden"}
        body = json.dumps({"error": {"code": 403, "message": message, "errors": [error]}}).encode()
        self.send_body(HTTPStatus.FORBIDDEN, body)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainmaster_emulators.services.storage_gate")
    parser.add_argument("--storage", required=True, metavar="HOST:PORT")
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--stage-bucket", required=True)
    parser.add_argument("--account", action="append", required=True, metavar="NAME=PORT")
    options = parser.parse_args(argv)
    storage = split_address(options.storage)

    def server_of(account: str, port: int) -> GateServer:
        return GateServer(port, storage, StorageAccess(account, options.bucket, options.stage_bucket))

    serve_accounts(options.account, server_of)
    return 0


if __name__ == "__main__":
    sys.exit(main())
