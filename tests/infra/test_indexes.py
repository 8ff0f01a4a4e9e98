"""The store's queries, compared with the indexes in infra/. Firestore requires them; the emulator
does not.

Every method of the Store is called on the emulator. The queries that its client sends are compared
with the plan. Source: Firestore, "Index types": a query by one property of one collection uses an
automatic index, unless the property is exempt; all other queries need an index of their own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from google.cloud.firestore_v1.types import StructuredQuery
from google.protobuf.json_format import MessageToDict

from tests.infra.conftest import Plan
from tests.support.jobs import CHIEF
from tests.support.world import World
from trainmaster.core.model.job import JobState, Label
from trainmaster.core.reconcile.attention import CHANGING
from trainmaster.gcp import clients
from trainmaster.gcp.firestore.documents import EXPIRE_AT
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import JobFilter, JobPosition, Loaded, Store
from trainmaster_emulators.checkout import ROOT

NOW: Final = datetime(2026, 11, 21, 3, tzinfo=UTC)


LISTS: Final = (
    None,
    JobFilter(),
    JobFilter(
        tuple(JobState), "anna@example.com", (Label("team", "vision"), Label("stage", "test"))
    ),
    JobFilter((JobState.FAILED,), labels=(Label("team", "vision"), Label("stage", "test"))),
    JobFilter((JobState.FAILED,), name="digits_1"),
    JobFilter((JobState.FAILED,)),
    JobFilter((JobState.FAILED, JobState.RUNNING)),
)


def attempt(store: FirestoreStore, world: World) -> Loaded:
    loaded = store.load_attempt(world.job_id)
    assert loaded is not None
    return loaded


CALLS: Final[dict[str, Callable[[FirestoreStore, World], object]]] = {
    "load": lambda store, world: store.load(world.job_id, world.replica(CHIEF).key),
    "round_ends": lambda store, world: store.round_ends(world.job_id, "1-1"),
    "losses_after": lambda store, world: store.losses_after(world.job_id, "1-2-held", "submitted"),
    "count_ready_for": lambda store, world: store.count_ready_for(world.job_id, "1-1", 0),
    "count_pending": lambda store, world: store.count_pending(world.job_id),
    "load_attempt": lambda store, world: store.load_attempt(world.job_id),
    "entry": lambda store, world: store.entry(world.job_id, "x"),
    "ledger": lambda store, world: store.ledger(world.job_id),
    "ledger_since": lambda store, world: store.ledger_since(world.job_id, NOW),
    "pending_keys": lambda store, world: store.pending_keys(world.job_id),
    "pending_entries": lambda store, world: store.pending_entries(attempt(store, world)),
    "is_pending": lambda store, world: store.is_pending(world.job_id, "x"),
    "take_lease": lambda store, world: store.take_lease("x", NOW, NOW),
    "count_replicas": lambda store, world: store.count_replicas(world.job_id, 1, CHANGING),
    "count_live": lambda store, world: store.count_live(),
    "jobs_with_pending": lambda store, world: store.jobs_with_pending(),
    "open_notifications": lambda store, world: store.open_notifications(5),
    "kept_machines": lambda store, world: store.kept_machines(),
    "live_jobs": lambda store, world: store.live_jobs(),
    "live_pages": lambda store, world: [
        list(store.live_pages(waiting=waiting)) for waiting in (True, False)
    ],
    "overdue_waits": lambda store, world: store.overdue_waits(NOW),
    "queue": lambda store, world: store.queue(),
    "sweep_requests": lambda store, world: store.sweep_requests(),
    "admission_token": lambda store, world: store.admission_token(),
    "recent_jobs": lambda store, world: [
        store.recent_jobs(5, JobPosition(NOW, world.job_id), only) for only in LISTS
    ],
    "failing_replicas": lambda store, world: store.failing_replicas([world.job]),
    "count_by_state": lambda store, world: (
        store.count_by_state(),
        store.count_by_state(Label("team", "vision")),
    ),
    "count_created_since": lambda store, world: store.count_created_since(NOW, through_api=True),
    "count_ready": lambda store, world: store.count_ready(world.job_id, 1, 0),
    "expire_history": lambda store, world: store.expire_history(world.job_id, NOW),
    "rejections": lambda store, world: (store.rejections(5), store.rejections(1, "x")),
    "owner_of_vm": lambda store, world: store.owner_of_vm(world.vms[0].name),
    "outcomes": lambda store, world: store.outcomes([("us-central1-a", "n1-standard-4")]),
    "stockouts": lambda store, world: store.stockouts(NOW),
    "orphans": lambda store, world: store.orphans(),
}
WRITE_ONLY: Final = {
    "commit",
    "mark_done",
    "confirm_notification",
    "extend_lease",
    "release_lease",
    "next_admission_token",
    "store_queue",
    "note_sweep_requests",
    "note_sweep_reached",
    "reject",
    "note_outcome",
    "report_orphan",
    "forget_orphan",
}
ASCENDING: Final = "ASCENDING"
Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    method: str
    """Method of the Store that sends it."""
    collection: str
    is_group: bool
    """Whether it covers all collections of this name."""
    equal: frozenset[str]
    """Properties compared for equality, also with null or with an element of an array."""
    ordered: tuple[tuple[str, str], ...]
    """Properties compared otherwise or ordered by, with their direction."""

    @property
    def properties(self) -> set[str]:
        return {*self.equal, *(name for name, _ in self.ordered)}


@pytest.fixture
def queries(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Query]]:
    """Return all queries that the methods of the Store send."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    client = clients.firestore_client(f"test-{uuid.uuid4().hex[:8]}")
    store = FirestoreStore(client)
    world = World(store=store)  # type: ignore[arg-type]  # another store
    world.start_running()
    recorded: list[Query] = []
    method = ""
    api = client._firestore_api
    run_query, run_aggregation = api.run_query, api.run_aggregation_query

    def record(query: Any) -> None:
        recorded.append(read_query(method, MessageToDict(StructuredQuery.pb(query))))

    def recorded_query(request: Json, **options: Any) -> Any:
        record(request["structured_query"])
        return run_query(request, **options)

    def recorded_aggregation(request: Json, **options: Any) -> Any:
        record(request["structured_aggregation_query"].structured_query)
        return run_aggregation(request, **options)

    monkeypatch.setattr(api, "run_query", recorded_query)
    monkeypatch.setattr(api, "run_aggregation_query", recorded_aggregation)
    for method, call in CALLS.items():  # noqa: B007 - `record` reads it
        call(store, world)
    yield recorded
    client.close()


