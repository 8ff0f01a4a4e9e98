"""Read what users submit: a job file, or a manifest of Kubeflow or JobSet, converted to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

from trainmaster.core.intake.job_id_template import at_time, is_template
from trainmaster.jobspec.fields.job_id import job_id_of_display_name
from trainmaster.jobspec.formats.extension import CONVERTED_FROM
from trainmaster.jobspec.problems import InvalidJob, Problem, snake_case
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.jobspec.reading.field_names import EXTENSION, MANIFEST_NAMES, TRAINING_INPUT
from trainmaster.jobspec.reading.foreign_files import refuse_unconverted_file, tool_of
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.jobspec.reading.read_model import with_lists

JOB_ID_NAMES: Final = ("jobId", "job_id")
NAME_CHARS_MAX: Final = 100
"""Most characters of a file's name that a job id takes over; the time follows them."""


def read_document(data: bytes, name: str, region: str | None = None) -> dict[str, Any]:
    """Return the job file of a file, a message or an editor. Raises InvalidJob.

    `name`: file or message, for the problem's text. `region`: as in `job_file_of`.
    """
    return job_file_of(parse_document(data, name), region)


def job_file_of(document: Mapping[str, object], region: str | None = None) -> dict[str, Any]:
    """Return a job file: a manifest is converted, and of a job file only lists are normalized
    (`with_lists`).

    `region`: that of a manifest that names none. Raises InvalidJob, and ForeignFile for a task of
    SkyPilot or dstack.
    """
    tool = tool_of(document)
    if tool:
        # Only files of other tools need it.
        from trainmaster.jobspec.foreign.answer import ForeignFile, answer_of

        raise ForeignFile(answer_of(tool, document))
    refuse_unconverted_file(document)
    if not all(name in document for name in MANIFEST_NAMES):
        return with_lists(dict(document))
    # Only manifests need its models.
    from trainmaster.jobspec.manifests.convert import convert

    return dict(convert(document, region))


def has_job_id(document: Mapping[str, object]) -> bool:
    """Return whether the document names a job id, of any type."""
    return any(document.get(name) for name in JOB_ID_NAMES)


def job_id_of(document: Mapping[str, object]) -> str | None:
    """Return the job id as it was submitted, which may be a template.

    None: there is none that is text.
    """
    job_id = next((document[name] for name in JOB_ID_NAMES if document.get(name)), None)
    return job_id if isinstance(job_id, str) else None


def with_job_id(document: Mapping[str, object], job_id: str | None) -> dict[str, Any]:
    """Return the document with this job id in place of its own; None: with none."""
    others = {name: value for name, value in document.items() if name not in JOB_ID_NAMES}
    return others if job_id is None else {**others, "jobId": job_id}


def with_id_from_file(
    document: Mapping[str, object], file_name: str, time_format: str = "%Y%m%d_%H%M%S"
) -> dict[str, Any]:
    """Return the document; one without a job id gets the file's name and `{time:FORMAT}` as id.

    A number stands for letters that no id can have. So files whose names differ only in such
    letters get different ids, even at the same time.
    """
    if has_job_id(document):
        return dict(document)
    head = job_id_of_display_name(PurePosixPath(file_name).name, NAME_CHARS_MAX)
    return with_job_id(document, f"{head}_{{time:{time_format}}}")


def with_time_in_job_id(document: Mapping[str, object], at: datetime | None) -> dict[str, Any]:
    """Fill the time `at` into a job id such as `nightly_{time:%Y%m%d}`.

    Other documents are returned unchanged.

    `at` is the time of the submission itself, not of its delivery, which may be repeated. Raises
    InvalidJob if a time is needed and `at` is None.
    """
    job_id = job_id_of(document)
    is_named_twice = all(name in document for name in JOB_ID_NAMES)  # `accept` refuses it
    if job_id is None or not is_template(job_id) or is_named_twice:
        return dict(document)
    if at is None:
        raise InvalidJob(
            (
                Problem(
                    "jobId", "contains a time, but the submission has no time", example="digits_1"
                ),
            )
        )
    return with_job_id(document, at_time(job_id, at))


def listed_substitutions(document: Mapping[str, object]) -> Mapping[str, Any]:
    """Return `trainmaster.convertedFrom`, what a conversion replaced; empty: not converted."""
    extension = document.get(EXTENSION)
    converted = extension.get(CONVERTED_FROM) if isinstance(extension, Mapping) else None
    return converted if isinstance(converted, Mapping) else {}


def with_field(document: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """Return the document with the field at `path` set, in the document's own spelling.

    A mapping is merged into the one that is there. In a path such as `workerPoolSpecs`, `*`,
    `containerSpec|pythonPackageSpec`, `args`, the `*` stands for every item of the list, and the
    field is set in those of the named objects that the item has.
    """
    snake = snake_case(path[0])
    name = snake if snake in document and path[0] not in document else path[0]
    inner = document.get(name)
    match path[1:], inner:
        case ["*", parents, field], list():
            value = [_with_existing(item, parents.split("|"), field, value) for item in inner]
        case [_, *_], Mapping() | None:
            value = with_field(inner or {}, path[1:], value)
        case [_, *_], _:
            return dict(document)  # `accept` reports the wrong type
        case [], Mapping() if isinstance(value, dict):
            value = {**inner, **value}
    return {**document, name: value}


def _with_existing(item: object, parents: Sequence[str], field: str, value: object) -> object:
    """Return a list item with the field set in those of its parents that the item has."""
    if not isinstance(item, Mapping):
        return item
    for parent in parents:
        if isinstance(item.get(parent, item.get(snake_case(parent))), Mapping):
            item = with_field(item, (parent, field), value)
    return item


def field_at(document: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value of a field, whichever spelling its names have; None: it is absent."""
    value: Any = document
    for name in path:
        value = value.get(name, value.get(snake_case(name))) if isinstance(value, Mapping) else None
    return value


def with_default_region(document: dict[str, Any], region: str | None) -> dict[str, Any]:
    """Return the job file with this region, unless it names one."""
    path = (TRAINING_INPUT if detect_kind(document) is AI_PLATFORM else EXTENSION, "region")
    if not region or field_at(document, path):
        return document
    return with_field(document, path, region)
