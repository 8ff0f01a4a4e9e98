"""Documents and messages as a release writes them, kept so that `test_releases.py` can read them.

    .venv/bin/python -m tests.contract.release_corpus

writes tests/contract/releases/SCHEMA/ again.

The corpus is written once for each schema version, and extended by new kinds. Existing entries were
written by other releases and are never changed to make a test pass. `whole` has every field,
`least` only those without a default.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from trainmaster.core.actions import Action
from trainmaster.core.decisions import Decision
from trainmaster.core.events import Event
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.capacity import Outcome
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.replica import Replica
from trainmaster.gcp.firestore import documents
from trainmaster.messaging import agent_messages, google_events, internal_requests
from trainmaster.ports import Orphan, Rejection

FOLDER: Final = Path(__file__).parent / "releases"
SCHEMAS: Final = Path(__file__).parents[2] / "infra" / "schemas"
"""Schemas of the agents' topics. tests/infra/test_topic_schemas.py compares them with those of
releases.
"""
AT: Final = datetime(2026, 11, 21, 3, 0, 0, 123456, UTC)
KINDS: Final[dict[str, Any]] = {
    "job": (Job, documents.job_document),
    "replica": (Replica, partial(documents.replica_document, job_id="digits_1")),
    "ledger": (LedgerEntry, documents.entry_document),
    "orphan": (Orphan, documents.orphan_document),
    "rejection": (Rejection, documents.rejection_document),
    "stockout": (Outcome, documents.outcome_document),
    "machine_set": (MachineSet, documents.machine_set_document),
}
"""Name in the corpus → type, and the function that makes its document."""

_SUBJECT: Final[dict[str, Any]] = {
    "version": 1,
    "job_id": "digits_1",
    "attempt": 1,
    "task_type": "worker",
    "task_index": 0,
    "incarnation": 1,
    "vm_generation": 1,
    "vm": {
        "name": "tm-digits-1-a1b2c3d4e5f60718-worker-0",
        "zone": "us-central1-a",
        "instance_id": "4711",
    },
    "at": "2026-11-21T03:00:00.123Z",
}
_EXIT: Final = {**_SUBJECT, "cause": "process", "exit_status": 1}
_ERROR: Final = {
    "type": "ValueError",
    "message": "bad shape",
    "frame": "trainer/task.py:41 in main",
}
_ENDED: Final = {
    "attempt": 1,
    "incarnation": 1,
    "at": "2026-11-21T02:58:00.123Z",
    "cause": "process",
    "exit_status": 1,
    "signal": None,
    "out_of_memory": False,
    "error": {**_ERROR, "own_frame": "trainer/task.py:41 in main", "causes": ["KeyError"]},
    "tail": "the end",
    "metric": {"value": 0.93, "step": 1000, "earlier": [{"value": 0.5, "step": 500}]},
    "ran_s": 12.5,
}
_SYSTEM_EVENT: Final = {
    "logName": "projects/p/logs/cloudaudit.googleapis.com%2Fsystem_event",
    "protoPayload": {
        "methodName": "compute.instances.preempted",
        "resourceName": (
            "projects/p/zones/us-central1-a/instances/tm-digits-1-a1b2c3d4e5f60718-worker-0"
        ),
    },
    "resource": {"type": "gce_instance", "labels": {"instance_id": "4711"}},
    "timestamp": "2026-11-21T03:00:00.123456Z",
}
MESSAGES: Final[dict[str, list[dict[str, Any]]]] = {
    "vm_ready": [
        _SUBJECT,
        {**_SUBJECT, "host": 0},
        {**_SUBJECT, "agent_started_at": "2026-11-21T02:59:00.123Z"},
        {**_SUBJECT, "incarnation": 2, "ended": _ENDED},
    ],
    "replica_exit": [
        _EXIT,
        {
            **_EXIT,
            "signal": None,
            "out_of_memory": False,
            "error": _ERROR,
            "tail": "the end",
            "host": 1,
        },
        {**_SUBJECT, "cause": "process", "signal": 9, "out_of_memory": True},
        {
            **_SUBJECT,
            "job_id": "digits_1-trial-3",
            "cause": "process",
            "exit_status": 0,
            "metric": {"value": 0.93, "step": 1000, "earlier": [{"value": 0.5, "step": 500}]},
        },
        *(
            {**_SUBJECT, "cause": cause}
            for cause in ("install", "setup", "vm_stopping", "vm_restarted")
        ),
    ],
    "maintenance": [
        *({**_SUBJECT, "cause": cause} for cause in ("maintenance", "preemption", "host_error")),
        {
            **_SUBJECT,
            "cause": "notice",
            "gives_up_at": "2026-11-21T03:00:25.123Z",
            "save_number": 2,
            "unanswered": [1],
        },
        _SYSTEM_EVENT,
    ],
    "provision": [
        {"version": 1, "job_id": "digits_1"},
        {"version": 1, "job_id": "digits_1", "entry": "submitted"},
        {"version": 1, "job_id": "digits_1", "entry": "submitted", "number": 2},
        {"version": 1, "orphans": True},
        {"version": 1, "admission": True},
    ],
    "tune": [{"version": 1, "job_id": "digits_1"}],
}
"""Kind of message → messages of that kind, as in docs/interfaces.md, section 2."""

DECODERS: Final[dict[str, Callable[[bytes], object]]] = {
    "vm_ready": agent_messages.decode_vm_ready,
    "replica_exit": agent_messages.decode_replica_exit,
    "maintenance": google_events.decode_maintenance,
    "provision": internal_requests.decode_provision,
    "tune": internal_requests.decode_tune,
}


def whole(kind: Any, **given: object) -> Any:
    """Build a value with an example in every field, unless it is `given`. An optional field with
    a value of the same kind stays empty.
    """
    hints = get_type_hints(kind)
    values = {
        field.name: given.get(field.name) or _example(hints[field.name])
        for field in dataclasses.fields(kind)
        if kind not in get_args(hints[field.name])
    }
    return kind(**values)


def least(kind: Any, **given: object) -> Any:
    """Build a value with examples in the fields without a default only."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if not _has_default(field)]
    return kind(**{name: given.get(name) or _example(hints[name], make=least) for name in names})


