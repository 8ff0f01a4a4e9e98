"""docs/notifications.md: its example is a message, and its tables have every field and
attribute.
"""

from __future__ import annotations

import re
from typing import Final

from trainmaster.messaging.job_state import (
    LABEL_PREFIX,
    JobKind,
    JobStateMessage,
    Transition,
    job_state_attributes,
)
from trainmaster_emulators.checkout import ROOT

PAGE: Final = (ROOT / "docs" / "notifications.md").read_text(encoding="utf-8")


def example() -> JobStateMessage:
    (text,) = re.findall(r"(?ms)^```json\n(.*?)^```$", PAGE)
    return JobStateMessage.model_validate_json(text)


def first_columns() -> set[str]:
    """Return the words in code in the first column of every table."""
    return {
        word
        for cell in re.findall(r"(?m)^\| ([^|]+) \|", PAGE)
        for word in re.findall(r"`(\w+)`", cell)
    }


def test_example_of_the_page_is_a_valid_message() -> None:
    assert (example().transition, example().attempt) == (Transition.RERUN, 2)


def test_tables_have_every_field_and_every_attribute() -> None:
    attributes = {
        f"{LABEL_PREFIX}KEY" if name.startswith(LABEL_PREFIX) else name for name in _attributes()
    }
    assert first_columns() == {*JobStateMessage.model_fields, *attributes}


def test_page_names_every_kind_and_transition() -> None:
    assert [word for word in (*JobKind, *Transition) if f"`{word}`" not in PAGE] == []


def _attributes() -> set[str]:
    return set(job_state_attributes(example()))
