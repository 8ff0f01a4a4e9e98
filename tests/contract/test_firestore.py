"""Our own calls of Firestore, held against Google's client: each reads what the other wrote, on the emulator."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore

from shared.core.model.replica_id import TaskType
from shared.gcp.firestore import Firestore, Order, Write, at_least, create, equal, update
from shared.gcp.rest import RestError

NOW = datetime(2026, 11, 21, 3, 0, 0, 123457, UTC)
VALUES: dict[str, Any] = {
    "nothing": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "great": 2**63 - 1,
    "small": -(2**63),
    "half": 0.5,
    "whole_float": 3.0,
    "text": 'é "quoted" \\ \n\x00 \U0001f600',
    "empty_text": "",
    "at": NOW,
    "on_the_second": NOW.replace(microsecond=0),
    "list": [1, "two", None, {"three": [3]}],
    "empty_list": [],
    "empty_map": {},
    "map": {"a": {"b": {"c": [NOW]}}, "with.dot and space": 1},
}


@dataclass
class Both:
    ours: Firestore
    google: Any

    def read(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.google.document(path).get().to_dict()
        return found


@pytest.fixture
def both(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    project = f"test-{uuid.uuid4().hex[:12]}"
    google = firestore.Client(project=project, credentials=AnonymousCredentials())
    ours = Firestore(project)
    yield Both(ours, google)
    ours.close()
    google.close()


def test_google_reads_what_we_wrote(both: Both) -> None:
    both.ours.commit(create("things/one", VALUES))
    assert both.read("things/one") == VALUES


def test_we_read_what_google_wrote_to_the_kind_and_the_microsecond(both: Both) -> None:
    both.google.document("things/one").create({**VALUES, "nan": math.nan, "endless": -math.inf})
    (found,) = both.ours.get("things/one", "things/two").values()
    nan, endless = found.fields["nan"], found.fields["endless"]
    assert (math.isnan(nan), endless) == (True, -math.inf)
    read = {name: found.fields[name] for name in VALUES}
    assert read == VALUES
    assert {name: type(value) for name, value in read.items()} == {name: type(VALUES[name]) for name in VALUES}
    assert found.path == "things/one"
    assert found.created_at.tzinfo is not None


def test_what_our_values_are_made_of_is_stored_as_what_it_is(both: Both) -> None:
    there = timezone(timedelta(hours=2))
    both.ours.commit(
        create("things/one", {"word": TaskType.WORKER, "tuple": (1, (2,))[:1], "at": NOW.astimezone(there)})
    )
    assert both.read("things/one") == {"word": "worker", "tuple": [1], "at": NOW}


@pytest.mark.parametrize("value", [b"bytes", {1}, object(), datetime(2026, 1, 1)])  # noqa: DTZ001 - that is the point
def test_what_we_never_store_is_a_bug(both: Both, value: object) -> None:
    with pytest.raises(TypeError):
        both.ours.commit(create("things/one", {"x": value}))


def test_an_update_leaves_other_fields_and_is_refused_where_nothing_is_or_somebody_was_faster(both: Both) -> None:
    both.ours.commit(create("things/one", {"a": 1, "b": {"old": 1}}))
    before = both.ours.get("things/one")["things/one"].update_time
    both.ours.commit(update("things/one", {"b": {"new": 2}}, before))
    assert both.read("things/one") == {"a": 1, "b": {"new": 2}}
    for write, code in (
        (update("things/one", {"a": 2}, before), "FAILED_PRECONDITION"),
        (update("things/two", {"a": 2}), "NOT_FOUND"),
        (create("things/one", {}), "ALREADY_EXISTS"),
    ):
        with pytest.raises(RestError) as refused:
            both.ours.commit(Write("things/three", {"beside": 1}), write)
        assert refused.value.code == code
        assert both.ours.get("things/three") == {}, "all of it or nothing"
    both.ours.commit(Write("things/one", {"only": 1}))
    assert both.read("things/one") == {"only": 1}
    both.ours.commit(Write("things/one", None))
    assert both.ours.get("things/one") == {}


def test_documents_are_found_counted_and_paged_as_google_finds_them(both: Both) -> None:
    for nth in range(5):
        both.google.document(f"jobs/j{nth}/ledger/e{nth}").create({"n": nth // 2, "job_id": f"j{nth}", "open": nth > 1})
    ledger = both.ours.find("ledger", equal("open", True), everywhere=True, fields=["job_id"])
    assert sorted((each.id, tuple(each.fields.items())) for each in ledger) == [
        (f"e{nth}", (("job_id", f"j{nth}"),)) for nth in (2, 3, 4)
    ]
    assert both.ours.find("jobs/j3/ledger", equal("open", False)) == []
    for nth in range(5):
        both.google.document(f"flat/f{nth}").create({"n": nth // 2})
    assert both.ours.count("flat", at_least("n", 1)) == 3
    assert both.ours.count("flat", at_least("n", 1), equal("n", 2)) == 1
    listed, after = [], None
    while page := both.ours.find("flat", order=Order("n", 2, after)):
        listed += [each.id for each in page]
        after = (page[-1].fields["n"], page[-1].path)
    assert listed == ["f4", "f3", "f2", "f1", "f0"]


def test_a_collection_below_a_document_of_any_name_is_found(both: Both) -> None:
    both.ours.commit(create("jobs/ä b%2F?#/ledger/x", {"n": 1}))
    assert [each.path for each in both.ours.find("jobs/ä b%2F?#/ledger")] == ["jobs/ä b%2F?#/ledger/x"]
