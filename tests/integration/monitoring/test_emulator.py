"""The Monitoring emulator: checks of a write, filters, alignment and reduction."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2

from tests.integration.monitoring.cloud import (
    BYTES,
    CPU,
    Cloud,
    a_counter,
    a_gauge,
    at,
    resource_labels,
    values,
)

OF_CPU = f'metric.type = "{CPU}"'


def changed(series: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**series, **changes}


def a_point(interval: dict[str, str], **value: Any) -> dict[str, Any]:
    return {"interval": interval, "value": value}


NOW = {"endTime": at(0)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": []}, "exactly one point"),
        ({"points": [a_point(NOW, doubleValue=1.0)] * 2}, "exactly one point"),
        (
            {"points": [a_point({"endTime": at(301)}, doubleValue=1.0)]},
            "five minutes in the future",
        ),
        ({"points": [a_point({"endTime": at(-90001)}, doubleValue=1.0)]}, "25 hours in the past"),
        (
            {"points": [a_point({"startTime": at(-60), **NOW}, doubleValue=1.0)]},
            "a gauge's equals its end time",
        ),
        ({"points": [a_point(NOW, int64Value="1")]}, "valueType is DOUBLE"),
        ({"points": [a_point(NOW, doubleValue=1.0, int64Value="1")]}, "must have one of"),
        ({"points": [a_point(NOW, doubleValue="many")]}, "Invalid value"),
        ({"points": [a_point({}, doubleValue=1.0)]}, "endTime is required"),
        ({"metricKind": "DELTA"}, "GAUGE or CUMULATIVE"),
        ({"metricKind": "CUMULATIVE"}, "start time must be before the end time"),
        (
            {"metric": {"type": "compute.googleapis.com/x"}},
            "must start with custom.googleapis.com/",
        ),
        ({"metric": {"type": CPU, "labels": {"9x": "1"}}}, "labels[9x]"),
        ({"metric": {"type": CPU, "labels": {f"l{n}": "1" for n in range(31)}}}, "31 labels"),
        ({"resource": {"type": "cloudml_job", "labels": {}}}, "resource.type"),
        (
            {"resource": {"type": "generic_task", "labels": {"job": "j"}}},
            "needs location, namespace, task_id",
        ),
        (
            {"resource": {"type": "global", "labels": {"job": "j"}}},
            "Unrecognized resource label for global: job",
        ),
        (
            {
                "resource": {
                    "type": "generic_task",
                    "labels": {**resource_labels("w"), "project_id": "p2"},
                }
            },
            "is p2, but the request is for my-project",
        ),
    ],
)
def test_invalid_series_is_refused_with_the_reason(
    cloud: Cloud, changes: dict[str, Any], message: str
) -> None:
    assert message in cloud.refusal(changed(a_gauge(), **changes))


def test_valid_series_of_a_request_are_stored_beside_refused_ones(cloud: Cloud) -> None:
    status, body = cloud.create(
        a_gauge(0.5), changed(a_gauge(task="worker-1"), points=[]), a_gauge(0.7, task="ps-0")
    )
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert body["error"]["message"].endswith(": timeSeries[1]")
    (summary,) = body["error"]["details"]
    assert (summary["totalPointCount"], summary["successPointCount"]) == (3, 2)
    assert summary["errors"] == [{"status": {"code": code_pb2.INVALID_ARGUMENT}, "pointCount": 1}]
    assert len(cloud.list(OF_CPU, -60, 60)) == 2


def test_series_may_occur_once_in_a_request(cloud: Cloud) -> None:
    assert "Duplicate TimeSeries encountered" in cloud.refusal(a_gauge(0.1), a_gauge(0.2))


def test_request_has_at_most_200_series(cloud: Cloud) -> None:
    assert "1 to 200" in cloud.refusal(*(a_gauge(task=f"worker-{n}") for n in range(201)))
    cloud.write(*(a_gauge(task=f"worker-{n}") for n in range(200)))


def test_points_must_be_newer_and_5_seconds_apart(cloud: Cloud) -> None:
    cloud.now_s = 60
    cloud.write(a_gauge(end_s=30))
    assert "written in order" in cloud.refusal(a_gauge(end_s=30))
    assert "written in order" in cloud.refusal(a_gauge(end_s=10))
    status, body = cloud.create(a_gauge(end_s=34.9))
    assert "more frequently than the maximum sampling period" in body["error"]["message"]
    (details,) = body["error"]["details"]
    assert status == 400
    assert details["errors"][0]["status"] == {"code": code_pb2.FAILED_PRECONDITION}
    cloud.write(a_gauge(end_s=35))


def test_kind_and_type_are_those_of_the_first_write(cloud: Cloud) -> None:
    cloud.write(a_gauge())
    as_text = changed(
        a_gauge(end_s=10), valueType="INT64", points=[a_point({"endTime": at(10)}, int64Value="1")]
    )
    assert "must be DOUBLE, but is INT64" in cloud.refusal(as_text)
    interval = {"startTime": at(0), "endTime": at(10)}
    cumulative = changed(
        a_gauge(), metricKind="CUMULATIVE", points=[a_point(interval, doubleValue=1.0)]
    )
    assert "kind for metric" in cloud.refusal(cumulative)


def test_counter_restarts_after_its_last_end_only(cloud: Cloud) -> None:
    cloud.write(a_counter(100, end_s=60))
    assert "written in order" in cloud.refusal(a_counter(10, end_s=120, start_s=59))
    cloud.write(a_counter(10, end_s=120, start_s=60.001))


def test_new_labels_are_added_to_the_descriptor(cloud: Cloud) -> None:
    cloud.write(a_gauge())
    cloud.write(a_gauge(end_s=10, gpu="0"))
    (descriptor,) = cloud.store.descriptors()
    assert (descriptor.labels, descriptor.unit) == (("attempt", "gpu", "task_type"), "1")


def test_raw_list_has_the_newest_point_first_and_excludes_the_start(cloud: Cloud) -> None:
    cloud.now_s = 200
    for end in (60, 120, 180):
        cloud.write(a_gauge(end / 1000, end_s=end))
    (series,) = cloud.list(OF_CPU, 60, 180)
    assert [point["interval"]["endTime"] for point in series["points"]] == [at(180), at(120)]
    assert (series["metricKind"], series["valueType"], series["unit"]) == ("GAUGE", "DOUBLE", "1")
    assert series["resource"]["labels"] == resource_labels("worker-0")


@pytest.mark.parametrize(
    ("condition", "tasks"),
    [
        ("", {"worker-0", "worker-1", "ps-0"}),
        (
            'AND resource.type = "generic_task" AND resource.labels.job = "digits_1"',
            {"worker-0", "worker-1", "ps-0"},
        ),
        ('AND resource.label.task_id="worker-1"', {"worker-1"}),
        ('AND metric.labels.task_type != "worker"', {"ps-0"}),
        ('AND resource.labels.task_id = one_of("ps-0", "worker-0")', {"worker-0", "ps-0"}),
        ('AND resource.labels.task_id = starts_with("worker")', {"worker-0", "worker-1"}),
        ('AND resource.labels.job = "other"', set()),
    ],
)
def test_filter_selects_series(cloud: Cloud, condition: str, tasks: set[str]) -> None:
    cloud.write(
        *(a_gauge(task=task) for task in ("worker-0", "worker-1", "ps-0")), a_counter(1, end_s=1)
    )
    found = cloud.list(f"{OF_CPU} {condition}", -60, 60)
    assert {series["resource"]["labels"]["task_id"] for series in found} == tasks


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ("", "single metric type"),
        ('resource.type = "generic_task"', "single metric type"),
        ('metric.type = starts_with("custom")', "single metric type"),
        (f'{OF_CPU} AND metric.type = "{BYTES}"', "single metric type"),
        (f'{OF_CPU} OR resource.type = "global"', "cannot parse it"),
        (f'{OF_CPU} AND resource.labels.job = has_substring("x")', "cannot parse it"),
        (f'{OF_CPU} AND group.id = "x"', "unknown field 'group.id'"),
        (f'{OF_CPU} AND resource.labels.job = "x', "cannot parse it"),
    ],
)
def test_invalid_filter_is_refused_with_the_reason(cloud: Cloud, filter: str, message: str) -> None:
    status, body = cloud.get(filter=filter, interval_startTime=at(0), interval_endTime=at(60))
    assert status == 400
    assert message in body["error"]["message"]


@pytest.mark.parametrize(
    ("aligner", "expected"),
    [
        ("ALIGN_MEAN", [(60, 0.2), (120, 0.5)]),
        ("ALIGN_MAX", [(60, 0.3), (120, 0.5)]),
        ("ALIGN_COUNT", [(60, 2), (120, 1)]),
    ],
)
def test_periods_end_at_the_end_of_the_interval(
    cloud: Cloud, aligner: str, expected: list[tuple[float, float]]
) -> None:
    cloud.now_s = 200
    for end, value in ((20, 0.1), (60, 0.3), (110, 0.5)):
        cloud.write(a_gauge(value, end_s=end))
    parameters = {"aggregation_perSeriesAligner": aligner, "aggregation_alignmentPeriod": "60s"}
    (series,) = cloud.list(OF_CPU, 0, 180, **parameters)
    assert values(series) == expected


def test_rate_spreads_an_increase_over_the_time_between_points(cloud: Cloud) -> None:
    cloud.now_s = 300
    cloud.write(a_counter(600, end_s=60))
    cloud.write(a_counter(1800, end_s=180))
    cloud.write(a_counter(60, end_s=240, start_s=180.001))  # the counter began again
    parameters = {
        "aggregation_perSeriesAligner": "ALIGN_RATE",
        "aggregation_alignmentPeriod": "60s",
    }
    (series,) = cloud.list(f'metric.type = "{BYTES}"', 60, 240, **parameters)
    assert [(end, round(rate, 2)) for end, rate in values(series)] == [
        (120, 10),
        (180, 10),
        (240, 1),
    ]
    assert (series["metricKind"], series["valueType"], series["unit"]) == (
        "GAUGE",
        "DOUBLE",
        "By/s",
    )


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [("REDUCE_MEAN", 0.4), ("REDUCE_MIN", 0.2), ("REDUCE_MAX", 0.6), ("REDUCE_COUNT", 2)],
)
def test_reducer_combines_the_series_of_a_group(
    cloud: Cloud, reducer: str, expected: float
) -> None:
    cloud.write(
        a_gauge(0.2, task="worker-0"), a_gauge(0.6, task="worker-1"), a_gauge(0.9, task="ps-0")
    )
    parameters = {
        "aggregation_perSeriesAligner": "ALIGN_MEAN",
        "aggregation_alignmentPeriod": "60s",
        "aggregation_crossSeriesReducer": reducer,
        "aggregation_groupByFields": ["metric.labels.task_type", "resource.labels.job"],
    }
    found = {
        series["metric"]["labels"]["task_type"]: series
        for series in cloud.list(OF_CPU, -30, 30, **parameters)
    }
    ((end, value),) = values(found["worker"])
    assert (end, round(value, 6)) == (30, expected)
    assert set(found) == {"worker", "ps"}
    assert found["ps"]["resource"]["labels"] == {"project_id": "my-project", "job": "digits_1"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"aggregation_perSeriesAligner": "ALIGN_MEAN"}, "at least 60s"),
        (
            {"aggregation_perSeriesAligner": "ALIGN_MEAN", "aggregation_alignmentPeriod": "30s"},
            "at least 60s",
        ),
        (
            {"aggregation_perSeriesAligner": "ALIGN_RATE", "aggregation_alignmentPeriod": "60s"},
            "cannot be applied",
        ),
        ({"aggregation_perSeriesAligner": "ALIGN_DELTA"}, "does not support the aligner"),
        ({"aggregation_crossSeriesReducer": "REDUCE_MEAN"}, "perSeriesAligner is required"),
        ({"interval_startTime": at(61)}, "before the end time"),
        ({"interval_endTime": ""}, "endTime is required"),
        ({"pageSize": "many"}, "pageSize"),
    ],
)
def test_invalid_list_is_refused_with_the_reason(
    cloud: Cloud, parameters: dict[str, Any], message: str
) -> None:
    cloud.write(a_gauge())
    interval = {"interval_startTime": at(-60), "interval_endTime": at(60)}
    status, body = cloud.get(filter=OF_CPU, **{**interval, **parameters})
    assert status == 400
    assert message in body["error"]["message"]


def test_pages_contain_each_series_once(cloud: Cloud) -> None:
    cloud.write(*(a_gauge(task=f"worker-{n}") for n in range(5)))
    tasks, token = [], ""
    while True:
        interval = {"interval_startTime": at(-60), "interval_endTime": at(60)}
        _, body = cloud.get(filter=OF_CPU, pageSize=2, pageToken=token, **interval)
        tasks += [series["resource"]["labels"]["task_id"] for series in body["timeSeries"]]
        token = body.get("nextPageToken", "")
        if not token:
            break
    assert tasks == [f"worker-{n}" for n in range(5)]


def test_denied_permission_is_named(cloud: Cloud) -> None:
    cloud.server.denied = frozenset(["monitoring.timeSeries.create"])
    status, body = cloud.create(a_gauge())
    assert (status, body["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert "monitoring.timeSeries.create" in body["error"]["message"]
