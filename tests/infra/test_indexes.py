"""The queries that the store makes, against the indexes that infra/ makes. The emulator asks for none; Firestore does.

Every method of the Store is called here on the emulator, and what its client sends is held against what is planned.
Source of what an index is needed for: Firestore, "Index types": queries of one property in one collection have their
index by themselves, unless it is exempt; all others need one of their own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from google.cloud.firestore_v1.types import StructuredQuery
from google.protobuf.json_format import MessageToDict

from shared.gcp import clients
from shared.gcp.firestore_store import FirestoreStore
from shared.ports import JobPosition, Store
from tests.infra.conftest import Plan
from tests.support.jobs import CHIEF
from tests.support.world import World

NOW: Final = datetime(2026, 11, 21, 3, tzinfo=UTC)
ASK: Final[dict[str, Callable[[FirestoreStore, World], object]]] = {
    "load": lambda store, world: store.load(world.job_id, world.replica(CHIEF).key, lost_peers=True),
    "load_attempt": lambda store, world: store.load_attempt(world.job_id),
    "entry": lambda store, world: store.entry(world.job_id, "x"),
    "ledger": lambda store, world: store.ledger(world.job_id),
    "pending_keys": lambda store, world: store.pending_keys(world.job_id),
    "jobs_with_pending": lambda store, world: store.jobs_with_pending(),
    "live_jobs": lambda store, world: store.live_jobs(),
    "admission_token": lambda store, world: store.admission_token(),
    "recent_jobs": lambda store, world: store.recent_jobs(5, JobPosition(NOW, world.job_id)),
    "count_created_since": lambda store, world: store.count_created_since(NOW),
    "count_ready": lambda store, world: store.count_ready(world.job_id, 1),
    "rejections": lambda store, world: store.rejections(),
    "job_of_vm": lambda store, world: store.job_of_vm(world.vms[0].name),
    "stockouts": lambda store, world: store.stockouts(NOW),
    "orphans": lambda store, world: store.orphans(),
}
WRITE_ONLY: Final = {"commit", "mark_done", "reject", "note_stockout", "report_orphan", "forget_orphan"}
ASCENDING: Final = "ASCENDING"
Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """`equal` and `ordered` (by comparison or order, with its direction) are properties."""

    method: str
    collection: str
    is_group: bool
    equal: frozenset[str]
    ordered: tuple[tuple[str, str], ...]

    @property
    def properties(self) -> set[str]:
        return {*self.equal, *(name for name, _ in self.ordered)}


@pytest.fixture
def asked(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    client = clients.firestore_client(f"test-{uuid.uuid4().hex[:8]}")
    store = FirestoreStore(client)
    world = World(store=store)  # type: ignore[arg-type]  # another store
    world.start_running()
    found: list[Asked] = []
    method = ""
    api = client._firestore_api
    run_query, run_aggregation = api.run_query, api.run_aggregation_query

    def record(query: Any) -> None:
        found.append(read(method, MessageToDict(StructuredQuery.pb(query))))

    def recorded_query(request: Json, **options: Any) -> Any:
        record(request["structured_query"])
        return run_query(request, **options)

    def recorded_aggregation(request: Json, **options: Any) -> Any:
        record(request["structured_aggregation_query"].structured_query)
        return run_aggregation(request, **options)

    monkeypatch.setattr(api, "run_query", recorded_query)
    monkeypatch.setattr(api, "run_aggregation_query", recorded_aggregation)
    for method, ask in ASK.items():  # noqa: B007 - `record` reads it
        ask(store, world)
    yield found
    client.close()


def read(method: str, query: Json) -> Asked:
    (source,) = query["from"]
    equal: set[str] = set()
    ordered: dict[str, str] = {}
    for each in filters(query.get("where", {})):
        if each["op"] == "EQUAL":
            equal.add(each["field"]["fieldPath"])
        else:
            ordered[each["field"]["fieldPath"]] = ASCENDING
    for order in query.get("orderBy", ()):
        ordered[order["field"]["fieldPath"]] = order["direction"]
    ordered.pop("__name__", None)
    is_group = source.get("allDescendants", False)
    return Asked(method, source["collectionId"], is_group, frozenset(equal), tuple(ordered.items()))


def filters(where: Json) -> Iterator[Json]:
    if "fieldFilter" in where:
        yield where["fieldFilter"]
    for each in where.get("compositeFilter", {}).get("filters", ()):
        yield from filters(each)


def missing(query: Asked, plan: Plan) -> str:
    """What index it lacks; empty: none."""
    scope = "COLLECTION_GROUP" if query.is_group else "COLLECTION"
    if not query.properties:
        return ""
    if len(query.properties) == 1:
        (name,) = query.properties
        kept = single(plan, query.collection, name)
        directions = {direction for _, direction in query.ordered} or {ASCENDING}
        desired = {(scope, direction) for direction in directions}
        return "" if desired <= kept else f"{query}: {name} is indexed for {sorted(kept)} only"
    for index in plan.of("google_firestore_index").values():
        fields = [(each["field_path"], each["order"]) for each in index["fields"]]
        leading = {name for name, _ in fields[: len(query.equal)]}
        is_its = index["collection"] == query.collection and index.get("query_scope", "COLLECTION") == scope
        if is_its and leading == query.equal and tuple(fields[len(query.equal) :]) == query.ordered:
            return ""
    return f"{query}: there is no index of these"


def single(plan: Plan, collection: str, name: str) -> set[tuple[str, str]]:
    """Scopes and directions of the index of one property."""
    for field in plan.of("google_firestore_field").values():
        if (field["collection"], field["field"]) == (collection, name):
            indexes = field["index_config"][0].get("indexes", [])
            return {(each.get("query_scope", "COLLECTION"), each["order"]) for each in indexes}
    return {("COLLECTION", ASCENDING), ("COLLECTION", "DESCENDING")}


def test_every_method_of_the_store_is_asked() -> None:
    methods = {name for name, each in vars(Store).items() if callable(each) and not name.startswith("_")}
    assert methods == {*ASK, *WRITE_ONLY}


def test_every_query_has_its_index(asked: list[Asked], plan: Plan) -> None:
    assert [problem for query in asked if (problem := missing(query, plan))] == []
    assert len({query.method for query in asked}) >= 10


def test_every_index_has_its_query(asked: list[Asked], plan: Plan) -> None:
    """An index costs with every document written."""
    composite = {(query.collection, frozenset(query.properties)) for query in asked if len(query.properties) > 1}
    made = {
        (each["collection"], frozenset(field["field_path"] for field in each["fields"]))
        for each in plan.of("google_firestore_index").values()
    }
    assert made == composite


def test_a_query_without_an_index_is_found(plan: Plan) -> None:
    """Of two properties, in all collections of a name, and of one that is exempt."""
    for query in (
        Asked("x", "replicas", is_group=False, equal=frozenset({"attempt", "state"}), ordered=()),
        Asked("x", "ledger", is_group=True, equal=frozenset({"job_id"}), ordered=()),
        Asked("x", "jobs", is_group=False, equal=frozenset({"spec_json"}), ordered=()),
        Asked("x", "jobs", is_group=False, equal=frozenset({"is_live"}), ordered=(("created_at", "DESCENDING"),)),
    ):
        assert missing(query, plan)
