"""Deadlines of calls to Google's APIs, and which failed calls are repeated.

Google's clients do the repeating.

A function has 60 s for one event (infra/functions.tf) and makes a handful of calls, so a call gives
up early enough for Pub/Sub to redeliver the event, and late enough to outlast a short outage of a
service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.api_core import exceptions
from google.api_core.retry import Retry, if_exception_type

from trainmaster.gcp.errors import NO_CONNECTION

Listing = TypeVar("Listing")
_log = logging.getLogger(__name__)

CALL_S: Final = 20.0
"""Deadline of one call, its repetitions included."""
OPTIONAL_READ_S: Final = 10.0
"""Deadline of a read without which a command or a page lacks only a line, such as a price or the
progress of a job.
"""
FLEET_CALL_S: Final = 30.0
"""Deadline of one change of VMs or TPU nodes, which is slower than other calls."""
FLEET_READ_S: Final = 15.0
"""Deadline of one read of VMs or TPU nodes, its repetitions included."""

_REPEATED: Final = (exceptions.ServerError, exceptions.TooManyRequests)


def retry_options(deadline_s: float, *errors: type[Exception]) -> dict[str, Any]:
    """Return the keyword arguments of a call that is repeated after 5xx, 429 and `errors`, with
    backoff and jitter.
    """
    retry = Retry(
        if_exception_type(*_REPEATED, *errors),
        initial=0.2,
        maximum=4.0,
        multiplier=2.0,
        timeout=deadline_s,
    )
    return {"retry": retry, "timeout": deadline_s}


CALL: Final = retry_options(CALL_S, *NO_CONNECTION)
"""For calls whose repetition is harmless: reads, conditional writes, messages (which may be
delivered twice).
"""
FLEET_READ: Final = retry_options(FLEET_READ_S)
"""For reads of VMs and TPU nodes.

Without a connection they fail at once, and the event is redelivered.
"""
FIELD_MASK: Final = "x-goog-fieldmask"
"""Header that names the fields of a response. Source: Google's "System parameters"."""


def masked(call: Callable[..., Listing], fields: str) -> Listing:
    """Call a list method for `fields` only.

    No document confirms the header for these services. A service that refuses it is called again
    without it.
    """
    try:
        return call(metadata=[(FIELD_MASK, fields)], **FLEET_READ)
    except exceptions.BadRequest as error:
        _log.warning("a list is read without its field mask %s: %s", fields, error)
        return call(**FLEET_READ)


FLEET_WRITE: Final[dict[str, Any]] = {"retry": None, "timeout": FLEET_CALL_S}
"""For changes of VMs and TPU nodes.

`provision` compares desired and observed again before it repeats one.
"""