def read_query(method: str, query: Json) -> Query:
    (source,) = query["from"]
    equal: set[str] = set()
    ordered: dict[str, str] = {}
    for condition in filters(query.get("where", {})):
        if condition["op"] in ("EQUAL", "IS_NULL", "ARRAY_CONTAINS", "IN"):
            equal.add(condition["field"]["fieldPath"])
        else:
            ordered[condition["field"]["fieldPath"]] = ASCENDING
    for order in query.get("orderBy", ()):
        ordered[order["field"]["fieldPath"]] = order["direction"]
    ordered.pop("__name__", None)
    is_group = source.get("allDescendants", False)
    return Query(method, source["collectionId"], is_group, frozenset(equal), tuple(ordered.items()))


def filters(where: Json) -> Iterator[Json]:
    if "fieldFilter" in where:
        yield where["fieldFilter"]
    if "unaryFilter" in where:
        yield where["unaryFilter"]
    for part in where.get("compositeFilter", {}).get("filters", ()):
        yield from filters(part)


def missing_index(query: Query, plan: Plan) -> str:
    """Describe the index that the query lacks; return an empty string if it has one."""
    scope = "COLLECTION_GROUP" if query.is_group else "COLLECTION"
    if not query.properties:
        return ""
    if len(query.properties) == 1:
        (name,) = query.properties
        available = property_indexes(plan, query.collection, name)
        directions = {direction for _, direction in query.ordered} or {ASCENDING}
        needed = {(scope, direction) for direction in directions}
        return (
            ""
            if needed <= available
            else f"{query}: {name} is indexed for {sorted(available)} only"
        )
    for index in plan.of("google_firestore_index").values():
        fields = [
            (field["field_path"], field.get("order") or field["array_config"])
            for field in index["fields"]
        ]
        leading = {name for name, _ in fields[: len(query.equal)]}
        is_applicable = (
            index["collection"] == query.collection
            and index.get("query_scope", "COLLECTION") == scope
        )
        if (
            is_applicable
            and leading == query.equal
            and tuple(fields[len(query.equal) :]) == query.ordered
        ):
            return ""
    return f"{query}: there is no index for these properties"


