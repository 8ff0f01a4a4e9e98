"""Calls that an emulator fails on request: `POST /emulator/v1/failing-calls`.

    {"calls": [{"method": "GET", "path": ".*/getGuestAttributes", "status": 412, "times": 1}]}

The request replaces those of an earlier one. `path` is a regular expression for the whole path. A
GET shows the calls that are still to fail.
"""

from __future__ import annotations

import re
import threading
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainmaster_emulators.rest.api_errors import Json, invalid

FAILING_CALLS: Final = "/emulator/v1/failing-calls"
"""Path of this request, of every emulator."""


class FailingCall(BaseModel):
    """The next `times` calls of this method and path fail with the HTTP status."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    path: str
    status: Annotated[int, Field(ge=400, le=599)]
    times: Annotated[int, Field(ge=1)] = 1


class _Body(BaseModel):
    """Body of the request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: tuple[FailingCall, ...]


class FailingCalls:
    """The calls that are still to fail. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[FailingCall] = []

    def set(self, body: Json) -> Json:
        """Replace the calls. Raises ApiError (400)."""
        try:
            calls = _Body.model_validate(body).calls
        except ValidationError as error:
            raise invalid(f"Invalid failing calls: {error}") from None
        with self._lock:
            self._calls = list(calls)
        return body

    def show(self) -> Json:
        """Return the calls that are still to fail, in the form of the request."""
        with self._lock:
            return {"calls": [call.model_dump() for call in self._calls]}

    def take(self, method: str, path: str) -> int | None:
        """Return the status with which this call is to fail, and count it. None: it is not."""
        with self._lock:
            for index, call in enumerate(self._calls):
                if call.method == method and re.fullmatch(call.path, path):
                    self._use(index)
                    return call.status
        return None

    def _use(self, index: int) -> None:
        """Count one of the times that this call is to fail. The caller holds the lock."""
        call = self._calls.pop(index)
        if call.times > 1:
            self._calls.insert(index, call.model_copy(update={"times": call.times - 1}))
