"""Parse YAML of bounded size and depth, without tags and duplicate names; and write a job file.

Aliases and merge keys (`<<`) are replaced by what they name, as kubectl and gcloud do. The limits
hold for the document without them.

YAML is read as AI Platform Training's own client read it (1.1: `yes` is true), except for types
that JSON lacks: dates and base-60 numbers stay strings, and a number with a leading zero is not
octal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from trainmaster.jobspec.formats.scalars import WrittenFloat
from trainmaster.jobspec.reading.json_limits import (
    DEPTH_MAX,
    JOB_EXAMPLE,
    NODES_MAX,
    invalid,
    line_and_column,
    too_deep,
)

LINE_CHARS_MAX: Final = 110
"""Characters of a line of a job file that `as_yaml` writes, unless it has a longer word."""
_NODES_AND_HEIGHT_OF_SCALAR: Final = (1, 0)
"""A scalar is one node, and holds no other."""
_TAGS: Final = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq")))


def as_yaml(document: Mapping[str, object]) -> str:
    """Return the text of a job file, with its fields in their order."""
    # A job file has no anchors, which the dumper would write for values that occur twice.
    copy = json.loads(json.dumps(document))
    return yaml.safe_dump(copy, sort_keys=False, allow_unicode=True, width=LINE_CHARS_MAX)


def parse_yaml(text: str, name: str) -> object:
    """Return what the document holds; None if it is empty. Raises InvalidJob."""
    try:
        check = _Check(name)
        for event in yaml.parse(text, Loader=_Loader):
            check.add(event)
        documents = [
            document for document in yaml.load_all(text, Loader=_Loader) if document is not None
        ]
        if check.has_aliases:
            documents = [_unshared(document) for document in documents]
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
    _, second, *_ = starts
    where = _where(name, second)
    raise invalid(
        f"{where}: is another document; the file has {len(documents)}, a job file one",
        "a file for each job",
    )


def _line_of(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number] if number < len(lines) else ""


@dataclass
class _Collection:
    """A list or a mapping that is not complete."""

    anchor: str | None
    """Name by which aliases repeat it; None: it has none."""
    is_mapping: bool
    first_node: int
    """Number of nodes before it."""
    depth: int
    depth_max: int
    """Depth of its innermost node so far."""
    children: int = 0
    """Nodes directly in it so far; in a mapping, names and values take turns."""
    names: set[str] = field(default_factory=set)
    """Names of a mapping so far."""


class _Check:
    """Checks depth, size, tags and names before anything is built.

    PyYAML's composer recurses, and aliases multiply what they name.
    """

    def __init__(self, name: str) -> None:
        self.has_aliases = False
        self._name = name
        self._nodes = 0
        self._open: list[_Collection] = []
        self._anchors: dict[str, tuple[int, int] | None] = {}
        """Anchor → number of nodes and height of what it names; None: it is not complete."""

    def add(self, event: yaml.Event) -> None:
        """Check the next event of the parser. Raises InvalidJob or MarkedYAMLError."""
        if isinstance(event, yaml.NodeEvent):
            self._add_node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()

    def _add_node(self, event: yaml.NodeEvent) -> None:
        where = _where(self._name, event.start_mark)
        _check_tag(event, where)
        self._check_name(event)
        size, height = _NODES_AND_HEIGHT_OF_SCALAR  # a collection grows by its own nodes
        if isinstance(event, yaml.AliasEvent):
            size, height = self._size_of_alias(event.anchor, where)
        elif isinstance(event, yaml.CollectionStartEvent):
            depth = len(self._open) + 1
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(
                _Collection(event.anchor, is_mapping, self._nodes, depth, depth_max=depth)
            )
        if event.anchor is not None and not isinstance(event, yaml.AliasEvent):
            is_scalar = isinstance(event, yaml.ScalarEvent)
            self._anchors[event.anchor] = _NODES_AND_HEIGHT_OF_SCALAR if is_scalar else None
        self._nodes += size
        if self._open:
            self._open[-1].depth_max = max(self._open[-1].depth_max, len(self._open) + height)
        if len(self._open) + height > DEPTH_MAX:
            raise too_deep(where)
        if self._nodes > NODES_MAX:
            problem = f"{self._name}: more than {NODES_MAX} values"
            raise invalid(problem, "a job has a few dozen values")

    def _size_of_alias(self, anchor: str | None, where: str) -> tuple[int, int]:
        """Return the number of nodes and the height of what an alias names.

        The composer refuses an alias that nothing defines.
        """
        self.has_aliases = True
        named = self._anchors.get(str(anchor), _NODES_AND_HEIGHT_OF_SCALAR)
        if named is None:
            raise invalid(f"{where}: the alias *{anchor} contains itself", "write the value out")
        return named

    def _check_name(self, event: yaml.NodeEvent) -> None:
        """Refuse a name that a mapping has already."""
        if not self._open or not self._open[-1].is_mapping:
            return
        mapping = self._open[-1]
        mapping.children += 1
        is_name = mapping.children % 2 == 1  # the first, third, … node
        if not is_name or not isinstance(event, yaml.ScalarEvent):
            return
        if event.value in mapping.names:
            problem = f"the name {event.value!r} is given twice in one mapping"
            where = _where(self._name, event.start_mark)
            raise invalid(f"{where}: is not YAML: {problem}", JOB_EXAMPLE)
        mapping.names.add(event.value)

    def _close(self) -> None:
        closed = self._open.pop()
        if self._open:
            parent = self._open[-1]
            parent.depth_max = max(parent.depth_max, closed.depth_max)
        if closed.anchor is not None:
            height = closed.depth_max - closed.depth + 1
            self._anchors[closed.anchor] = (self._nodes - closed.first_node, height)


def _check_tag(event: yaml.NodeEvent, where: str) -> None:
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag not in _TAGS:
        raise invalid(
            f"{where}: the tag {event.tag} is not allowed",
            "the value without a tag; quotes make it a string",
        )


def _unshared(value: Any) -> Any:
    """Return a copy in which no two places hold the same list or mapping."""
    if isinstance(value, dict):
        return {name: _unshared(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_unshared(item) for item in value]
    return value


def _where(name: str, mark: Any) -> str:
    return f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name


def _construct_float(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> WrittenFloat:
    return WrittenFloat(loader.construct_scalar(node))


class _Loader(yaml.CSafeLoader):
    """Builds only what JSON has: strings, numbers, booleans, null, lists, and mappings."""

    # As PyYAML declares it. Empty: none of PyYAML's own resolvers applies.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
# The type of a scalar without quotes: the pattern of its text, and the characters it begins with.
for _tag, _pattern, _first in (
    (
        "bool",
        r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        "yYnNtTfFoO",
    ),
    ("merge", r"<<", ["<"]),
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