def needed(value: Any, document: Any) -> Any:
    """Return the part of the document that a reader requires: fields without a default, and
    discriminators.
    """
    if dataclasses.is_dataclass(value) and isinstance(document, str):  # stored as JSON text
        return json.dumps(needed(value, json.loads(document)))
    if dataclasses.is_dataclass(value):
        names = [
            field.name
            for field in dataclasses.fields(value)
            if field.name == "kind" or not _has_default(field)
        ]
        return {name: needed(getattr(value, name), document[name]) for name in names}
    if isinstance(value, tuple):
        return [needed(item, part) for item, part in zip(value, document, strict=True)]
    return document


def stored() -> list[dict[str, Any]]:
    """Return a document of each kind, and a ledger entry for each event and each action."""
    documents_of_all = []
    for name, (kind, document) in KINDS.items():
        choices: list[dict[str, object]] = [{}]
        if kind is LedgerEntry:
            events, actions = get_args(Event), get_args(Action)
            for make in (whole, least):
                choices += [{"event": make(event)} for event in events]
                choices += [{"decision": make(Decision, action=make(action))} for action in actions]
            choices = choices[1:]
        for given in choices:
            short = least(kind, **given)
            documents_of_all.append(
                {
                    "kind": name,
                    "whole": document(whole(kind, **given)),
                    "least": needed(short, document(short)),
                }
            )
    return documents_of_all


def encode(value: object) -> object:
    if isinstance(value, datetime):
        return {"$at": value.isoformat()}
    raise TypeError(type(value))


def decode(value: dict[str, Any]) -> Any:
    return datetime.fromisoformat(value["$at"]) if "$at" in value else value


def text(cases: list[dict[str, Any]]) -> str:
    """Write one case per line, so that a diff shows which one differs."""
    return (
        "[\n"
        + ",\n".join(json.dumps(case, sort_keys=True, default=encode) for case in cases)
        + "\n]\n"
    )


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return (
        field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    )


def _example(hint: Any, make: Any = whole) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _example(
            next(argument for argument in arguments if argument is not type(None)), make
        )
    if origin is Literal or (isinstance(hint, type) and issubclass(hint, Enum)):
        return next(iter(arguments or hint))
    if origin is tuple:
        return tuple(_example(argument, make) for argument in arguments if argument is not Ellipsis)
    if origin is dict:
        return {_example(arguments[0], make): _example(arguments[1], make)}
    if dataclasses.is_dataclass(hint):
        return make(hint)
    return {str: "text", int: 1, float: 1.5, Decimal: Decimal("1.5"), bool: True, datetime: AT}[
        hint
    ]


def main() -> int:
    folder = FOLDER / str(documents.SCHEMA)
    folder.mkdir(parents=True, exist_ok=True)
    sent = [
        {"function": function, "message": message}
        for function, kinds in MESSAGES.items()
        for message in kinds
    ]
    for name, cases in (("documents", stored()), ("messages", sent)):
        (folder / f"{name}.json").write_text(text(cases), encoding="utf-8")
    for schema in SCHEMAS.glob("*.proto"):
        (folder / schema.name).write_bytes(schema.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