def property_indexes(plan: Plan, collection: str, name: str) -> set[tuple[str, str]]:
    """Return scopes and directions in which one property is indexed."""
    for field in plan.of("google_firestore_field").values():
        if (field["collection"], field["field"]) == (collection, name):
            indexes = field["index_config"][0].get("indexes", [])
            return {(index.get("query_scope", "COLLECTION"), index["order"]) for index in indexes}
    return {("COLLECTION", ASCENDING), ("COLLECTION", "DESCENDING")}


def test_calls_cover_every_reading_method_of_the_store() -> None:
    members = {name: member for part in Store.__bases__ for name, member in vars(part).items()}
    methods = {
        name for name, member in members.items() if callable(member) and not name.startswith("_")
    }
    assert methods == {*CALLS, *WRITE_ONLY}


def test_every_query_has_an_index(queries: list[Query], plan: Plan) -> None:
    assert queries
    assert [problem for query in queries if (problem := missing_index(query, plan))] == []


def test_every_index_is_used_by_a_query(queries: list[Query], plan: Plan) -> None:
    """An unused index costs money with every document that is written."""
    composite = {
        (query.collection, frozenset(query.properties))
        for query in queries
        if len(query.properties) > 1
    }
    planned = {
        (index["collection"], frozenset(field["field_path"] for field in index["fields"]))
        for index in plan.of("google_firestore_index").values()
    }
    assert planned == composite


def test_fields_that_the_store_writes_as_expiry_have_ttl_policies(plan: Plan) -> None:
    """tests/contract/test_expiry.py shows which documents have them."""
    policies = {
        (field["collection"], field["field"])
        for field in plan.of("google_firestore_field").values()
        if field.get("ttl_config")
    }
    collections = ("replicas", "ledger", "rejections", "capacity")
    assert policies == {*((name, EXPIRE_AT) for name in collections), ("leases", "expires_at")}


def test_query_without_an_index_is_detected(plan: Plan) -> None:
    """The queries filter by two properties, over a collection group, by an exempt property, or
    order by another one.
    """
    for query in (
        Query(
            "x", "replicas", is_group=False, equal=frozenset({"attempt", "incarnation"}), ordered=()
        ),
        Query("x", "ledger", is_group=True, equal=frozenset({"job_id"}), ordered=()),
        Query("x", "jobs", is_group=False, equal=frozenset({"spec_json"}), ordered=()),
        Query(
            "x",
            "jobs",
            is_group=False,
            equal=frozenset({"is_live"}),
            ordered=(("created_at", "DESCENDING"),),
        ),
    ):
        assert missing_index(query, plan)


def test_restore_runbook_creates_each_index_before_the_import() -> None:
    declared = re.findall(
        r'resource "(google_firestore_(?:index|field))" "(\w+)"',
        (ROOT / "infra/firestore.tf").read_text(),
    )
    runbook = (ROOT / "docs/runbooks.md").read_text()
    assert set(re.findall(r"-target=([\w.]+)", runbook)) == {
        f"{kind}.{name}" for kind, name in declared
    }
