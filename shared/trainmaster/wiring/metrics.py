"""Cloud Monitoring as the console and `trainmaster top` read it."""

from __future__ import annotations

from functools import cache

from trainmaster.gcp.monitoring_metrics import TIMEOUT_S, MonitoringMetrics
from trainmaster.settings import settings


@cache
def metric_reader(timeout_s: float = TIMEOUT_S) -> MonitoringMetrics:
    """Return the reader of this installation's metrics, one for each timeout of its calls."""
    values = settings()
    return MonitoringMetrics(values.project, values.monitoring_endpoint, timeout_s)
