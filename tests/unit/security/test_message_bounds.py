"""No number in a message is larger than Firestore stores: such a message would fail and be
redelivered without end.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tests.support.jobs import CHIEF
from tests.support.world import World
from trainmaster.errors import PermanentError
from trainmaster.messaging import agent_messages, google_events, internal_requests
from trainmaster.messaging.decoding import VALUES_MAX, MessageModel

FIRESTORE_MAX: Final = 2**63 - 1
HUGE: Final = 10**30
MESSAGE: Final[dict[str, Any]] = {
    "version": 1,
    "job_id": "digits_1",
    "attempt": 1,
    "task_type": "worker",
    "task_index": 0,
    "incarnation": 1,
    "vm_generation": 1,
    "vm": {"name": "tm-x", "zone": "us-central1-a", "instance_id": "4711"},
    "at": "2026-11-21T03:00:00.123Z",
}


def message_models(base: type[BaseModel] = MessageModel) -> Iterator[type[BaseModel]]:
    for model in sorted(base.__subclasses__(), key=lambda model: model.__name__):
        yield model
        yield from message_models(model)


def field_constraints(annotations: Iterable[Any]) -> list[Any]:
    """Return the constraints of the fields among the annotations of a type."""
    return [
        constraint
        for item in annotations
        if isinstance(item, FieldInfo)
        for constraint in item.metadata
    ]


def integers(kind: Any, metadata: list[Any]) -> Iterator[list[Any]]:
    """Yield the constraints of every integer in a type."""
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        yield from integers(inner, [*metadata, *field_constraints(more)])
    elif get_origin(kind) in (Union, types.UnionType):
        for member in get_args(kind):
            yield from integers(member, metadata)
    elif kind is int:
        yield metadata


FIELDS: Final = [(model, name) for model in message_models() for name in model.model_fields]


@pytest.mark.parametrize(("model", "name"), FIELDS)
def test_integer_of_a_message_has_an_upper_and_a_lower_bound(
    model: type[BaseModel], name: str
) -> None:
    field = model.model_fields[name]
    for constraints in integers(field.annotation, list(field.metadata)):
        upper = [constraint.le for constraint in constraints if hasattr(constraint, "le")]
        lower = [constraint.ge for constraint in constraints if hasattr(constraint, "ge")]
        assert upper, "no upper bound"
        assert lower, "no lower bound"
        assert max(map(abs, upper + lower)) <= FIRESTORE_MAX


def test_models_with_integers_are_found() -> None:
    found = {
        name
        for model, name in FIELDS
        for _ in integers(model.model_fields[name].annotation, metadata=[])
    }
    assert {
        "attempt",
        "task_index",
        "incarnation",
        "vm_generation",
        "host",
        "exit_status",
        "signal",
        "number",
    } <= found


@pytest.mark.parametrize("field", ["attempt", "task_index", "incarnation", "vm_generation", "host"])
@pytest.mark.parametrize("value", [HUGE, -HUGE, 2**31])
def test_huge_number_in_an_agents_message_is_a_permanent_error(field: str, value: int) -> None:
    with pytest.raises(PermanentError, match=field):
        agent_messages.decode_vm_ready(json.dumps({**MESSAGE, field: value}).encode())


@pytest.mark.parametrize("field", ["exit_status", "signal"])
def test_huge_exit_status_or_signal_is_a_permanent_error(field: str) -> None:
    data = json.dumps({**MESSAGE, "cause": "process", field: HUGE}).encode()
    with pytest.raises(PermanentError, match=field):
        agent_messages.decode_replica_exit(data)


@pytest.mark.parametrize("ran_s", [1e300, 1e11, -1.0, float("nan"), float("inf")])
def test_endless_run_time_of_a_program_is_a_permanent_error(ran_s: float) -> None:
    """Rules subtract it from the time of the exit."""
    data = json.dumps({**MESSAGE, "cause": "process", "exit_status": 1, "ran_s": ran_s}).encode()
    with pytest.raises(PermanentError, match="ran_s"):
        agent_messages.decode_replica_exit(data)


@pytest.mark.parametrize("field", ["at", "agent_started_at"])
@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "1979-12-31T23:59:59Z"]
)
def test_time_at_the_ends_of_the_calendar_is_a_permanent_error(field: str, time: str) -> None:
    """In UTC, these times are in years that Python does not have."""
    with pytest.raises(PermanentError, match=field):
        agent_messages.decode_vm_ready(json.dumps({**MESSAGE, field: time}).encode())


@pytest.mark.parametrize("at", ["1980-01-01T00:00:00Z", "2200-01-01T00:00:00Z"])
def test_rules_can_calculate_with_every_permitted_time_and_run_time(at: str) -> None:
    """A program reports extreme times about itself: its exit is judged, and not delivered again
    without end.
    """
    world = World()
    world.start_running()
    world.exit_program(CHIEF, at=at, ran_s=agent_messages.RAN_S_MAX)
    assert [entry.event.kind for entry in world.ledger][-1] == "replica_exited"
    world.check()


@pytest.mark.parametrize("name", ["name", "zone", "instance_id"])
def test_endless_name_of_a_vm_is_a_permanent_error(name: str) -> None:
    """The id of a VM becomes part of a document id."""
    vm = {**MESSAGE["vm"], name: "9" * 2000}
    with pytest.raises(PermanentError, match=f"vm.{name}"):
        agent_messages.decode_vm_ready(json.dumps({**MESSAGE, "vm": vm}).encode())


@pytest.mark.parametrize("instance_id", ["a/b", "../x", "4711\n"])
def test_id_of_a_vm_cannot_lead_to_another_document(instance_id: str) -> None:
    vm = {**MESSAGE["vm"], "instance_id": instance_id}
    with pytest.raises(PermanentError, match="instance_id"):
        agent_messages.decode_vm_ready(json.dumps({**MESSAGE, "vm": vm}).encode())


def test_texts_of_an_exit_are_cut() -> None:
    error = {
        "type": "E" * 50_000,
        "message": "m" * 50_000,
        "frame": "f" * 50_000,
        "causes": ["c" * 5000] * 12,
    }
    data = json.dumps(
        {**MESSAGE, "cause": "process", "exit_status": 1, "error": error, "tail": "t" * 40_000}
    ).encode()
    event = agent_messages.decode_replica_exit(data)
    assert event.error is not None
    assert {
        len(event.error.type),
        len(event.error.message),
        len(event.error.frame),
        len(event.tail),
    } == {4096}
    assert [len(cause) for cause in event.error.causes] == [4096] * agent_messages.CAUSES_MAX


DECODERS: Final[list[Callable[[bytes], object]]] = [
    agent_messages.decode_subject,
    agent_messages.decode_vm_ready,
    agent_messages.decode_replica_exit,
    google_events.decode_maintenance,
    internal_requests.decode_provision,
    internal_requests.decode_tune,
    partial(
        google_events.decode_upload,
        {"bucketId": "b", "objectId": "jobs/x.yaml", "objectGeneration": "1"},
    ),
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("start", [b"", b'{"protoPayload": ', b'{"metric": {"earlier": '])
def test_deep_or_large_message_is_a_permanent_error(
    decode: Callable[[bytes], object], start: bytes
) -> None:
    large = json.dumps(
        {**MESSAGE, "cause": "process", "metric": {"value": 1, "earlier": [{}] * 100_000}}
    ).encode()
    items: tuple[object, ...] = ({}, [], 1)
    many = [
        json.dumps({**MESSAGE, "cause": "process", "x": [item] * (VALUES_MAX + 1)}).encode()
        for item in items
    ]
    for data in (start + b"[" * 2000, start + b'{"a":' * 2000, large, *many):
        with suppress(PermanentError):  # an upload may have any data, as long as it is small
            decode(data)
            assert data is not large, "a large message is accepted"
            assert data not in many, "a message with many values is accepted"


@pytest.mark.parametrize("text", ["[{," * 20_000, '"' * 20_000, "\\" * 20_000, '\\"[' * 20_000])
def test_text_of_a_message_counts_as_one_value(text: str) -> None:
    message = {**MESSAGE, "cause": "process", "exit_status": 1, "tail": text}
    assert agent_messages.decode_replica_exit(json.dumps(message).encode()).tail == text[-4096:]


def bounded(kind: Any, metadata: list[Any]) -> Iterator[bool]:
    """Yield for every list, tuple, set or mapping in a type whether its length is bounded."""
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        yield from bounded(inner, [*metadata, *field_constraints(more)])
        return
    if get_origin(kind) in (tuple, list, set, frozenset, dict):
        is_fixed = get_origin(kind) is tuple and Ellipsis not in get_args(kind)
        yield is_fixed or any(hasattr(constraint, "max_length") for constraint in metadata)
    for argument in get_args(kind):
        yield from bounded(argument, metadata=[])


def test_every_collection_of_a_message_has_a_largest_size() -> None:
    unbounded = [
        f"{model.__name__}.{name}"
        for model, name in FIELDS
        if not all(
            bounded(model.model_fields[name].annotation, list(model.model_fields[name].metadata))
        )
    ]
    assert unbounded == ["JobStateMessage.labels", "ReportedMetricModel.measurements"], (
        "the first is published and never decoded, and the text of the second has at most 16 KiB"
    )


@pytest.mark.parametrize("generation", [str(HUGE), "-1", "0", "9" * 5000, "1.5", ""])
def test_generation_of_an_upload_is_bounded(generation: str) -> None:
    attributes = {"bucketId": "b", "objectId": "jobs/x.yaml", "objectGeneration": generation}
    with pytest.raises(PermanentError, match="not a Cloud Storage notification"):
        google_events.decode_upload(attributes, b"{}")


def test_continuation_number_of_a_request_is_bounded() -> None:
    with pytest.raises(PermanentError, match="number"):
        internal_requests.decode_provision(
            json.dumps({"version": 1, "job_id": "x", "number": HUGE}).encode()
        )
