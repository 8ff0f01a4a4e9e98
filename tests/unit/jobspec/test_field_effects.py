"""No field stops halfway: each changes what is stored, each stored value is read, and each value of
a VM is used.

    format (`formats/`) → plan (`core/model/plan.py`) → VM configuration (`flows/vm_metadata.py`,
    `VmConfig`)

The first test tries every field on the recorded jobs. The others read the source, because the value
of a plan can have an effect anywhere.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from tests.support.jobs import a_job
from tests.unit.flows.test_vm_metadata import metadata_of
from tests.unit.jobspec.golden_text import GOLDEN
from trainmaster.agent.model.vm_config import VmConfig
from trainmaster.core.model import plan, purchase, saving, watching
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.formats.base_model import (
    WireModel,
    accepted_names,
    field_example,
    nested_models,
)
from trainmaster.jobspec.job_document import has_job_id, job_file_of
from trainmaster.jobspec.manifests import convert  # noqa: F401 - defines all levels
from trainmaster.jobspec.manifests.findings import Level
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.document_kinds import KINDS, DocumentKind, detect_kind
from trainmaster.jobspec.reading.parse_document import parse_document

SOURCE: Final = Path(inspect.getfile(plan)).parents[2]
REPOSITORY: Final = SOURCE.parents[1]
Path_ = tuple[str, ...]

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "trainmaster.convertedFrom.manifest": (
        "The command line prints it. It does not change how the job runs."
    ),
    "trainmaster.packedFrom": "Its fields say where the program came from.",
    "trainmaster.packedFrom.folder": "Lists and pages show it.",
    "trainmaster.packedFrom.commit": "Lists and pages show it.",
    "trainmaster.packedFrom.changed": "Lists and pages show it.",
    "machineSpec.reservationAffinity": (
        "Its fields request a reservation for one pool, which is refused, or none."
    ),
    "ValueSpec.defaultValue": (
        "The service used it for trials of conditional parameters, which are refused."
    ),
    "trainmaster.placement.data": (
        "The order of `anyOf` follows from it, where prices and buckets are known."
    ),
    "trainmaster.placement.data.gib": "The same.",
    "studySpec.observationNoise": (
        "The service's own algorithm used it. Optuna estimates the noise."
    ),
}
"""Last names of a field's path → why no value of it changes a job."""
ADVICE: Final = (
    "changes nothing that is stored: let accept.py put it into the plan, or list it here with the"
    " reason"
)


def every_field(
    model: type[WireModel], path: Path_ = ()
) -> Iterator[tuple[Path_, type[WireModel]]]:
    """Yield the path of every field, with the model that has it."""
    for name, inner in nested_models(model).items():
        yield (*path, name), model
        if inner is not None:
            yield from every_field(inner, (*path, name))


FIELDS: Final = {
    ".".join(path): (path, model) for kind in KINDS for path, model in every_field(kind.model)
}
"""Every path in a document of any kind. The kinds of Vertex AI share theirs."""


SPELLINGS: Final[dict[str, set[str]]] = {}
"""Canonical name of a field → the names under which a document may give it."""
for _, _model in FIELDS.values():
    for _spelling, _name in accepted_names(_model).items():
        SPELLINGS.setdefault(_name, set()).add(_spelling)


@cache
def recorded_jobs() -> tuple[tuple[DocumentKind, dict[str, Any]], ...]:
    """Return the valid recorded jobs, with what to run under a field of its own."""
    files = [
        *GOLDEN.glob("*.yaml"),
        *GOLDEN.parent.glob("manifests/*.job"),
        *REPOSITORY.glob("examples/*/job.yaml"),
    ]
    read = [job_file_of(parse_document(file.read_bytes(), "job.yaml")) for file in sorted(files)]
    return tuple(
        (detect_kind(document), detect_kind(document).wrapped(document)) for document in read
    )


