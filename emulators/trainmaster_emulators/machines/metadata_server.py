"""The metadata server of one VM: HTTP on its own loopback port, `GCE_METADATA_HOST` in the VM's
environment.

`metadata_tree` has the metadata and its query parameters. The server adds the checks of Google's
server and the tokens of the VM's service account.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from trainmaster_emulators.machines.metadata_tree import (
    ROOT,
    MetadataTree,
    Response,
    error_response,
)
from trainmaster_emulators.machines.vm_tokens import TokenIssuer, VmIdentity
from trainmaster_emulators.rest.quiet_http import QuietHandler, QuietServer

IDLE_TIMEOUT_S: Final = 600.0


class MetadataServer(QuietServer):
    """Serves as soon as it exists. `identity` None: the VM has no service account."""

    def __init__(
        self,
        host: str,
        metadata_tree: MetadataTree,
        issuer: TokenIssuer,
        identity: VmIdentity | None,
    ) -> None:
        super().__init__((host, 0), MetadataHandler)
        self.metadata_tree = metadata_tree
        self.issuer = issuer
        self.identity = identity
        threading.Thread(target=self.serve_forever, name="metadata", daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.server_address[0]!s}:{self.server_port}"

    def stop(self) -> None:
        """End long polls and stop.

        Returns at once; the accepting thread ends within its polling interval.
        """
        self.metadata_tree.close()
        threading.Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        self.shutdown()
        self.server_close()


class MetadataHandler(QuietHandler):
    timeout = IDLE_TIMEOUT_S

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {
            key: values[-1] for key, values in parse_qs(url.query, keep_blank_values=True).items()
        }
        response = self._respond(url.path, query)
        if response is None:
            self.close_connection = True
        else:
            self._send(response)

    def do_PUT(self) -> None:
        """Write a guest attribute, the only thing that a VM may write here."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        value = body.decode("utf-8", "replace")
        path = urlsplit(self.path).path
        match = re.fullmatch(ROOT + r"instance/guest-attributes/([^/]+)/([^/]+)", path)
        if self.headers.get("Metadata-Flavor") != "Google":
            self._send(error_response(403, "Missing Metadata-Flavor:Google header."))
        elif match is None:
            self._send(error_response(405, "Method Not Allowed"))
        else:
            tree = cast(MetadataServer, self.server).metadata_tree
            self._send(tree.put_guest_attribute(unquote(match[1]), unquote(match[2]), value))

    def _respond(self, path: str, query: Mapping[str, str]) -> Response | None:
        """Return None if the VM was powered off during a long poll."""
        if path in ("", "/"):  # google-auth detects Compute Engine by this path
            return Response(b"computeMetadata/\n", "application/text")
        if self.headers.get("Metadata-Flavor") != "Google":
            return error_response(403, "Missing Metadata-Flavor:Google header.")
        if "X-Forwarded-For" in self.headers:
            return error_response(403, "Requests with an X-Forwarded-For header are not served.")
        if path == "/computeMetadata/":
            return Response(b"v1/\n", "application/text")
        if not path.startswith(ROOT):
            return error_response(404, "Not Found")
        path = path.removeprefix(ROOT)
        return self._token(path, query) or self._metadata(path, query)

    def _metadata(self, path: str, query: Mapping[str, str]) -> Response | None:
        tree = cast(MetadataServer, self.server).metadata_tree
        if query.get("wait_for_change", "").lower() == "true":
            return tree.wait_for_change(path, query)
        return tree.get(path, query)

    def _token(self, path: str, query: Mapping[str, str]) -> Response | None:
        """Return a token of the service account, by its alias `default` or its e-mail; None for any
        other path.
        """
        server = cast(MetadataServer, self.server)
        match = re.fullmatch(r"instance/service-accounts/([^/]+)/(token|identity)", path)
        if match is None or server.identity is None:
            return None
        account = unquote(match[1])
        if account not in ("default", server.identity.email):
            return None
        if match[2] == "token":
            return Response(json.dumps(server.issuer.access_token()).encode(), "application/json")
        audience = query.get("audience", "")
        if not audience:
            return error_response(400, "non-empty audience parameter required")
        full = query.get("format", "standard") == "full"
        token = server.issuer.identity_token(
            server.identity, audience, full=full, now=datetime.now(UTC)
        )
        return Response(token.encode(), "text/html")

    def _send(self, response: Response) -> None:
        headers = {"Metadata-Flavor": "Google", "Content-Type": response.content_type}
        if response.status == HTTPStatus.OK:
            headers["ETag"] = response.etag
        if response.location is not None:
            headers["Location"] = response.location
        self.send_body(response.status, response.body, headers)

    def version_string(self) -> str:
        return "Metadata Server for VM"
