"""Answers of Cloud Monitoring, kept for a minute: agents report once a minute, and several tabs ask for the same."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from cachetools import TTLCache, cached

from trainmaster.ports.metrics import MetricQuery, MetricReader, MetricSeries

KEPT_S: Final = 60.0
QUERIES_MAX: Final = 256


class MetricCache:
    """A MetricReader in front of another one. Thread-safe."""

    def __init__(self, reader: MetricReader) -> None:
        cache: TTLCache[MetricQuery, Sequence[MetricSeries]] = TTLCache(QUERIES_MAX, KEPT_S)
        self._read = cached(cache, key=lambda query: query, lock=threading.Lock())(reader.read)

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        """See the port. An error is not kept."""
        return self._read(query)
