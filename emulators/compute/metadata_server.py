"""The metadata server of one VM, on a loopback port of its own: `GCE_METADATA_HOST` in its environment.

    GET /computeMetadata/v1/PATH[/][?recursive=true][&alt=json|text]
                                [&wait_for_change=true][&last_etag=E][&timeout_sec=N]

A path that ends in `/` is a directory: its entries, one a line, or with `recursive` all of it. A recursive answer is
JSON unless text is asked for, and there the fixed keys are in camel case (`machine-type` → `machineType`); attribute
keys stay as set. A long poll returns when the answer differs from `last_etag` (without one: from the answer now), or
after the timeout with the answer as it is. Source: https://cloud.google.com/compute/docs/metadata/querying-metadata.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from emulators.compute.vm_tokens import TokenIssuer, VmIdentity

ROOT: Final = "/computeMetadata/v1/"
IDLE_TIMEOUT_S: Final = 600.0
Tree = dict[str, Any]
"""Directories are dicts; a leaf is text, a number, a list of texts, or a Document."""


@dataclass(frozen=True, slots=True)
class Document:
    """A leaf that is a JSON object, its keys as they are."""

    body: Tree


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    content_type: str
    status: int = 200
    location: str | None = None

    @property
    def etag(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:16]


class MetadataTree:
    """What the VM sees of itself. Changes wake every long poll at once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._changed = threading.Condition()
        self._closed = False

    def put(self, path: str, value: str | Tree | Document) -> None:
        """`path` from the root, as `instance/preempted`."""
        *directories, leaf = path.split("/")
        with self._changed:
            node = self._tree
            for name in directories:
                node = node[name]
            node[leaf] = value
            self._changed.notify_all()

    def close(self) -> None:
        """Ends every long poll: the VM is off."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def answer(self, path: str, query: Mapping[str, str]) -> Answer:
        with self._changed:
            return self._render(path, query)

    def changed_answer(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """Blocks until the answer is another one; None when the VM was powered off meanwhile."""
        timeout_s = float(query["timeout_sec"]) if query.get("timeout_sec", "").isdigit() else None
        with self._changed:
            now = self._render(path, query)
            known = query.get("last_etag", now.etag)

            def news() -> bool:
                nonlocal now
                now = self._render(path, query)
                return self._closed or now.status != HTTPStatus.OK or now.etag != known

            self._changed.wait_for(news, timeout_s)
            return None if self._closed else now

    def _render(self, path: str, query: Mapping[str, str]) -> Answer:
        node: Any = self._tree
        steps = [unquote(step) for step in path.split("/") if step]
        for step in steps:
            if not isinstance(node, dict) or step not in node:
                return error_answer(404, "Not Found")
            node = node[step]
        if isinstance(node, Document):
            return Answer(json.dumps(node.body).encode(), "application/json")
        recursive = query.get("recursive", "").lower() == "true"
        alt = query.get("alt", "json" if recursive and isinstance(node, dict) else "text")
        if isinstance(node, dict) and not recursive:
            if path and not path.endswith("/"):
                return Answer(b"", "text/html", 301, ROOT + path + "/")
            node = [f"{key}/" if isinstance(value, dict) else key for key, value in sorted(node.items())]
        if alt == "json":
            shown = _as_json(node, own_keys=steps[-1:] == ["attributes"])
            return Answer(json.dumps(shown).encode(), "application/json")
        return Answer("\n".join(_lines(node)).encode(), "application/text")


def error_answer(status: int, words: str) -> Answer:
    page = f"<!DOCTYPE html><html lang=en><title>Error {status} ({words})!!1</title><p>{status}. {words}</html>\n"
    return Answer(page.encode(), "text/html; charset=UTF-8", status)


def _as_json(node: Any, *, own_keys: bool = False) -> Any:
    """As a recursive answer shows a directory. `own_keys`: the keys are the user's and stay as they are."""
    if isinstance(node, Document):
        return node.body
    if not isinstance(node, dict):
        return node
    entries = {
        key: _as_json(value, own_keys=key == "attributes")
        for key, value in node.items()
        if not isinstance(value, Secret)
    }
    if own_keys:
        return entries
    if entries and all(key.isdigit() for key in entries):  # `network-interfaces/0/` is a list in JSON
        return list(entries.values())
    return {re.sub(r"-(\w)", lambda match: match[1].upper(), key): value for key, value in entries.items()}


def _lines(node: Any, prefix: str = "") -> list[str]:
    if isinstance(node, Secret):
        return []
    if isinstance(node, dict):
        return [line for key, value in node.items() for line in _lines(value, f"{prefix}/{key}" if prefix else key)]
    texts = node if isinstance(node, list) else [json.dumps(node.body) if isinstance(node, Document) else str(node)]
    return [f"{prefix} {text}" if prefix else text for text in texts]


class Secret:
    """A leaf that is made anew at each request: named in listings, never in recursive answers."""


class MetadataServer(ThreadingHTTPServer):
    """`identity` None: the VM has no service account."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, host: str, metadata_tree: MetadataTree, issuer: TokenIssuer, identity: VmIdentity | None
    ) -> None:
        super().__init__((host, 0), MetadataHandler)
        self.metadata_tree, self.issuer, self.identity = metadata_tree, issuer, identity
        threading.Thread(target=self.serve_forever, name="metadata", daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.server_address[0]!s}:{self.server_port}"

    def stop(self) -> None:
        """Returns at once; the accepting thread ends within its polling interval."""
        self.metadata_tree.close()
        threading.Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client killed in the middle of a long poll is daily business here."""


class MetadataHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: agents poll for ever."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        answer = self._answer(url.path, query)
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer)

    def _answer(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """None: the VM was powered off while the client waited."""
        if path in ("", "/"):  # where google-auth asks whether this is Compute Engine
            return Answer(b"computeMetadata/\n", "application/text")
        if self.headers.get("Metadata-Flavor") != "Google":
            return error_answer(403, "Missing Metadata-Flavor:Google header.")
        if "X-Forwarded-For" in self.headers:
            return error_answer(403, "Requests with an X-Forwarded-For header are not served.")
        if path == "/computeMetadata/":
            return Answer(b"v1/\n", "application/text")
        if not path.startswith(ROOT):
            return error_answer(404, "Not Found")
        path = path.removeprefix(ROOT)
        return self._secret(path, query) or self._plain(path, query)

    def _plain(self, path: str, query: Mapping[str, str]) -> Answer | None:
        metadata_tree = cast(MetadataServer, self.server).metadata_tree
        if query.get("wait_for_change", "").lower() == "true":
            return metadata_tree.changed_answer(path, query)
        return metadata_tree.answer(path, query)

    def _secret(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """Tokens, for the account's alias `default` and for its own name; None: the path is not a token's."""
        server = cast(MetadataServer, self.server)
        match = re.fullmatch(r"instance/service-accounts/([^/]+)/(token|identity)", path)
        if match is None or server.identity is None or unquote(match[1]) not in ("default", server.identity.email):
            return None
        if match[2] == "token":
            return Answer(json.dumps(server.issuer.access_token()).encode(), "application/json")
        audience = query.get("audience", "")
        if not audience:
            return error_answer(400, "non-empty audience parameter required")
        full = query.get("format", "standard") == "full"
        token = server.issuer.identity_token(server.identity, audience, full=full, now=datetime.now(UTC))
        return Answer(token.encode(), "text/html")

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.status == HTTPStatus.OK:
            self.send_header("ETag", answer.etag)
        if answer.location is not None:
            self.send_header("Location", answer.location)
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()

    def version_string(self) -> str:
        return "Metadata Server for VM"
