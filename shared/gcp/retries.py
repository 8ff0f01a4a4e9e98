"""Deadlines of calls to Google's APIs, and which failed calls are repeated. Google's clients do the repeating.

A function has 60 s for one event (infra/functions.tf) and makes a handful of calls, so a call gives up early enough for
Pub/Sub to redeliver the event, and late enough for the usual hiccup of a service to be over.
"""

from __future__ import annotations

from typing import Any, Final

from google.api_core import exceptions
from google.api_core.retry import Retry, if_exception_type

CALL_S: Final = 20.0
"""Deadline of one call, its repetitions included."""
FLEET_CALL_S: Final = 30.0
"""Deadline of one call to Compute Engine or Cloud TPU, which list and create slowly."""

_TRANSIENT: Final = if_exception_type(exceptions.ServerError, exceptions.TooManyRequests)


def repeated(deadline_s: float = CALL_S) -> dict[str, Any]:
    """Return the keyword arguments of a call that may be made twice: 5xx and 429 are repeated with backoff and
    jitter."""
    retry = Retry(predicate=_TRANSIENT, initial=0.2, maximum=4.0, multiplier=2.0, timeout=deadline_s)
    return {"retry": retry, "timeout": deadline_s}


CALL: Final = repeated()
"""For every call whose repetition is harmless: a read, a conditional write, a message (which may be delivered
twice)."""
FLEET_READ: Final = repeated(FLEET_CALL_S / 2)
"""For reads of VMs and TPU nodes."""
FLEET_WRITE: Final[dict[str, Any]] = {"retry": None, "timeout": FLEET_CALL_S}
"""For changes of VMs and TPU nodes. `provision` compares desired and observed again before it repeats one."""
