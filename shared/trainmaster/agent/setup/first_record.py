"""Files that say what a VM had before its first job, for the comparison when another job takes it.

A record is written once, before the first program, and stays with the VM. A program is root and may
damage it: then nothing is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.agent.regular_file import open_regular

RECORD_BYTES_MAX = 64 << 20
"""A longer record is damaged: one with a hundred thousand names has a tenth of it."""


def write_record(file: Path, record: Mapping[str, Any]) -> None:
    """Write the record whole or not at all."""
    whole = file.with_suffix(".new")
    whole.write_text(json.dumps(record), encoding="utf-8")
    whole.replace(file)


def read_record(file: Path) -> dict[str, Any] | None:
    """Return the record; None: there is none, or it is damaged."""
    try:
        with open_regular(file) as opened:
            stored = json.loads(opened.read(RECORD_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    return stored if isinstance(stored, dict) else None


def is_list_of_names(value: object) -> bool:
    """Return whether a value of a record is a list of texts."""
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
