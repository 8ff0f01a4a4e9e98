"""Failures as Google's newer APIs write them: a code, a status word, a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
"""A JSON object of Google's API, as it goes over the wire."""


@dataclass(eq=False)
class ApiError(Exception):
    code: int
    status: str
    message: str
    details: tuple[Json, ...] = ()

    def body(self) -> Json:
        error: Json = {"code": self.code, "message": self.message, "status": self.status}
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}


def invalid(message: str, *details: Json) -> ApiError:
    return ApiError(400, "INVALID_ARGUMENT", message, details)
