"""IAM for Google's JSON APIs: one address per service account, which refuses calls that infra/ does
not permit.

    function submit ──► its address ──┐
    VMs             ──► their address ┴─► the emulators of Cloud Storage, Logging, Monitoring, IAM,
                                          Pub/Sub and Compute

`python -m trainmaster_emulators.services.http_gate --infra DIR --project P --bucket B
--stage-bucket S --upstream logging=HOST:PORT … --account submit=PORT …` serves until it is ended.
It prints a line for each call that it refuses, except for calls of Cloud Storage: refusing is also
Cloud Storage's answer to a caller that may not know whether an object exists.
`realism.http_access` and `realism.storage_access` have the rules. The address identifies the
caller, because clients send no token to an emulator.
"""

from __future__ import annotations

import http.client
import io
import json
import sys
import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from trainmaster_emulators.browser_guard import find_host_refusal
from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.process.processes import LOOPBACK, split_address
from trainmaster_emulators.realism.call_access import REFUSED, Access
from trainmaster_emulators.realism.compute_access import refused_vm, vm_prefix
from trainmaster_emulators.realism.http_access import (
    ACCESS_SECRET,
    SECRET_ACCESSOR,
    Api,
    grants_of,
    is_granted,
    refusal,
    required_access,
)
from trainmaster_emulators.realism.storage_access import StorageAccess
from trainmaster_emulators.rest.command_line import EmulatorParser, split_pairs
from trainmaster_emulators.services.http_servers import json_object
from trainmaster_emulators.services.storage_forwarder import (
    JSON_API_PATHS,
    ForwardingServer,
    StorageHandler,
    is_storage_host,
    read_chunks,
    storage_path,
)

NAME: Final = "http-gate"


