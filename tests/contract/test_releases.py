"""Compatibility of releases with the same schema version, in both directions.

recorded documents          read, complete and with required fields only; all fields are written
documents of a newer        read: unknown fields are ignored
release
documents of another        a temporary error, so that the event waits for a release that can
schema version              read them

A case of the corpus is a document twice: `whole` with every field, `least` with the required ones.
"""

from __future__ import annotations

import json
from typing import Any, Final, get_args

import pytest

from tests.contract.release_corpus import DECODERS, FOLDER, KINDS, MESSAGES, decode
from trainmaster.core.actions import Action
from trainmaster.core.events import Event
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.firestore import documents
from trainmaster.messaging import internal_requests
from trainmaster.messaging.internal_requests import ProvisionRequest

CORPUS: Final = FOLDER / str(documents.SCHEMA)
DOCUMENTS: Final[list[dict[str, Any]]] = json.loads(
    (CORPUS / "documents.json").read_text(encoding="utf-8"), object_hook=decode
)
SENT: Final[list[tuple[str, dict[str, Any]]]] = [
    (case["function"], case["message"])
    for case in json.loads((CORPUS / "messages.json").read_text(encoding="utf-8"))
]


def a_name(case: dict[str, Any]) -> str:
    kinds = kinds_of_entry(case["whole"]) if case["kind"] == "ledger" else ()
    return "-".join([case["kind"], *kinds])


def kinds_of_entry(document: dict[str, Any]) -> tuple[str, str]:
    """Return the kinds of the event and of the action."""
    event, decision = json.loads(document["event"]), json.loads(document["decision"])
    return event["kind"], decision["action"]["kind"]


def is_object(value: Any) -> bool:
    """Whether the value is a JSON object as text."""
    return isinstance(value, str) and value.startswith("{")


def with_unknown_fields(value: Any) -> Any:
    """Add an unknown field to every object."""
    if is_object(value):
        return json.dumps(with_unknown_fields(json.loads(value)))
    if isinstance(value, dict):
        return {
            "of_a_newer_release": {"a": [1]},
            **{name: with_unknown_fields(item) for name, item in value.items()},
        }
    return [with_unknown_fields(item) for item in value] if isinstance(value, list) else value


def holds(now: Any, then: Any) -> bool:
    """Whether all fields of `then` are in `now`, with the same values."""
    if is_object(then):
        return holds(json.loads(now), json.loads(then))
    if isinstance(then, dict):
        return all(name in now and holds(now[name], value) for name, value in then.items())
    if isinstance(then, list):
        return len(now) == len(then) and all(map(holds, now, then))
    return bool(now == then)


@pytest.mark.parametrize("case", DOCUMENTS, ids=map(a_name, DOCUMENTS))
def test_documents_of_the_release_are_read_and_written_alike(case: dict[str, Any]) -> None:
    kind, make_document = KINDS[case["kind"]]
    assert documents.read(kind, case["whole"])
    value = documents.read(kind, case["least"])
    assert holds(make_document(value), case["least"])


@pytest.mark.parametrize("case", DOCUMENTS, ids=map(a_name, DOCUMENTS))
def test_fields_of_a_newer_release_are_ignored(case: dict[str, Any]) -> None:
    kind, _ = KINDS[case["kind"]]
    assert documents.read(kind, with_unknown_fields(case["whole"])) == documents.read(
        kind, case["whole"]
    )


def test_corpus_has_a_document_of_every_kind_of_event_and_action() -> None:
    entries = [case["whole"] for case in DOCUMENTS if case["kind"] == "ledger"]
    events, actions = map(set, zip(*map(kinds_of_entry, entries), strict=True))
    assert events == {_kind(event) for event in get_args(Event)}
    assert actions == {_kind(action) for action in get_args(Action)}
    assert {case["kind"] for case in DOCUMENTS} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_document_of_another_schema_version_is_a_temporary_error(kind: str) -> None:
    reader, _ = KINDS[kind]
    stored = next(case["whole"] for case in DOCUMENTS if case["kind"] == kind)
    assert stored["schema"] == documents.SCHEMA
    newer = documents.SCHEMA + 1
    with pytest.raises(TemporaryError, match=f"schema version {newer}"):
        documents.read(reader, {**stored, "schema": newer})


@pytest.mark.parametrize(
    ("kind", "field"), [("job", "plan"), ("ledger", "event"), ("ledger", "decision")]
)
@pytest.mark.parametrize("value", [None, {"kind": "vm_ready"}, "{", "[1]"])
def test_error_names_the_field_whose_text_cannot_be_read(
    kind: str, field: str, value: object
) -> None:
    stored = next(case["whole"] for case in DOCUMENTS if case["kind"] == kind)
    reader, _ = KINDS[kind]
    with pytest.raises(TemporaryError, match=f"read as {reader.__name__}: {field}"):
        documents.read(reader, {**stored, field: value})


@pytest.mark.parametrize(("function", "message"), SENT)
def test_messages_of_the_release_are_decoded(function: str, message: dict[str, Any]) -> None:
    understand = DECODERS[function]
    understood = understand(json.dumps(message).encode())
    assert understood == understand(json.dumps({"of_a_newer_release": 1, **message}).encode())
    assert understood


@pytest.mark.parametrize(
    ("function", "message"),
    [(function, message) for function, message in SENT if "version" in message],
)
def test_message_of_another_version_is_a_permanent_error(
    function: str, message: dict[str, Any]
) -> None:
    with pytest.raises(PermanentError, match="version"):
        DECODERS[function](json.dumps({**message, "version": 2}).encode())


def test_messages_that_this_release_sends_are_in_the_corpus() -> None:
    provisions = [message for function, message in SENT if function == "provision"]
    assert (
        json.loads(internal_requests.encode_provision(ProvisionRequest("digits_1"))) in provisions
    )
    assert json.loads(internal_requests.encode_orphan_search()) in provisions
    assert all(
        (function, message) in SENT
        for function, messages in MESSAGES.items()
        for message in messages
    )


def _kind(event_or_action: Any) -> str:
    return str(event_or_action.__dataclass_fields__["kind"].default)