def outcome(document: dict[str, Any]) -> object:
    """Return all that is stored of a job but the document itself; None if it is refused."""
    key = repr(document)  # many fields are tried on the same document
    if key not in OUTCOMES:
        OUTCOMES[key] = accepted(document)
    return OUTCOMES[key]


OUTCOMES: Final[dict[str, object]] = {}
"""Results of `outcome`."""


def accepted(document: dict[str, Any]) -> object:
    names_itself = has_job_id(document) or document.get("displayName")
    try:
        spec = accept(document, default_job_id=None if names_itself else "from_the_file")
    except InvalidJob:
        return None
    return spec.job_id, spec.labels, spec.plan, spec.tuning, spec.resources


def holders(value: object, model: type[WireModel] | None, path: Path_) -> Iterator[dict[str, Any]]:
    """Yield the mappings of a document that may have the last field of the path."""
    if isinstance(value, list):
        for item in value:
            yield from holders(item, model, path)
    elif isinstance(value, dict) and model is not None:
        if len(path) == 1:
            yield value
        for name, inner in value.items():
            if len(path) > 1 and accepted_names(model).get(name) == path[0]:
                yield from holders(inner, nested_models(model)[path[0]], path[1:])


@cache
def values_of(model: type[WireModel], name: str) -> tuple[object, ...]:
    """Return values of a field that its type allows: its example and others, and None for its
    absence.
    """
    example = field_example(model, name)
    others: tuple[object, ...] = ()
    match example:
        case bool():
            others = (not example,)
        case int() | float():
            others = (example + 1,)
        case str():
            others = (f"{example}-2",)
        case []:
            others = (["x"], [{}], [{"x": "y"}])
        case {}:
            others = ({"x": "y"},)
    annotation = next(info.annotation for info in model.model_fields.values() if info.alias == name)
    members = [member for kind in typing.get_args(annotation) for member in names_of(kind)]
    allowed = []
    for value in (example, *others, *members):
        with contextlib.suppress(ValidationError):
            model.model_validate({name: value})
            allowed.append(value)
    return None, *allowed


def names_of(kind: object) -> list[str]:
    return (
        [member.name for member in kind]
        if isinstance(kind, type) and issubclass(kind, StrEnum)
        else []
    )


def copied(value: Any) -> Any:
    """Return a copy of JSON data. `copy.deepcopy` takes much longer."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def with_value(
    document: dict[str, Any], kind: DocumentKind, path: Path_, index: int, value: object
) -> dict[str, Any]:
    """Return the document with this value of the field, in the mapping of this index among its
    holders; None: without the field.
    """
    changed: dict[str, Any] = copied(document)
    holder = list(holders(changed, kind.model, path))[index]
    for spelling in [key for key in holder if key in SPELLINGS[path[-1]]]:
        del holder[spelling]
    if value is not None:
        holder[path[-1]] = copied(value)
    return changed


def bases(kind: DocumentKind, path: Path_) -> Iterator[dict[str, Any]]:
    """Yield valid jobs of a kind; also some to which the values around the field were added."""
    documents = [document for job_kind, document in recorded_jobs() if job_kind is kind]
    yield from documents
    for depth in range(1, len(path)):
        _, model = FIELDS[".".join(path[:depth])]
        for document in documents:
            for index, _ in enumerate(holders(document, kind.model, path[:depth])):
                for value in values_of(model, path[depth - 1]):
                    changed = with_value(document, kind, path[:depth], index, value)
                    if value is not None and outcome(changed) is not None:
                        yield changed


def has_effect(path: Path_, model: type[WireModel]) -> bool:
    """Whether any value of the field, on any valid job, changes what is stored."""
    for kind in KINDS:
        for document in bases(kind, path):
            before = outcome(document)
            for index, _ in enumerate(holders(document, kind.model, path)):
                if any(
                    outcome(with_value(document, kind, path, index, value)) != before
                    for value in values_of(model, path[-1])
                ):
                    return True
    return False


@pytest.mark.parametrize("name", FIELDS)
def test_field_of_a_job_changes_what_is_stored(name: str) -> None:
    reason = next((WITHOUT_EFFECT[end] for end in WITHOUT_EFFECT if name.endswith(end)), None)
    assert has_effect(*FIELDS[name]) is (reason is None), (
        f"{name} {'has an effect, and is listed as one without' if reason else ADVICE}"
    )


@cache
def attributes_of(file: Path) -> frozenset[str]:
    """Return the names of all attributes that a module reads."""
    nodes = ast.walk(ast.parse(text_of(file)))
    return frozenset(
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


@cache
def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def is_read(name: str, files: Iterable[Path]) -> bool:
    """Whether one of these modules reads an attribute of this name."""
    return any(f".{name}" in text_of(file) and name in attributes_of(file) for file in files)


@cache
def modules(*excluded: str) -> list[Path]:
    """Return the package's modules but those below `excluded`."""
    files = sorted(SOURCE.rglob("*.py"))
    return [file for file in files if not file.relative_to(SOURCE).as_posix().startswith(excluded)]


