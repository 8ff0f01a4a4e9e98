"""Parse untrusted bytes into a mapping: YAML or JSON of bounded size and depth, without aliases, tags, duplicate names.

YAML is read as the service's own client read it (1.1: `yes` is true), except for types that JSON lacks: dates and
base-60 numbers stay strings, and a number with a leading zero is not octal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from typing import Any, Final

import yaml

from shared.jobspec.reading.json_limits import DEPTH_MAX, NODES_MAX, copy_as_json
from shared.jobspec.reading.problems import ROOT, InvalidJob, Problem

DOCUMENT_BYTES_MAX: Final = 1 << 20
_TAGS: Final = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq")))
_JOB_EXAMPLE: Final = "jobId: digits_1, trainingInput: {region: us-central1, …}"


def parse_document(data: bytes, name: str) -> Mapping[str, object]:
    """Return the document as written. It is JSON if `name` ends so or the content parses so, else YAML.

    Raises InvalidJob. `name` is that of the file or message, for the problem's text.
    """
    if len(data) > DOCUMENT_BYTES_MAX:
        raise _invalid(f"{name} has {len(data)} bytes, more than {DOCUMENT_BYTES_MAX}", "a job file of a few kilobytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(data[: error.start].decode("utf-8", errors="replace"))
        raise _invalid(f"{name}, line {line}, column {column}: is not UTF-8", "save the file as UTF-8 text") from None
    if name.lower().endswith(".json"):
        document = _from_json(text, name)
    elif text.lstrip().startswith("{"):
        try:
            document = _from_json(text, name)
        except InvalidJob:
            document = _from_yaml(text, name)  # a YAML mapping may also begin with a brace
    else:
        document = _from_yaml(text, name)
    if document is None:
        raise _invalid(f"{name} is empty", _JOB_EXAMPLE)
    if not isinstance(document, dict):
        raise _invalid(
            f"{name} must hold a mapping with a trainingInput, not a {_describe_type(document)}", _JOB_EXAMPLE
        )
    copy, problems = copy_as_json(document)
    if problems:
        raise InvalidJob(problems)
    return copy


def _from_json(text: str, name: str) -> object:
    def reject_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key, value in pairs:
            if key in mapping:
                raise _invalid(f"{name}: the name {key!r} is given twice in one mapping", f"{key!r} once")
            mapping[key] = value
        return mapping

    def reject_constant(word: str) -> object:
        raise _invalid(f"{name}: {word} is not a JSON number", "0.5")

    try:
        parsed: object = json.loads(text, object_pairs_hook=reject_duplicates, parse_constant=reject_constant)
    except json.JSONDecodeError as error:
        where = f"{name}, line {error.lineno}, column {error.colno}"
        raise _invalid(f"{where}: is not JSON: {error.msg}", '{"trainingInput": {"region": "us-central1"}}') from None
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise _invalid(f"{name}: {error}", "1000000") from None
    return parsed


def _from_yaml(text: str, name: str) -> object:
    try:
        _check_events(text, name)
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = _where(name, mark)
        if mark is not None and "\t" in _line_of(text, mark.line):
            raise _invalid(f"{where}: is indented with a tab, which YAML does not allow", "two spaces") from None
        raise _invalid(f"{where}: is not YAML: {error.problem or error.context}", _JOB_EXAMPLE) from None
    except yaml.reader.ReaderError as error:
        line, column = _line_and_column(text[: error.position])
        raise _invalid(
            f"{name}, line {line}, column {column}: has a control character ({error.reason})", "plain text"
        ) from None
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise _invalid(f"{name}: {error}", _JOB_EXAMPLE) from None
    return _one_of(documents, text, name)


def _one_of(documents: list[object], text: str, name: str) -> object:
    """Return the only document, or a Kubernetes List of several objects. Raises InvalidJob for other documents."""
    if len(documents) <= 1:
        return documents[0] if documents else None
    if all(isinstance(document, dict) and "apiVersion" in document for document in documents):
        return {"apiVersion": "v1", "kind": "List", "items": documents}
    starts = [event.start_mark for event in yaml.parse(text) if isinstance(event, yaml.DocumentStartEvent)]
    where = _where(name, starts[1])
    raise _invalid(
        f"{where}: is another document; the file has {len(documents)}, a job file one", "a file for each job"
    )


def _line_of(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number] if number < len(lines) else ""


def _check_events(text: str, name: str) -> None:
    """Check depth, size, aliases and tags before anything is built: the composer recurses, and aliases multiply."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
            _check_node(event, _where(name, event.start_mark))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise _too_deep(_where(name, event.start_mark))
        if nodes > NODES_MAX:
            raise _invalid(f"{name}: more than {NODES_MAX} values", "a job has a few dozen values")


def _check_node(event: yaml.NodeEvent, where: str) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise _invalid(f"{where}: aliases (*{event.anchor}) are not allowed", "write the value out")
    if event.anchor is not None:
        raise _invalid(f"{where}: anchors (&{event.anchor}) are not allowed", "write the value out")
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag not in _TAGS:
        raise _invalid(
            f"{where}: the tag {event.tag} is not allowed", "the value without a tag; quotes make it a string"
        )


def _where(name: str, mark: Any) -> str:
    return f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name


class _Loader(yaml.CSafeLoader):
    """Builds strings, numbers, booleans, null, lists and mappings with distinct names, and nothing else."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the name {key.value!r} is given twice in one mapping", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


for _tag, _pattern, _first in (
    ("bool", r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), list(_first))


def _invalid(problem: str, example: str) -> InvalidJob:
    return InvalidJob([Problem(ROOT, problem, example)])


def _too_deep(where: str) -> InvalidJob:
    return _invalid(f"{where}: nested more than {DEPTH_MAX} levels deep", "trainingInput: {args: []}")


def _line_and_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _describe_type(value: object) -> str:
    return {list: "list", str: "string", bool: "boolean"}.get(type(value), "number")
