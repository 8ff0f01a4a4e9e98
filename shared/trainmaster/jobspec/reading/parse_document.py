"""Parse untrusted bytes into a mapping: YAML or JSON, bounded, and without duplicate names.

YAML's parser is imported when a document needs it. Most messages are JSON, and each function pays
for its imports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from trainmaster.jobspec.formats.scalars import WrittenFloat
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.foreign_files import refuse_script
from trainmaster.jobspec.reading.json_limits import (
    JOB_EXAMPLE,
    copy_as_json,
    invalid,
    line_and_column,
    too_deep,
)

DOCUMENT_BYTES_MAX: Final = 1 << 20
"""Larger documents are not parsed: a job file has some kilobytes."""
_COMMENTS: Final = ("//", "/*", "#")
_STRING_OR_LAST_COMMA: Final = re.compile(
    r"""(?P<string> " (?:[^"\\]++ | \\.)*+ (?:"|\\?\Z) ) | ,(?=\s*[}\]])""", re.VERBOSE | re.DOTALL
)
"""A string, in which nothing is replaced, or a comma behind the last value of a collection.

A string without an end is one, too. Possessive quantifiers keep no places to go back to, which
would take 150 bytes for each character.
"""


def parse_document(data: bytes, name: str) -> Mapping[str, object]:
    """Return the document as written.

    `name`: that of the file or message, for the problem's text; with the ending `.json` the
    document must be JSON. Any other may be JSON or YAML. JSON may have a comma behind a last value,
    which YAML allows: gcloud reads every `--config` as YAML. Raises InvalidJob.
    """
    if len(data) > DOCUMENT_BYTES_MAX:
        raise invalid(
            f"{name} has {len(data)} bytes, more than {DOCUMENT_BYTES_MAX}",
            "a job file of a few kilobytes",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = line_and_column(data[: error.start].decode("utf-8", errors="replace"))
        raise invalid(
            f"{name}, line {line}, column {column}: is not UTF-8", "save the file as UTF-8 text"
        ) from None
    refuse_script(text)
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
        raise invalid(f"{name} is empty", JOB_EXAMPLE)
    if not isinstance(document, dict):
        kind = _describe_type(document)
        raise invalid(f"{name} must hold a mapping with a trainingInput, not a {kind}", JOB_EXAMPLE)
    copy, problems = copy_as_json(document)
    if problems:
        raise InvalidJob(problems)
    return copy


def _from_json(text: str, name: str) -> object:
    def reject_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key, value in pairs:
            if key in mapping:
                raise invalid(
                    f"{name}: the name {key!r} is given twice in one mapping", f"{key!r} once"
                )
            mapping[key] = value
        return mapping

    def reject_constant(word: str) -> object:
        raise invalid(f"{name}: {word} is not a JSON number", "0.5")

    try:
        parsed: object = json.loads(
            _without_last_commas(text),
            object_pairs_hook=reject_duplicates,
            parse_constant=reject_constant,
            parse_float=WrittenFloat,
        )
    except json.JSONDecodeError as error:
        where = f"{name}, line {error.lineno}, column {error.colno}"
        if text.startswith(_COMMENTS, error.pos):
            problem = f"{where}: is a comment, which JSON does not have"
            raise invalid(problem, "the file without comments, or YAML in a file .yaml") from None
        raise invalid(
            f"{where}: is not JSON: {error.msg}", '{"trainingInput": {"region": "us-central1"}}'
        ) from None
    except RecursionError:
        raise too_deep(name) from None
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise invalid(f"{name}: {error}", "1000000") from None
    return parsed


def _without_last_commas(text: str) -> str:
    """Return the text with a space for each comma behind a last value, so that places stay."""
    return _STRING_OR_LAST_COMMA.sub(lambda match: match["string"] or " ", text)


def _from_yaml(text: str, name: str) -> object:
    from trainmaster.jobspec.reading.yaml_document import parse_yaml

    return parse_yaml(text, name)


def _describe_type(value: object) -> str:
    return {list: "list", str: "string", bool: "boolean"}.get(type(value), "number")
