"""Parse YAML of bounded size and depth, without aliases, anchors, tags and duplicate names.

YAML is read as the service's own client read it (1.1: `yes` is true), except for types that JSON
lacks: dates and base-60 numbers stay strings, and a number with a leading zero is not octal.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from trainmaster.jobspec.reading.json_limits import (
    DEPTH_MAX,
    JOB_EXAMPLE,
    NODES_MAX,
    invalid,
    line_and_column,
    too_deep,
)

_TAGS: Final = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq")))


def parse_yaml(text: str, name: str) -> object:
    """Return what the document holds; None if it is empty. Raises InvalidJob."""
    try:
        _check_events(text, name)
        documents = [
            document for document in yaml.load_all(text, Loader=_Loader) if document is not None
        ]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = _where(name, mark)
        if mark is not None and "\t" in _line_of(text, mark.line):
            raise invalid(
                f"{where}: is indented with a tab, which YAML does not allow", "two spaces"
            ) from None
        raise invalid(
            f"{where}: is not YAML: {error.problem or error.context}", JOB_EXAMPLE
        ) from None
    except yaml.reader.ReaderError as error:
        line, column = line_and_column(text[: error.position])
        raise invalid(
            f"{name}, line {line}, column {column}: has a control character ({error.reason})",
            "plain text",
        ) from None
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise invalid(f"{name}: {error}", JOB_EXAMPLE) from None
    return _only_document(documents, text, name)


def _only_document(documents: list[object], text: str, name: str) -> object:
    """Return the only document, or a Kubernetes List of several objects.

    Raises InvalidJob for other documents.
    """
    if len(documents) <= 1:
        return documents[0] if documents else None
    if all(isinstance(document, dict) and "apiVersion" in document for document in documents):
        return {"apiVersion": "v1", "kind": "List", "items": documents}
    starts = [
        event.start_mark for event in yaml.parse(text) if isinstance(event, yaml.DocumentStartEvent)
    ]
    where = _where(name, starts[1])
    raise invalid(
        f"{where}: is another document; the file has {len(documents)}, a job file one",
        "a file for each job",
    )


def _line_of(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number] if number < len(lines) else ""


def _check_events(text: str, name: str) -> None:
    """Check depth, size, aliases and tags before anything is built.

    PyYAML's composer recurses, and aliases multiply what they name.
    """
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
            raise too_deep(_where(name, event.start_mark))
        if nodes > NODES_MAX:
            raise invalid(f"{name}: more than {NODES_MAX} values", "a job has a few dozen values")


def _check_node(event: yaml.NodeEvent, where: str) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise invalid(f"{where}: aliases (*{event.anchor}) are not allowed", "write the value out")
    if event.anchor is not None:
        raise invalid(f"{where}: anchors (&{event.anchor}) are not allowed", "write the value out")
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag not in _TAGS:
        raise invalid(
            f"{where}: the tag {event.tag} is not allowed",
            "the value without a tag; quotes make it a string",
        )


def _where(name: str, mark: Any) -> str:
    return f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name


class _Loader(yaml.CSafeLoader):
    """Builds only what JSON has: strings, numbers, booleans, null, lists, and mappings.

    The names of a mapping are distinct.
    """

    # As PyYAML declares it. Empty: none of PyYAML's own resolvers applies.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    # The signature is PyYAML's.
    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002
    ) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None,
                        None,
                        f"the name {key.value!r} is given twice in one mapping",
                        key.start_mark,
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


for _tag, _pattern, _first in (
    (
        "bool",
        r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        "yYnNtTfFoO",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), list(_first)
    )
