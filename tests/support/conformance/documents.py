"""Google's discovery documents, in which it describes its REST APIs.

google-api-python-client contains them. The emulators and the calls of the product are checked with
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

APIS: Final = (
    "artifactregistry.v1",
    "cloudbilling.v1",
    "cloudfunctions.v2",
    "cloudresourcemanager.v1",
    "cloudscheduler.v1",
    "compute.v1",
    "iam.v1",
    "logging.v2",
    "monitoring.v3",
    "orgpolicy.v2",
    "pubsub.v1",
    "secretmanager.v1",
    "storage.v1",
    "tpu.v2",
    "tpu.v2alpha1",
)
FOLDER: Final = Path(str(files("googleapiclient") / "discovery_cache" / "documents"))
OWN_PREFIXES: Final = (
    "/compute/v1/projects/",
    "/v2alpha1/projects/",
    "/storage/v1/b",
    "/v2/entries:",
)
"""Paths that only these documents have: a call below them that no document knows is a fault."""


@dataclass(frozen=True)
class Route:
    """A method of a document, with the pattern of its path."""

    api: str
    method: Json
    pattern: re.Pattern[str]

    @property
    def id(self) -> str:
        return str(self.method["id"])


@cache
def document(api: str, folder: Path = FOLDER) -> Json:
    """Return the document of an API with its version, such as `compute.v1`."""
    parsed: Json = json.loads((folder / f"{api}.json").read_text(encoding="utf-8"))
    return parsed


def methods(node: Json) -> Iterator[Json]:
    """Yield the methods of a document, or of one of its resources, at every depth."""
    yield from node.get("methods", {}).values()
    for inner in node.get("resources", {}).values():
        yield from methods(inner)


@cache
def find(verb: str, path: str) -> tuple[tuple[Route, ...], frozenset[str]]:
    """Return the methods of this call, and the other verbs that the path has."""
    named = [route for route in _routes(len(path.split("/"))) if route.pattern.fullmatch(path)]
    others = {str(route.method["httpMethod"]) for route in named} - {verb}
    return tuple(route for route in named if route.method["httpMethod"] == verb), frozenset(others)


@cache
def _routes(parts: int) -> tuple[Route, ...]:
    """Return the routes whose paths have this number of parts."""
    return tuple(route for length, route in _all_routes() if length == parts)


@cache
def _all_routes() -> tuple[tuple[int, Route], ...]:
    """Return all methods, each with the number of parts of its path."""
    found = []
    for api in APIS:
        base = document(api).get("servicePath", "")
        for method in methods(document(api)):
            path = f"/{base}{method.get('flatPath') or method['path']}"
            if path.startswith("/v1/") and method["id"].endswith(
                (".projects.locations.list", ".projects.locations.get")
            ):
                # AI Platform's methods have these paths, too, and there is no document of them any
                # more.
                continue
            literals = re.split(r"\{\+?[^}]+\}", path)
            pattern = re.compile("[^/:]+".join(map(re.escape, literals)))
            found.append((len(path.split("/")), Route(api, method, pattern)))
    return tuple(found)
