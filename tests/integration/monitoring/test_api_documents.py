"""The emulator and the agent against the discovery document and Google's own client of Cloud
Monitoring.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from googleapiclient.discovery import build_from_document
from googleapiclient.errors import HttpError

from tests.integration.agent.support.vm import agent_identity
from tests.integration.api.discovery import document, faults
from tests.integration.monitoring.cloud import CPU, PROJECT, START_NS, Cloud, a_counter, a_gauge, at
from trainmaster.agent.control.stall_watch import Quiet
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.progress.collector import ProgressPoint
from trainmaster.agent.utilization.averages import Report
from trainmaster.agent.utilization.time_series import ALIVE, SeriesOrigin, alive_body, request_body
from trainmaster.ports.metrics import Metric

REPORT = Report(
    cpu=0.5, memory=0.25, gpus={0: 0.9, 1: 0.01}, gpu_memory={0: 0.75}, received=1000, sent=10
)


def agent_body(end_s: float = 60.0) -> dict[str, Any]:
    """Return what the agent of worker 1 sends."""
    origin = SeriesOrigin.of(agent_identity(project=PROJECT))
    progress = [
        ProgressPoint("share", 0.41, "reported"),
        ProgressPoint("metric/loss", 1.71, "printed"),
    ]
    end_ns = START_NS + round(end_s * 10**9)
    key = IncarnationKey(1, 1)
    return request_body(
        origin, key, REPORT, START_NS, end_ns, progress, Quiet(for_s=150.0, left_s=450.0)
    )


def test_body_of_the_agent_has_the_fields_and_types_of_the_api() -> None:
    alive = alive_body(
        SeriesOrigin.of(agent_identity(project=PROJECT)), "2026-11-21T03:00:00+00:00"
    )
    for body in (agent_body(), alive):
        assert faults("monitoring", "CreateTimeSeriesRequest", body) == []


def test_agent_writes_the_metrics_that_are_read() -> None:
    written = {
        series["metric"]["type"].partition("/training/")[2] for series in agent_body()["timeSeries"]
    }
    assert written | {ALIVE.partition("/training/")[2]} == set(Metric)


def test_emulator_accepts_what_the_agent_sends(cloud: Cloud) -> None:
    cloud.now_s = 130
    for end_s in (60, 120):
        cloud.write(*agent_body(end_s)["timeSeries"])
    assert {found.kind for found in cloud.store.descriptors()} == {"GAUGE", "CUMULATIVE"}


def test_responses_of_the_emulator_have_the_fields_and_types_of_the_api(cloud: Cloud) -> None:
    cloud.now_s = 130
    cloud.write(a_gauge(), a_counter(10, end_s=60))
    interval = {"interval_startTime": at(-60), "interval_endTime": at(60)}
    for metric in ("cpu/utilization", "network/sent_bytes_count"):
        kind = f"custom.googleapis.com/trainmaster/training/{metric}"
        _, body = cloud.get(filter=f'metric.type = "{kind}"', **interval)
        assert faults("monitoring", "ListTimeSeriesResponse", body) == []


def test_googles_client_writes_and_reads(cloud: Cloud) -> None:
    cloud.now_s = 60
    with cloud.serving() as address:
        client = build_from_document(
            {**document("monitoring"), "rootUrl": f"{address}/", "mtlsRootUrl": f"{address}/"},
            credentials=AnonymousCredentials(),
        )
        series = client.projects().timeSeries()
        assert series.create(name=f"projects/{PROJECT}", body=agent_body()).execute() == {}
        found = series.list(
            name=f"projects/{PROJECT}",
            filter=f'metric.type = "{CPU}"',
            interval_startTime=at(0),
            interval_endTime=at(60),
            aggregation_alignmentPeriod="60s",
            aggregation_perSeriesAligner="ALIGN_MEAN",
            aggregation_crossSeriesReducer="REDUCE_MAX",
            aggregation_groupByFields=["metric.labels.task_type", "resource.labels.task_id"],
        ).execute()
        with pytest.raises(HttpError) as refused:
            series.create(name=f"projects/{PROJECT}", body=agent_body()).execute()
        client.close()
    assert found["timeSeries"][0]["points"] == [
        {"interval": {"startTime": at(60), "endTime": at(60)}, "value": {"doubleValue": 0.5}}
    ]
    assert (
        "Points must be written in order" in json.loads(refused.value.content)["error"]["message"]
    )
