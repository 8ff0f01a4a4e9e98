"""The metadata of one VM as a tree, and the responses of the metadata server to a path of it.

    GET /computeMetadata/v1/PATH[/][?recursive=true][&alt=json|text]
                                [&wait_for_change=true][&last_etag=E][&timeout_sec=N]

A path that ends in `/` is a directory: the response lists its entries, one per line, or with
`recursive` the whole subtree. A recursive response is JSON unless `alt=text`. In JSON the fixed
keys are in camel case (`machine-type` is `machineType`), and attribute keys stay as the user set
them. A long poll returns when the response differs from `last_etag` (without one: from the current
response), or the current response after the timeout. Source:
https://cloud.google.com/compute/docs/metadata/querying-metadata.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

ROOT: Final = "/computeMetadata/v1/"
Tree = dict[str, Any]
"""Directories are dicts. A leaf is text, a number, a list of texts, a Document or a Secret."""


@dataclass(frozen=True, slots=True)
class Document:
    """A leaf that is a JSON object; its keys are not changed."""

    body: Tree


class Secret:
    """A leaf that the server creates at each request.

    Listings contain it, recursive responses do not.
    """


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response of the metadata server."""

    body: bytes
    content_type: str
    status: int = 200
    location: str | None = None
    """Target of a redirect."""

    @property
    def etag(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:16]


def error_response(status: int, reason: str) -> Response:
    page = (
        f"<!DOCTYPE html><html lang=en><title>Error {status} ({reason})!!1</title><p>{status}."
        f" {reason}</html>\n"
    )
    return Response(page.encode(), "text/html; charset=UTF-8", status)


class MetadataTree:
    """The metadata that the VM reads. Thread-safe; a change ends waiting long polls at once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._changed = threading.Condition()
        self._closed = False

    def put(self, path: str, value: str | Tree | Document) -> None:
        """Set a leaf or a directory. `path` starts at the root, like `instance/preempted`."""
        *directories, leaf = path.split("/")
        with self._changed:
            node = self._tree
            for name in directories:
                node = node[name]
            node[leaf] = value
            self._changed.notify_all()

    def put_guest_attribute(self, namespace: str, key: str, value: str) -> Response:
        """Set a value that the VM writes. The VM's metadata must allow it.

        Source: https://cloud.google.com/compute/docs/metadata/manage-guest-attributes.
        """
        with self._changed:
            instance = self._tree["instance"]
            if str(instance["attributes"].get("enable-guest-attributes", "")).upper() != "TRUE":
                return error_response(403, "Guest attributes endpoint access is disabled.")
            instance["guest-attributes"].setdefault(namespace, {})[key] = value
            self._changed.notify_all()
            return Response(body=b"", content_type="application/text")

    def close(self) -> None:
        """End every long poll, because the VM is off."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def get(self, path: str, query: Mapping[str, str]) -> Response:
        with self._changed:
            return self._render(path, query)

    def wait_for_change(self, path: str, query: Mapping[str, str]) -> Response | None:
        """Block until the response changes or the timeout passes.

        Return None if the VM was powered off meanwhile.
        """
        timeout_s = float(query["timeout_sec"]) if query.get("timeout_sec", "").isdigit() else None
        with self._changed:
            response = self._render(path, query)
            known_etag = query.get("last_etag", response.etag)

            def has_changed() -> bool:
                nonlocal response
                response = self._render(path, query)
                return (
                    self._closed or response.status != HTTPStatus.OK or response.etag != known_etag
                )

            self._changed.wait_for(has_changed, timeout_s)
            return None if self._closed else response

    def _render(self, path: str, query: Mapping[str, str]) -> Response:
        node: Any = self._tree
        steps = [unquote(step) for step in path.split("/") if step]
        for step in steps:
            if not isinstance(node, dict) or step not in node:
                return error_response(404, "Not Found")
            node = node[step]
        if isinstance(node, Document):
            return Response(json.dumps(node.body).encode(), "application/json")
        recursive = query.get("recursive", "").lower() == "true"
        alt = query.get("alt", "json" if recursive and isinstance(node, dict) else "text")
        if isinstance(node, dict) and not recursive:
            if path and not path.endswith("/"):
                return Response(
                    body=b"", content_type="text/html", status=301, location=ROOT + path + "/"
                )
            node = [
                f"{key}/" if isinstance(value, dict) else key for key, value in sorted(node.items())
            ]
        if alt == "json":
            body = _as_json(node, keep_keys=steps[-1:] == ["attributes"])
            return Response(json.dumps(body).encode(), "application/json")
        return Response("\n".join(_as_lines(node)).encode(), "application/text")


def _as_json(node: Any, *, keep_keys: bool = False) -> Any:
    """Return a node as a recursive JSON response shows it.

    `keep_keys`: the keys are the user's and do not change.
    """
    if isinstance(node, Document):
        return node.body
    if not isinstance(node, dict):
        return node
    entries = {
        key: _as_json(value, keep_keys=key == "attributes")
        for key, value in node.items()
        if not isinstance(value, Secret)
    }
    if keep_keys:
        return entries
    is_list = bool(entries) and all(key.isdigit() for key in entries)
    if is_list:  # such as `network-interfaces/`, which has an entry `0/`
        return list(entries.values())
    return {
        re.sub(r"-(\w)", lambda match: match[1].upper(), key): value
        for key, value in entries.items()
    }


def _as_lines(node: Any, prefix: str = "") -> list[str]:
    """Return a node as a recursive text response shows it: one line `PATH VALUE` for each leaf."""
    if isinstance(node, Secret):
        return []
    if isinstance(node, dict):
        lines = []
        for key, value in node.items():
            lines += _as_lines(value, f"{prefix}/{key}" if prefix else key)
        return lines
    if isinstance(node, list):
        texts = node
    elif isinstance(node, Document):
        texts = [json.dumps(node.body)]
    else:
        texts = [str(node)]
    return [f"{prefix} {text}" if prefix else text for text in texts]
