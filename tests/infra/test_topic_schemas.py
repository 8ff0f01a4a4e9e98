"""The schemas of the agents' topics: they accept the messages of agents of all releases and reject
other messages.

protoc compiles the schemas, and Protocol Buffers' JSON parser reads the messages, as in Pub/Sub
with JSON encoding. The Pub/Sub emulator supports Avro schemas only. `trainmaster doctor` checks the
schemas with Google's Pub/Sub.

The fixture `plan` has the defaults, `reduced_plan` has nothing that can be left out
(`conftest.py`).
"""

from __future__ import annotations

import json
import threading
import types
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_tools import protoc
from pydantic import AwareDatetime, BaseModel

from tests.contract.release_corpus import FOLDER, MESSAGES
from tests.infra.conftest import Plan
from trainmaster.agent.model.clock import Clock
from trainmaster.agent.model.vm_config import IncarnationKey, VmRef
from trainmaster.agent.reporting.events import EventReporter
from trainmaster.gcp.firestore import documents
from trainmaster.messaging import agent_messages
from trainmaster_emulators.checkout import ROOT

SCHEMAS: Final = ROOT / "infra" / "schemas"
RELEASED: Final = FOLDER / str(documents.SCHEMA)
MODELS: Final[dict[str, type[BaseModel]]] = {
    "vm-ready": agent_messages.VmReadyMessage,
    "replica-exit": agent_messages.ReplicaExitMessage,
    "maintenance": agent_messages.MaintenanceMessage,
}
WITH_SCHEMA: Final = (*MODELS, "job-state")
"""`job-state` is no message of an agent: tests/infra/test_notifications.py."""
TYPES: Final = {
    int: FieldDescriptor.TYPE_INT32,
    float: FieldDescriptor.TYPE_DOUBLE,
    str: FieldDescriptor.TYPE_STRING,
    bool: FieldDescriptor.TYPE_BOOL,
}
SAME: Final = {FieldDescriptor.TYPE_INT64: FieldDescriptor.TYPE_INT32}
"""Types that count as equal: int64 is used for the step counts of programs."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Descriptor]:
    """Compile every schema in its own pool, because the messages of two releases have the same
    name.
    """
    return {
        path: compile_schema(path, tmp_path_factory.mktemp("proto") / "descriptors")
        for path in (*SCHEMAS.glob("*.proto"), *RELEASED.glob("*.proto"))
    }


def compile_schema(path: Path, output: Path) -> Descriptor:
    """Compile a schema in a pool of its own. `output` is the file that protoc writes."""
    command = ["protoc", f"--proto_path={path.parent}", f"--descriptor_set_out={output}", str(path)]
    assert protoc.main(command) == 0, path
    files = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(files.file[0])
    (message,) = files.file[0].message_type  # Pub/Sub accepts one top-level message and no imports
    assert not files.file[0].dependency
    return pool.FindMessageTypeByName(message.name)


def accepts(descriptor: Descriptor, message: object) -> bool:
    try:
        parsed = json_format.Parse(
            json.dumps(message), message_factory.GetMessageClass(descriptor)()
        )
    except json_format.ParseError:
        return False
    return bool(parsed.IsInitialized())


def released_messages(topic: str) -> list[dict[str, Any]]:
    return [
        message for message in MESSAGES[topic.replace("-", "_")] if "protoPayload" not in message
    ]


@pytest.mark.parametrize("topic", MODELS)
def test_schema_has_exactly_the_fields_that_functions_read(
    topic: str, compiled: dict[Path, Descriptor]
) -> None:
    """A field that was added to a schema in use is optional there, even if the functions require
    it.
    """
    schema, model = fields(compiled[SCHEMAS / f"{topic}.proto"]), fields_of_model(MODELS[topic])
    assert without_required(schema) == without_required(model)
    assert {path for path in required(model) if not path.startswith(".ended.")} == required(schema)


@pytest.mark.parametrize("topic", MODELS)
def test_schema_accepts_messages_of_all_releases(
    topic: str, compiled: dict[Path, Descriptor]
) -> None:
    for message in released_messages(topic):
        assert accepts(compiled[SCHEMAS / f"{topic}.proto"], message), message


def test_schema_accepts_messages_of_the_current_agent(compiled: dict[Path, Descriptor]) -> None:
    for topic, message in current_messages():
        assert accepts(compiled[SCHEMAS / f"{topic}.proto"], message), message


@pytest.mark.parametrize("topic", MODELS)
def test_schema_rejects_incomplete_and_wrong_messages(
    topic: str, compiled: dict[Path, Descriptor]
) -> None:
    schema = compiled[SCHEMAS / f"{topic}.proto"]
    right = released_messages(topic)[0]
    assert accepts(schema, right)
    for name in MODELS[topic].model_fields:
        if MODELS[topic].model_fields[name].is_required():
            assert not accepts(
                schema, {key: value for key, value in right.items() if key != name}
            ), name
    wrong = [
        {**right, "attempt": "first"},
        {**right, "vm": "tm-x"},
        {**right, "vm": {}},
        {**right, "unknown_field": 1},
        {},
        [],
    ]
    assert not [message for message in wrong if accepts(schema, message)]


@pytest.mark.parametrize("topic", MODELS)
def test_schema_changes_since_the_release_can_be_committed(
    topic: str, compiled: dict[Path, Descriptor]
) -> None:
    """Source: "Commit a schema revision": optional fields of a Protocol Buffers schema may be added
    and removed.
    """
    current, released = (
        list(every_field(compiled[folder / f"{topic}.proto"])) for folder in (SCHEMAS, RELEASED)
    )
    used_numbers = {(path.rpartition(".")[0], number) for path, number, _, _ in released}
    assert {field for field in released if field[3]} <= set(current), (
        "required fields must not change"
    )
    for path, number, kind, is_required in set(current) - set(released):
        assert not is_required, path
        assert (path.rpartition(".")[0], number) not in used_numbers, (
            f"{path}: the number {number} belonged to another field, or to another type"
        )
        assert kind, path


def test_only_the_topics_of_agents_and_subscribers_have_schemas(plan: Plan) -> None:
    schemas = {
        schema["name"]: schema["definition"] for schema in plan.of("google_pubsub_schema").values()
    }
    assert schemas == {
        f"trainmaster-{topic}": (SCHEMAS / f"{topic}.proto").read_text(encoding="utf-8")
        for topic in WITH_SCHEMA
    }
    settings = {
        topic["name"]: topic["schema_settings"] for topic in plan.of("google_pubsub_topic").values()
    }
    assert {name: blocks[0]["schema"] for name, blocks in settings.items() if blocks} == {
        f"trainmaster-{topic}": f"projects/my-project/schemas/trainmaster-{topic}"
        for topic in WITH_SCHEMA
    }
    assert {blocks[0]["encoding"] for blocks in settings.values() if blocks} == {"JSON"}


def test_schemas_can_be_disabled(reduced_plan: Plan) -> None:
    assert not reduced_plan.of("google_pubsub_schema")
    assert not [
        name
        for name, topic in reduced_plan.of("google_pubsub_topic").items()
        if topic["schema_settings"]
    ]


def fields(descriptor: Descriptor) -> dict[str, tuple[Any, bool]]:
    """Return name → type (for a message, its fields) and whether the field is required."""

    def kind(field: FieldDescriptor) -> Any:
        single = (
            fields(field.message_type) if field.message_type else SAME.get(field.type, field.type)
        )
        return ("repeated", single) if field.is_repeated else single

    return {field.name: (kind(field), field.is_required) for field in descriptor.fields}


def fields_of_model(model: type[BaseModel]) -> dict[str, tuple[Any, bool]]:
    return {
        name: (schema_type(field.annotation), field.is_required())
        for name, field in model.model_fields.items()
    }


def without_required(kind: Any) -> Any:
    """Return the types of the fields alone."""
    if isinstance(kind, dict):
        return {name: without_required(of) for name, (of, _) in kind.items()}
    return ("repeated", without_required(kind[1])) if isinstance(kind, tuple) else kind


def required(kind: Any, within: str = "") -> set[str]:
    """Return the paths of required fields."""
    if isinstance(kind, tuple):
        return required(kind[1], within)
    if not isinstance(kind, dict):
        return set()
    paths = {f"{within}.{name}" for name, (_, is_required) in kind.items() if is_required}
    return paths.union(*(required(of, f"{within}.{name}") for name, (of, _) in kind.items()))


def schema_type(annotation: Any) -> Any:
    """Return the type in the schema.

    Enums and times are strings there, so that a new word needs no new schema.
    """
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (member for member in get_args(annotation) if member is not type(None))
    if get_origin(annotation) is Annotated:
        return schema_type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return schema_type(type(get_args(annotation)[0]))
    if get_origin(annotation) is tuple:
        return "repeated", schema_type(get_args(annotation)[0])
    if issubclass(annotation, BaseModel):
        return fields_of_model(annotation)
    if issubclass(annotation, Enum | AwareDatetime | datetime):
        return FieldDescriptor.TYPE_STRING
    return TYPES[annotation]


def every_field(descriptor: Descriptor, within: str = "") -> Iterator[tuple[str, int, int, bool]]:
    """Yield path, number, type, and whether the field is required."""
    for field in descriptor.fields:
        path = f"{within}.{field.name}"
        yield path, field.number, field.type, field.is_required
        if field.message_type:
            yield from every_field(field.message_type, path)


def current_messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield topic and body of the messages that the agent's code builds, for a VM and for a host of
    a slice.
    """
    for host in (None, SimpleNamespace(number=3)):
        topics = {
            name: name.replace("_", "-") for name in ("vm_ready", "replica_exit", "maintenance")
        }
        config = SimpleNamespace(
            job_id="digits_1",
            task_type="worker",
            vm_generation=2,
            project="p",
            topics=topics,
            tenure_key="",
        )
        replica_id = SimpleNamespace(
            index=0, config=config, host=host, vm=VmRef("tm-x", "us-central1-a", "4711")
        )
        stub: Any = SimpleNamespace(
            post=lambda accepted: None, clock=Clock(), new_condition=threading.Condition
        )
        report = EventReporter(replica_id, stub, stub, stub)  # type: ignore[arg-type]  # the attributes that it reads
        error = {"type": "ValueError", "message": "bad shape", "frame": ""}
        fact = {
            "cause": "process",
            "exit_status": None,
            "signal": 9,
            "out_of_memory": True,
            "error": error,
            "tail": "é",
            "metric": {"value": 0.93, "step": 2**53},
        }
        ended = {"attempt": 1, "incarnation": 1, "at": "2026-11-21T02:58:00.123Z", **fact}
        report.report_ready(IncarnationKey(1, 1))
        report.report_ready(IncarnationKey(1, 2), ended=ended, is_held=True)
        report.report_exit(IncarnationKey(1, 1), fact, lambda: None)
        setup = {"cause": "setup", "error": error, "tail": "", "ended": ended}
        report.report_exit(IncarnationKey(1, 2), setup, lambda: None)
        report.report_maintenance(IncarnationKey(1, 1), "preemption", lambda: None)
        for event in (*report._incarnation_events._events, *report._maintenance_events._events):
            yield event.topic, dict(event.body)
