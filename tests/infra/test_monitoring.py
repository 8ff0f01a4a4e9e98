"""Alerts and dashboard: their metrics exist, the aligners fit the metric kinds, and each alert has
a runbook.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on (`conftest.py`).
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final

import pytest
from google.cloud import monitoring_dashboard_v1
from google.protobuf import json_format

from tests.infra.conftest import INFRA, Plan
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.logging import log_filter
from trainmaster_emulators.monitoring import series_filter
from trainmaster_emulators.rest.api_errors import ApiError

METRICS: Final = {
    "pubsub.googleapis.com/subscription/num_undelivered_messages": ("GAUGE", "pubsub_subscription"),
    "pubsub.googleapis.com/subscription/oldest_unacked_message_age": (
        "GAUGE",
        "pubsub_subscription",
    ),
    "pubsub.googleapis.com/subscription/push_request_count": ("DELTA", "pubsub_subscription"),
    "pubsub.googleapis.com/subscription/dead_letter_message_count": (
        "DELTA",
        "pubsub_subscription",
    ),
    "run.googleapis.com/request_count": ("DELTA", "cloud_run_revision"),
    "run.googleapis.com/container/instance_count": ("GAUGE", "cloud_run_revision"),
}
"""Metric → kind and resource type.

Source: "Google Cloud metrics", lists of Pub/Sub and Cloud Run.
"""
ALIGNERS: Final = {"GAUGE": {"ALIGN_MAX", "ALIGN_MEAN"}, "DELTA": {"ALIGN_DELTA", "ALIGN_RATE"}}
ALERTS: Final = "google_monitoring_alert_policy"
SECTIONS_WITHOUT_ALERT = {"restore", "uninstall", "upgrade"}


def conditions(plan: Plan) -> list[tuple[str, dict[str, Any]]]:
    """Return kind and body of each alert's condition."""
    pairs = []
    for alert in plan.of(ALERTS).values():
        (condition,) = alert["conditions"]
        ((kind, body),) = [
            (kind, blocks[0])
            for kind, blocks in condition.items()
            if kind.startswith("condition_") and blocks
        ]
        pairs.append((kind, body))
    return pairs


def metric_queries(plan: Plan) -> list[tuple[str, str]]:
    """Return filter and aligner of every alert and chart."""
    queries = [
        (body["filter"], body["aggregations"][0]["per_series_aligner"])
        for kind, body in conditions(plan)
        if kind != "condition_matched_log" and body.get("aggregations")
    ]
    for widget in dashboard(plan)["gridLayout"]["widgets"]:
        series = widget["xyChart"]["dataSets"][0]["timeSeriesQuery"]["timeSeriesFilter"]
        queries.append((series["filter"], series["aggregation"]["perSeriesAligner"]))
    return queries


def dashboard(plan: Plan) -> dict[str, Any]:
    (resource,) = plan.of("google_monitoring_dashboard").values()
    content: dict[str, Any] = json.loads(resource["dashboard_json"])
    return content


def test_dashboard_has_the_fields_of_the_message_type(plan: Plan) -> None:
    """Unknown fields and wrong types are errors."""
    message = monitoring_dashboard_v1.Dashboard.pb(monitoring_dashboard_v1.Dashboard())
    json_format.ParseDict(dashboard(plan), message, ignore_unknown_fields=False)
    assert message.grid_layout.widgets


def test_metrics_exist_and_their_aligners_fit_their_kind(plan: Plan) -> None:
    for query, aligner in metric_queries(plan):
        (metric,) = re.findall(r'metric\.type="([^"]+)"', query)
        kind, resource = METRICS[metric]
        assert aligner in ALIGNERS[kind], query
        assert f'resource.type="{resource}"' in query, query


def test_every_alert_has_a_runbook_and_every_runbook_an_alert(plan: Plan) -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^## (.*)$", page)
    sections = {heading.lower().replace(" ", "-") for heading in headings}
    referenced = set()
    for alert in plan.of(ALERTS).values():
        (section,) = re.findall(r"docs/runbooks\.md#([\w-]+)", alert["documentation"][0]["content"])
        referenced.add(section)
    assert referenced == sections - SECTIONS_WITHOUT_ALERT


def test_readme_states_the_number_of_charged_conditions(plan: Plan) -> None:
    page = " ".join((ROOT / "infra" / "README.md").read_text(encoding="utf-8").split())
    assert len(conditions(plan)) == 11
    assert "eleven conditions of the alerts" in page


def test_sweep_alert_watches_for_absent_acknowledgements(plan: Plan) -> None:
    """A missing tick leaves no message that could age, so an alert on waiting messages would not
    notice it.
    """
    (body,) = [body for kind, body in conditions(plan) if kind == "condition_absent"]
    assert 'response_class="ack"' in body["filter"]
    assert body["duration"] == "600s"
    assert body["aggregations"][0]["cross_series_reducer"] == "REDUCE_SUM"


