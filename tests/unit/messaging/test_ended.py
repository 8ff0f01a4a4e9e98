"""How the previous program ended, in an agent's ready report; and the times of agents whose clocks
are fast.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contract.release_corpus import DECODERS, MESSAGES
from trainmaster.core.events import VmReady
from trainmaster.errors import PermanentError
from trainmaster.messaging.agent_messages import (
    STDERR_LINE_LENGTH_MAX,
    TAIL_LENGTH_MAX,
    decode_replica_exit,
    decode_vm_ready,
)

AT = datetime(2026, 11, 21, 3, tzinfo=UTC)
READY: dict[str, Any] = MESSAGES["vm_ready"][-1]
"""A vm-ready of attempt 1, incarnation 2, that says how incarnation 1 ended."""


def decode(**ended: object) -> VmReady:
    return decode_vm_ready(json.dumps({**READY, "ended": {**READY["ended"], **ended}}).encode())


def test_ended_is_the_exit_event_of_the_earlier_incarnation() -> None:
    """The same as if the agent had reported the exit itself."""
    exit_message = {**READY, **READY["ended"]}
    del exit_message["ended"]
    ready = decode()
    assert ready.ended == decode_replica_exit(json.dumps(exit_message).encode())
    assert ready.ended is not None
    assert ready.ended.subject == replace(ready.subject, attempt=1, incarnation=1)
    assert ready.subject.incarnation == 2


def test_report_without_an_earlier_program_has_no_end() -> None:
    assert decode_vm_ready(json.dumps({**READY, "ended": None}).encode()).ended is None


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"signal": 9}, "exactly one of exit_status and signal"),
        ({"exit_status": 10**30}, "ended.exit_status"),
        ({"ran_s": -1}, "ended.ran_s"),
        ({"at": "1979-12-31T23:59:59Z"}, "ended.at"),
        ({"incarnation": 2}, "ended must be an earlier incarnation"),
        ({"attempt": 2}, "ended must be an earlier incarnation"),
    ],
)
def test_invalid_end_is_a_permanent_error(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(PermanentError, match=problem):
        decode(**changed)


def test_texts_of_an_end_are_cut_and_its_invalid_metric_is_left_out() -> None:
    texts = {"tail": "t" * 10**5, "stderr_line": "a\n" + "b" * 10**5}
    ended = decode(**texts, metric={"value": "high"}).ended
    assert ended is not None
    assert (len(ended.tail), ended.measurement) == (TAIL_LENGTH_MAX, None)
    assert (len(ended.stderr_line), ended.stderr_line[:3]) == (STDERR_LINE_LENGTH_MAX, "a b")


def times(value: object) -> list[datetime]:
    """Return all times of an event, and of the events inside it."""
    if isinstance(value, datetime):
        return [value]
    names = getattr(value, "__dataclass_fields__", {})
    return [time for name in names for time in times(getattr(value, name))]


@pytest.mark.parametrize("function", ["vm_ready", "replica_exit", "maintenance"])
def test_time_after_the_publication_is_cut_to_it(function: str) -> None:
    """The clock of a VM may be fast; a loss or a start in the future would explain what happens
    until then.
    """
    decode_message: Any = DECODERS[function]
    for message in MESSAGES[function]:
        if "protoPayload" in message:  # Google's own time
            continue
        if "gives_up_at" in message:  # a time to come
            continue
        data = json.dumps(message).encode()
        as_sent = times(decode_message(data))
        assert as_sent == times(decode_message(data, AT + timedelta(days=1)))
        published_at = min(as_sent) - timedelta(seconds=1)
        assert set(times(decode_message(data, published_at))) == {published_at}
