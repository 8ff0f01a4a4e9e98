"""The schemas of the agents' topics: what agents of any release say passes, and what is no message does not.

Compiled by protoc, and read by Protocol Buffers' own JSON parser, as Pub/Sub does with the encoding JSON. The Pub/Sub
emulator knows Avro schemas only; what Google's own Pub/Sub makes of them `trainmaster doctor` asks it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_tools import protoc
from pydantic import AwareDatetime, BaseModel

from emulators.stack.state import ROOT
from shared.agent.control.vm_config import Key, Vm
from shared.agent.reporting.events import Report
from shared.gcp import documents
from shared.messaging import codec
from tests.contract.release_corpus import FOLDER, MESSAGES
from tests.infra.conftest import Plan

SCHEMAS: Final = ROOT / "infra" / "schemas"
RELEASED: Final = FOLDER / str(documents.SCHEMA)
MODELS: Final[dict[str, type[BaseModel]]] = {
    "vm-ready": codec._AgentMessage,
    "replica-exit": codec._ReplicaExit,
    "maintenance": codec._Maintenance,
}
TYPES: Final = {
    int: FieldDescriptor.TYPE_INT32,
    float: FieldDescriptor.TYPE_DOUBLE,
    str: FieldDescriptor.TYPE_STRING,
    bool: FieldDescriptor.TYPE_BOOL,
}
SAME: Final = {FieldDescriptor.TYPE_INT64: FieldDescriptor.TYPE_INT32}
"""Whole numbers are of either size: programs count their steps themselves."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Descriptor]:
    """Each in a pool of its own: two releases have messages of one name."""
    found = {}
    for path in (*SCHEMAS.glob("*.proto"), *RELEASED.glob("*.proto")):
        output = tmp_path_factory.mktemp("proto") / "descriptors"
        said = ["protoc", f"--proto_path={path.parent}", f"--descriptor_set_out={output}", str(path)]
        assert protoc.main(said) == 0, path
        files = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
        pool = descriptor_pool.DescriptorPool()
        pool.Add(files.file[0])
        (message,) = files.file[0].message_type  # Pub/Sub takes one at the top, and no imports
        assert not files.file[0].dependency
        found[path] = pool.FindMessageTypeByName(message.name)
    return found


def takes(descriptor: Descriptor, message: object) -> bool:
    try:
        read = json_format.Parse(json.dumps(message), message_factory.GetMessageClass(descriptor)())
    except json_format.ParseError:
        return False
    return bool(read.IsInitialized())


def agents_messages(topic: str) -> list[dict[str, Any]]:
    return [each for each in MESSAGES[topic.replace("-", "_")] if "protoPayload" not in each]


@pytest.mark.parametrize("topic", MODELS)
def test_a_schema_has_the_fields_that_the_functions_read(topic: str, compiled: dict[Path, Descriptor]) -> None:
    assert fields(compiled[SCHEMAS / f"{topic}.proto"]) == fields_of_model(MODELS[topic])


@pytest.mark.parametrize("topic", MODELS)
def test_what_every_release_says_passes(topic: str, compiled: dict[Path, Descriptor]) -> None:
    for message in agents_messages(topic):
        assert takes(compiled[SCHEMAS / f"{topic}.proto"], message), message


def test_what_this_agent_says_passes(compiled: dict[Path, Descriptor]) -> None:
    for topic, message in said_by_the_agent():
        assert takes(compiled[SCHEMAS / f"{topic}.proto"], message), message


@pytest.mark.parametrize("topic", MODELS)
def test_what_is_no_message_is_refused(topic: str, compiled: dict[Path, Descriptor]) -> None:
    schema = compiled[SCHEMAS / f"{topic}.proto"]
    right = agents_messages(topic)[0]
    assert takes(schema, right)
    for name in MODELS[topic].model_fields:
        if MODELS[topic].model_fields[name].is_required():
            assert not takes(schema, {each: value for each, value in right.items() if each != name}), name
    wrong = [
        {**right, "attempt": "first"},
        {**right, "vm": "tm-x"},
        {**right, "vm": {}},
        {**right, "stranger": 1},
        {},
        [],
    ]
    assert not [each for each in wrong if takes(schema, each)]


