"""IAM for Google's JSON APIs: one address per service account, which refuses calls that infra/ does not permit.

    function submit ──► its address ──┐
    VMs             ──► their address ┴─► the emulators of Logging, Monitoring, IAM, Pub/Sub and Compute, without IAM

`python -m trainmaster_emulators.services.http_gate --infra DIR --project P --upstream logging=HOST:PORT … --account
submit=PORT …` serves until it is ended, and prints a line for each call that it refuses. `realism.http_access` has the
rules. The address identifies the caller, because clients send no token to an emulator.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from trainmaster_emulators.browser_guard import refusal_body
from trainmaster_emulators.process.processes import LOOPBACK, split_address
from trainmaster_emulators.realism.call_access import REFUSED, Access
from trainmaster_emulators.realism.http_access import (
    ACCESS_SECRET,
    SECRET_ACCESSOR,
    Api,
    grants_of,
    is_granted,
    refusal,
    required_access,
)
from trainmaster_emulators.rest.quiet_http import QuietServer
from trainmaster_emulators.services.http_servers import json_object, serve_accounts
from trainmaster_emulators.services.storage_forwarder import HOP_HEADERS, ForwardingHandler

NAME: Final = "http-gate"
TIMEOUT_S: Final = 150.0
"""Longer than a call that waits for an operation."""


class GateServer(QuietServer):
    """Serves one account on one port."""

    def __init__(self, port: int, account: str, infra: Path, upstreams: Mapping[Api, str], project: str = "") -> None:
        self.account, self.upstreams = account, upstreams
        self._grants = grants_of(account, infra)
        self._member = f"serviceAccount:trainmaster-{account.replace('_', '-')}@{project}.iam.gserviceaccount.com"
        super().__init__((LOOPBACK, port), GateHandler)

    def first_missing(self, needed: list[Access], path: str) -> Access | None:
        """Return the first permission that the account does not have."""
        for access in needed:
            if is_granted(access, self._grants):
                continue
            if access.permission != ACCESS_SECRET or not self._may_access_secret(path):
                return access
        return None

    def _may_access_secret(self, path: str) -> bool:
        """Return whether the secret's own policy grants access to the account. The owner sets it; infra/ does not."""
        secret = path.partition("/versions/")[0]
        with closing(http.client.HTTPConnection(*split_address(self.upstreams[Api.IAM]), timeout=TIMEOUT_S)) as iam:
            iam.request("GET", f"{secret}:getIamPolicy")
            policy: dict[str, Any] = json.loads(iam.getresponse().read())
        bindings = policy.get("bindings", [])
        return any(binding["role"] == SECRET_ACCESSOR and self._member in binding["members"] for binding in bindings)


class GateHandler(ForwardingHandler):
    """Forwards a call that the account may make. Calls and answers are small, so they are buffered."""

    checks_host = True

    def _forward(self) -> None:
        server = cast(GateServer, self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path = unquote(urlsplit(self.path).path)
        try:
            api, needed = required_access(self.command, path, json_object(body))
        except KeyError:
            remedy = f"add the permissions of {self.command} {path} to trainmaster_emulators.realism.http_access"
            self._refuse(f"{server.account}: {remedy}")
            return
        if missing := server.first_missing(needed, path):
            self._refuse(refusal(server.account, missing))
            return
        address = server.upstreams.get(api)
        if address is None:
            self.send_google_error(HTTPStatus.NOT_IMPLEMENTED, f"this stack runs without the emulator of {api}")
            return
        try:
            self._send_back(*self._call_emulator(address, body))
        except (OSError, http.client.HTTPException) as error:
            self.send_google_error(HTTPStatus.SERVICE_UNAVAILABLE, f"the emulator of {api} does not respond: {error}")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward

    def _call_emulator(self, address: str, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_HEADERS}
        with closing(http.client.HTTPConnection(*split_address(address), timeout=TIMEOUT_S)) as connection:
            connection.request(self.command, self.path, body or None, {**headers, "Host": address})
            response = connection.getresponse()
            return response, response.read()

    def _send_back(self, response: http.client.HTTPResponse, body: bytes) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.headers.items():
            if name.lower() not in {*HOP_HEADERS, "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _refuse(self, message: str) -> None:
        print(f"{REFUSED}{message}", flush=True)
        self.send_body(HTTPStatus.FORBIDDEN, refusal_body(message))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainmaster_emulators.services.http_gate")
    parser.add_argument("--infra", type=Path, required=True, metavar="DIR", help="folder of the table of grants")
    parser.add_argument("--project", required=True)
    parser.add_argument("--upstream", action="append", required=True, metavar="API=HOST:PORT")
    parser.add_argument("--account", action="append", required=True, metavar="NAME=PORT")
    options = parser.parse_args(argv)
    upstreams = {Api(pair.partition("=")[0]): pair.partition("=")[2] for pair in options.upstream}
    serve_accounts(
        options.account,
        lambda account, port: GateServer(port, account, options.infra, upstreams, options.project),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