class GateServer(ForwardingServer):
    """Serves one account on one port.

    `buckets`: names of the buckets `this` and `stage` of infra/.
    """

    def __init__(
        self,
        port: int,
        account: str,
        infra: Path,
        upstreams: Mapping[Api, str],
        project: str = "",
        buckets: tuple[str, str] = ("", ""),
    ) -> None:
        self.upstreams = upstreams
        self.storage = split_address(upstreams[Api.STORAGE])
        self.storage_access = StorageAccess(account, *buckets)
        self._account = account
        self._grants = grants_of(account, infra)
        self._vm_prefix = vm_prefix(infra)
        account_id = f"trainmaster-{account.replace('_', '-')}"
        self._member = f"serviceAccount:{account_id}@{project}.iam.gserviceaccount.com"
        super().__init__((LOOPBACK, port), GateHandler)

    def judge(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[Api | None, str]:
        """Return the API of a call, and why it is refused; empty: the account may make it."""
        try:
            api, needed = required_access(method, path, body)
        except KeyError:
            remedy = (
                f"add the permissions of {method} {path} to"
                " trainmaster_emulators.realism.http_access"
            )
            return None, f"{self._account}: {remedy}"
        for access in needed:
            if not is_granted(access, self._grants) and not self._may_access_secret(access, path):
                return api, refusal(self._account, access)
        if api is Api.COMPUTE:
            return api, refused_vm(self._vm_prefix, path, body, self._vm_name)
        return api, ""

    def _may_access_secret(self, access: Access, path: str) -> bool:
        """Return whether the secret's own policy grants access to the account.

        The owner sets it; infra/ does not.
        """
        if access.permission != ACCESS_SECRET:
            return False
        secret, _, _ = path.partition("/versions/")
        try:
            policy = call(self.upstreams[Api.IAM], "GET", f"{secret}:getIamPolicy")
        except CallError:
            return False  # there is no such secret
        return any(
            binding["role"] == SECRET_ACCESSOR and self._member in binding["members"]
            for binding in policy.get("bindings", [])
        )

    def _vm_name(self, zone: str, name_or_id: str) -> str:
        if not name_or_id.isdigit():
            return name_or_id
        path = f"/emulator/v1/zones/{zone}/vms/{name_or_id}"
        return str(call(self.upstreams[Api.COMPUTE], "GET", path)["name"])


class GateHandler(StorageHandler):
    """Forwards a call that the account may make.

    It reads the whole body first, because the permission may depend on the body.
    """

    server: GateServer

    def _forward(self) -> None:
        # The googleapis proxy forwards the host that its client called. A web page cannot have one
        # of these hosts.
        host = self.headers.get("Host", "")
        is_proxied = is_storage_host(host.partition(":")[0].lower())
        reason = None if is_proxied else find_host_refusal(host)
        if reason:
            self.send_google_error(HTTPStatus.FORBIDDEN, reason)
            return
        body = self._read_body()
        client = self.rfile
        self.rfile = io.BufferedReader(io.BytesIO(body))
        is_storage = is_proxied or self.path.startswith(JSON_API_PATHS)
        try:
            response = self._storage_response(body) if is_storage else self._response(body)
        except (OSError, http.client.HTTPException) as error:
            self.send_google_error(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the emulator does not respond: {error}"
            )
        else:
            if response is not None:
                self._send_back(response, self.server.storage[0])
        finally:
            self.rfile = client
            self._disconnect()  # an emulator may end, or close an idle connection

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _forward

    def _response(self, body: bytes) -> http.client.HTTPResponse | None:
        """Return the emulator's response; None: the call was refused."""
        api, problem = self.server.judge(
            self.command, unquote(urlsplit(self.path).path), json_object(body)
        )
        if problem:
            print(f"{REFUSED}{problem}", flush=True)
            self._refuse(problem)
        elif api is None or api not in self.server.upstreams:
            self.send_google_error(
                HTTPStatus.NOT_IMPLEMENTED, f"this stack runs without the emulator of {api}"
            )
        else:
            return self._send_upstream(split_address(self.server.upstreams[api]), self.path)
        return None

    def _storage_response(self, body: bytes) -> http.client.HTTPResponse | None:
        """Return Cloud Storage's response; None: the call was refused."""
        access = self.server.storage_access
        denied = access.first_missing(self.command, self.path, body)
        if denied:
            self._refuse(access.refusal(denied))
            return None
        path = storage_path(self.command, host="", path=self.path)
        response = self._send_upstream(self.server.storage, path)
        if response.status == HTTPStatus.NOT_FOUND:
            denied = access.hides_missing(self.command, self.path)
            if denied:
                self._refuse(access.refusal(denied))
                return None
        return response

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
        """Return the address of a resumable upload at this gate instead of
        fake-gcs-server's own.
        """
        parts = urlsplit(value)
        upstream_host, upstream_port = self.server.storage
        if parts.netloc in (host, f"{upstream_host}:{upstream_port}"):
            return parts._replace(netloc=f"{LOOPBACK}:{self.server.server_address[1]}").geturl()
        return value

    def _refuse(self, message: str) -> None:
        """Send Google's error, in the formats of its older and its newer APIs."""
        detail = {"message": message, "domain": "global", "reason": "forbidden"}
        error = {"code": 403, "message": message, "errors": [detail], "status": "PERMISSION_DENIED"}
        self.send_body(HTTPStatus.FORBIDDEN, json.dumps({"error": error}).encode())


def main(argv: list[str] | None = None) -> int:
    parser = EmulatorParser("services.http_gate")
    parser.add_infra()
    parser.add_argument("--project", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--stage-bucket", required=True)
    parser.add_argument("--upstream", action="append", required=True, metavar="API=HOST:PORT")
    parser.add_argument("--account", action="append", required=True, metavar="NAME=PORT")
    options = parser.parse_args(argv)
    upstreams = {Api(name): address for name, address in split_pairs(options.upstream)}
    buckets = (options.bucket, options.stage_bucket)
    threads = []
    for account, port in split_pairs(options.account):
        server = GateServer(int(port), account, options.infra, upstreams, options.project, buckets)
        thread = threading.Thread(target=server.serve_forever, name=account)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