@pytest.mark.parametrize("topic", MODELS)
def test_a_change_is_one_that_pubsub_commits(topic: str, compiled: dict[Path, Descriptor]) -> None:
    """Source: "Commit a schema revision": of a Protocol Buffers schema, optional fields may be added and removed."""
    now, then = (list(every_field(compiled[folder / f"{topic}.proto"])) for folder in (SCHEMAS, RELEASED))
    taken = {(path.rpartition(".")[0], number) for path, number, _, _ in then}
    assert {each for each in then if each[3]} <= set(now), "what is required stays as it is"
    for path, number, kind, is_required in set(now) - set(then):
        assert not is_required, path
        assert (path.rpartition(".")[0], number) not in taken, (
            f"{path}: {number} was another field's, or of another type"
        )
        assert kind, path


def test_the_topics_that_vms_publish_to_have_them_and_no_others(plan: Plan) -> None:
    schemas = plan.of("google_pubsub_schema")
    assert {each["name"] for each in schemas.values()} == {f"trainmaster-{topic}" for topic in MODELS}
    for each in schemas.values():
        topic = each["name"].removeprefix("trainmaster-")
        assert each["definition"] == (SCHEMAS / f"{topic}.proto").read_text(encoding="utf-8")
    settings = {each["name"]: each["schema_settings"] for each in plan.of("google_pubsub_topic").values()}
    assert {name: said[0]["schema"] for name, said in settings.items() if said} == {
        f"trainmaster-{topic}": f"projects/my-project/schemas/trainmaster-{topic}" for topic in MODELS
    }
    assert {said[0]["encoding"] for said in settings.values() if said} == {"JSON"}


def test_they_can_be_left_out(planned: Any) -> None:
    plan = planned(schemas=False)
    assert not plan.of("google_pubsub_schema")
    assert not [each for each in plan.of("google_pubsub_topic").values() if each["schema_settings"]]


def fields(descriptor: Descriptor) -> dict[str, tuple[Any, bool]]:
    """Name → type (of a message, its fields) and whether it is required."""
    return {
        each.name: (
            fields(each.message_type) if each.message_type else SAME.get(each.type, each.type),
            each.is_required,
        )
        for each in descriptor.fields
    }


def fields_of_model(model: type[BaseModel]) -> dict[str, tuple[Any, bool]]:
    return {name: (kind(each.annotation), each.is_required()) for name, each in model.model_fields.items()}


def kind(said: Any) -> Any:
    """As the schema has it. Words and times are texts there: a new word is no change of a schema."""
    if get_origin(said) in (Union, types.UnionType):
        (said,) = (each for each in get_args(said) if each is not type(None))
    if get_origin(said) is Annotated:
        return kind(get_args(said)[0])
    if get_origin(said) is Literal:
        return kind(type(get_args(said)[0]))
    if issubclass(said, BaseModel):
        return fields_of_model(said)
    if issubclass(said, Enum | AwareDatetime):
        return FieldDescriptor.TYPE_STRING
    return TYPES[said]


def every_field(descriptor: Descriptor, within: str = "") -> Iterator[tuple[str, int, int, bool]]:
    """Path, number, type, whether it is required."""
    for each in descriptor.fields:
        path = f"{within}.{each.name}"
        yield path, each.number, each.type, each.is_required
        if each.message_type:
            yield from every_field(each.message_type, path)


def said_by_the_agent() -> Iterator[tuple[str, dict[str, Any]]]:
    """Its own code's messages, of a VM and of a slice's host."""
    for host in (None, SimpleNamespace(number=3)):
        topics = {name: name.replace("_", "-") for name in ("vm_ready", "replica_exit", "maintenance")}
        gang = SimpleNamespace(job_id="digits_1", task_type="worker", vm_generation=2, project="p", topics=topics)
        replica_id = SimpleNamespace(index=0, gang=gang, host=host, vm=Vm("tm-x", "us-central1-a", "4711"))
        nobody: Any = SimpleNamespace(post=lambda accepted: None)
        report = Report(replica_id, nobody, nobody, nobody)  # type: ignore[arg-type]  # what it asks of a replica
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
        report.ready(Key(1, 1))
        report.exit(Key(1, 1), fact, lambda: None)
        report.fault(Key(1, 1), "preemption", lambda: None)
        for event in (*report._life._events, *report._faults._events):
            yield event.topic, dict(event.body)