def test_error_alert_ignores_503_which_only_asks_for_redelivery(plan: Plan) -> None:
    (query,) = [query for query, _ in metric_queries(plan) if "response_code" in query]
    assert re.findall(r"\d{3}", query) == ["500", "504"]


def test_no_alert_uses_a_log_based_metric(plan: Plan) -> None:
    """Monitoring would not know a new one for ten minutes, so that the first apply would fail."""
    assert not plan.of("google_logging_metric")


def test_log_alerts_match_fields_that_the_code_logs(plan: Plan) -> None:
    """They match whole fields of ours: part of a message may be the text of a job that
    was refused.
    """
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "shared").rglob("*.py")]
    filters = [body["filter"] for kind, body in conditions(plan) if kind == "condition_matched_log"]
    for text in filters:
        assert "jsonPayload.message" not in text
        ((operator, action),) = re.findall(r'jsonPayload\.action([=:])"([^"]+)"', text)
        nodes = (
            node for source in sources if action in source for node in ast.walk(ast.parse(source))
        )
        assert operator == "=", text
        assert any(isinstance(node, ast.Constant) and node.value == action for node in nodes), text


def test_mail_about_a_failed_job_contains_no_sentence_of_a_program(full_plan: Plan) -> None:
    """Programs can write log entries, also with these fields."""
    for kind, body in conditions(full_plan):
        for name, extractor in (
            (body.get("label_extractors") or {}).items() if kind == "condition_matched_log" else ()
        ):
            (pattern,) = re.findall(r'^REGEXP_EXTRACT\(jsonPayload\.\w+, "(.+)"\)$', extractor)
            assert re.search(pattern, "sign in again at https://evil.example") is None, name
            assert re.search(
                pattern, {"job": "digits_1-trial-3", "reason": "startup_timeout"}[name]
            )


def test_alert_on_failing_functions_does_not_count_messages_that_senders_make_up(
    plan: Plan,
) -> None:
    """Senders can keep the dead-letter subscription from being empty.

    Only a failing function exhausts deliveries.
    """
    queries = [query for query, _ in metric_queries(plan)]
    assert [query for query in queries if "dead_letter_message_count" in query]


def test_each_objective_reads_a_gauge_of_its_subscription_and_has_an_alert(plan: Plan) -> None:
    """Source: `MetricRange.timeSeries` must be a gauge; `windowPeriod` is at least a minute."""
    objectives = plan.of("google_monitoring_slo").values()
    assert {objective["slo_id"] for objective in objectives} == {
        "submit",
        "replica-exit",
        "provision",
    }
    topics = {topic["name"] for topic in plan.of("google_pubsub_topic").values()}
    for objective in objectives:
        (sli,) = objective["windows_based_sli"]
        (gauge,) = sli["metric_mean_in_range"]
        (metric,) = re.findall(r'metric\.type="([^"]+)"', gauge["time_series"])
        (subscription,) = re.findall(r'subscription_id="([^"]+)"', gauge["time_series"])
        assert (METRICS[metric], sli["window_period"]) == (("GAUGE", "pubsub_subscription"), "60s")
        assert subscription in topics
        assert 0 < gauge["range"][0]["max"] < 600  # the alert `backlog` begins there
        assert f'{ALERTS}.burn_rate["{objective["slo_id"]}"]' in plan.of(ALERTS)


FILTER: Final = re.compile(r'(?m)^\s*(?:filter|time_series)\s*=\s*"((?:\$\{[^}]*\}|[^"\\]|\\.)*)"')


def filters() -> list[str]:
    """Return every filter of Cloud Logging and Cloud Monitoring in infra/, with a word in place of
    each reference.
    """
    texts = [path.read_text(encoding="utf-8") for path in sorted(INFRA.glob("*.tf"))]
    found = [
        re.sub(r"\$\{[^}]*\}", "x", text) for content in texts for text in FILTER.findall(content)
    ]
    return [json.loads(f'"{text}"') for text in found]


def test_filters_are_of_their_language() -> None:
    """The two languages have different functions: `starts_with` is Monitoring's, and Logging has
    `=~`.
    """
    for text in filters():
        if text.startswith("select_"):  # a time-series selector stands in place of a filter
            assert text == 'select_slo_burn_rate("x", "3600s")'
        elif "metric.type" in text:
            series_filter.parse(text)
        else:
            # The emulator stores no audit entries.
            log_filter.parse(text.replace("protoPayload.", "jsonPayload."))


def test_filters_of_both_languages_are_found() -> None:
    assert {"metric.type" in text for text in filters()} == {True, False}
    with pytest.raises(ApiError):
        log_filter.parse('resource.labels.service_name=starts_with("trainmaster-")')
