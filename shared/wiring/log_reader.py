"""Cloud Logging, for those who read."""

from __future__ import annotations

from functools import cache
from typing import Final

from shared.gcp.cloud_logging import CloudLogging
from shared.settings import settings

TIMEOUT_S: Final = 60.0


@cache
def logging() -> CloudLogging:
    values = settings()
    return CloudLogging(values.project, values.logging_endpoint, TIMEOUT_S)
