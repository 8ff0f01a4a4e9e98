"""Error responses in the format of Google's newer APIs: a code, a status, a message, details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
"""A JSON object of Google's API."""


@dataclass(eq=False)
class ApiError(Exception):
    code: int
    """HTTP status."""
    status: str
    """Canonical name, such as INVALID_ARGUMENT."""
    message: str
    details: tuple[Json, ...] = ()

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"

    def body(self) -> Json:
        error: Json = {"code": self.code, "message": self.message, "status": self.status}
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}


def invalid(message: str, *details: Json) -> ApiError:
    return ApiError(400, "INVALID_ARGUMENT", message, details)