PLAN: Final = [
    field.name
    for module in (plan, purchase, saving, watching)
    for kind in vars(module).values()
    if dataclasses.is_dataclass(kind)
    and isinstance(kind, type)
    and kind.__module__ == module.__name__
    for field in dataclasses.fields(kind)
]


@pytest.mark.parametrize("name", PLAN)
def test_value_of_a_plan_is_read_after_the_job_is_accepted(name: str) -> None:
    assert is_read(name, modules("jobspec/")), f"{name} of a plan is stored, and nothing reads it"


FOR_PEOPLE: Final[Mapping[str, str]] = {
    "version": "Tells people, and a later agent, the form of the configuration.",
    "region": "The agent asks the metadata server for its zone.",
    "zone": "The agent asks the metadata server for its zone.",
}
"""Keys of the VM configuration that the agent does not read."""


def mutated(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case None:
            return 7
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case list():
            return [*value, "x"]
        case _:
            return {**value, "x": "y"}


VM_CONFIG: Final[dict[str, Any]] = json.loads(metadata_of(a_job())["trainmaster-vm-config"])


@pytest.mark.parametrize("key", VM_CONFIG)
def test_key_of_the_vm_configuration_is_read_by_the_agent(key: str) -> None:
    whole = VmConfig.parse(json.dumps(VM_CONFIG))
    try:
        is_read = VmConfig.parse(json.dumps({**VM_CONFIG, key: mutated(VM_CONFIG[key])})) != whole
    except (KeyError, TypeError, ValueError, AttributeError):
        is_read = True
    assert is_read is (key not in FOR_PEOPLE), (
        f"{key}: flows/vm_metadata.py sends it, and VmConfig.parse ignores it"
    )


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(VmConfig)])
def test_value_of_the_vm_configuration_is_used_by_the_agent(name: str) -> None:
    agent = [
        file
        for file in (SOURCE / "agent").rglob("*.py")
        if file.name != Path(inspect.getfile(VmConfig)).name
    ]
    assert is_read(name, agent), f"{name} of VmConfig is parsed, and nothing in the agent reads it"


def levels(kind: type[Level] = Level) -> Iterator[type[Level]]:
    """Yield the models of all mappings of a manifest, which are the subclasses of `Level`."""
    for inner in kind.__subclasses__():
        yield inner
        yield from levels(inner)


MANIFEST_FIELDS: Final = [
    f"{level.__name__}.{name}"
    for level in levels()
    for name in vars(level).get("__annotations__", ())
    if name in level.model_fields
]


@pytest.mark.parametrize("name", MANIFEST_FIELDS)
def test_field_of_a_manifest_is_read_by_its_conversion(name: str) -> None:
    conversion = sorted((SOURCE / "jobspec" / "manifests").glob("*.py"))
    text = name.rpartition(".")[2]
    assert is_read(text, conversion), f"{name} is accepted, and the conversion does not read it"
