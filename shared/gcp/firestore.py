"""Firestore (native mode) over REST: what the Store asks of it, and no more.

    get       documents by their paths          batchGet
    find      those of a collection             runQuery
    count     how many those are                runAggregationQuery
    commit    writes, all of them or none       commit

A path is below the database: `jobs/digits_1/replicas/1-worker-0`. Fields are plain Python values. An update time is
Google's own text, which is never read: what was written since is told by comparing, to the last digit.
Source: Firestore's REST reference, v1 (https://cloud.google.com/firestore/docs/reference/rest).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from shared.gcp import callers
from shared.gcp.firestore_values import decoded, encoded
from shared.gcp.rest import Rest

GOOGLE: Final = "https://firestore.googleapis.com"
TIMEOUT_S: Final = 12.0
"""Of one try; four of them fit into the functions' own deadline of 60 s."""

Json = dict[str, Any]
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """As it was read."""

    path: str
    fields: Fields
    created_at: datetime
    update_time: str

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Where:
    """A condition. `operator`: EQUAL, GREATER_THAN_OR_EQUAL and the like."""

    field: str
    operator: str
    value: object


@dataclass(frozen=True, slots=True)
class Order:
    """The greatest first, of the same value by descending path. `after`: the value and the path to go on from."""

    field: str
    limit: int
    after: tuple[object, str] | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """One document. Without `fields` it is deleted. `only`: the precondition; `merged`: other fields stay."""

    path: str
    fields: Fields | None
    only: Mapping[str, object] | None = None
    merged: bool = False


def create(path: str, fields: Fields) -> Write:
    return Write(path, fields, {"exists": False})


def update(path: str, fields: Fields, update_time: object = None) -> Write:
    """Of what is there, or, with a time, has not been written since."""
    return Write(path, fields, {"updateTime": update_time} if update_time else {"exists": True}, merged=True)


def equal(field: str, value: object) -> Where:
    return Where(field, "EQUAL", value)


def at_least(field: str, value: object) -> Where:
    return Where(field, "GREATER_THAN_OR_EQUAL", value)


class Firestore:
    """Raises RestError and TemporaryError, as `shared.gcp.rest`. Thread-safe."""

    def __init__(self, project: str) -> None:
        emulator = os.environ.get("FIRESTORE_EMULATOR_HOST")
        caller = callers.Emulated() if emulator else callers.ours()
        self._rest = Rest(f"http://{emulator}/v1/" if emulator else f"{GOOGLE}/v1/", caller, TIMEOUT_S)
        self._root = f"projects/{project}/databases/(default)/documents"

    def get(self, *paths: str) -> dict[str, Document]:
        """By path; what is not there is left out."""
        parts = self._rest.post(f"{self._root}:batchGet", {"documents": [self._name(path) for path in paths]})
        found = [self._document(part["found"]) for part in parts if "found" in part]
        return {each.path: each for each in found}

    def find(
        self,
        collection: str,
        *where: Where,
        everywhere: bool = False,
        fields: Sequence[str] = (),
        order: Order | None = None,
    ) -> list[Document]:
        """`everywhere`: in all collections of that name; `fields`: no others are read."""
        query = self._query(collection, where)
        if everywhere:
            query["from"][0]["allDescendants"] = True
        if fields:
            query["select"] = {"fields": [{"fieldPath": field} for field in fields]}
        if order:
            query |= self._ordered(order)
        parts = self._rest.post(f"{self._parent(collection)}:runQuery", {"structuredQuery": query})
        return [self._document(part["document"]) for part in parts if "document" in part]

    def count(self, collection: str, *where: Where) -> int:
        asked = {"structuredQuery": self._query(collection, where), "aggregations": [{"alias": "all", "count": {}}]}
        path = f"{self._parent(collection)}:runAggregationQuery"
        (part, *_) = self._rest.post(path, {"structuredAggregationQuery": asked})
        return int(decoded(part["result"]["aggregateFields"]["all"]))

    def commit(self, *writes: Write) -> None:
        self._rest.post(f"{self._root}:commit", {"writes": [self._write(each) for each in writes]})

    def close(self) -> None:
        self._rest.close()

    def _name(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _parent(self, collection: str) -> str:
        """Of `jobs/digits_1/replicas` that is the job; its id is a part of an address here."""
        above = collection.rpartition("/")[0]
        return f"{self._root}/{quote(above)}" if above else self._root

    def _query(self, collection: str, where: Sequence[Where]) -> Json:
        query: Json = {"from": [{"collectionId": collection.rpartition("/")[2]}]}
        if where:
            query["where"] = {"compositeFilter": {"op": "AND", "filters": [_filter(each) for each in where]}}
        return query

    def _ordered(self, order: Order) -> Json:
        by = [{"field": {"fieldPath": name}, "direction": "DESCENDING"} for name in (order.field, "__name__")]
        asked: Json = {"orderBy": by, "limit": order.limit}
        if order.after:
            value, path = order.after
            asked["startAt"] = {"values": [encoded(value), {"referenceValue": self._name(path)}], "before": False}
        return asked

    def _write(self, write: Write) -> Json:
        if write.fields is None:
            return {"delete": self._name(write.path)}
        fields = {name: encoded(value) for name, value in write.fields.items()}
        said: Json = {"update": {"name": self._name(write.path), "fields": fields}}
        if write.only:
            said["currentDocument"] = write.only
        if write.merged:
            said["updateMask"] = {"fieldPaths": list(fields)}
        return said

    def _document(self, said: Json) -> Document:
        path = said["name"].partition("/documents/")[2]
        fields = {name: decoded(value) for name, value in said.get("fields", {}).items()}
        return Document(path, fields, datetime.fromisoformat(said["createTime"]), said["updateTime"])


def _filter(where: Where) -> Json:
    field = {"fieldPath": where.field}
    return {"fieldFilter": {"field": field, "op": where.operator, "value": encoded(where.value)}}
