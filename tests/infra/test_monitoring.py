"""Alerts and dashboard: of metrics that there are, aligned as their kind allows, with a page for each."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, Final

from google.cloud import monitoring_dashboard_v1
from google.protobuf import json_format

from emulators.stack.state import ROOT
from shared.flows import orphans
from tests.infra.conftest import Plan

METRICS: Final = {
    "pubsub.googleapis.com/subscription/num_undelivered_messages": ("GAUGE", "pubsub_subscription"),
    "pubsub.googleapis.com/subscription/oldest_unacked_message_age": ("GAUGE", "pubsub_subscription"),
    "pubsub.googleapis.com/subscription/push_request_count": ("DELTA", "pubsub_subscription"),
    "run.googleapis.com/request_count": ("DELTA", "cloud_run_revision"),
    "run.googleapis.com/container/instance_count": ("GAUGE", "cloud_run_revision"),
}
"""Kind and resource. Source: "Google Cloud metrics", lists of Pub/Sub and Cloud Run."""
ALIGNERS: Final = {"GAUGE": {"ALIGN_MAX", "ALIGN_MEAN"}, "DELTA": {"ALIGN_DELTA", "ALIGN_RATE"}}
ALERTS: Final = "google_monitoring_alert_policy"
NOT_ALERTS: Final = {"README", "upgrade", "uninstall"}


def conditions(plan: Plan) -> list[tuple[str, dict[str, Any]]]:
    """Kind and body of each alert's condition."""
    found = []
    for alert in plan.of(ALERTS).values():
        (condition,) = alert["conditions"]
        ((kind, body),) = [
            (kind, said[0]) for kind, said in condition.items() if kind.startswith("condition_") and said
        ]
        found.append((kind, body))
    return found


def of_metrics(plan: Plan) -> list[tuple[str, str]]:
    """Filter and aligner of all that is shown or alerted on."""
    found = [
        (body["filter"], body["aggregations"][0]["per_series_aligner"])
        for kind, body in conditions(plan)
        if kind != "condition_matched_log"
    ]
    for widget in dashboard(plan)["gridLayout"]["widgets"]:
        shown = widget["xyChart"]["dataSets"][0]["timeSeriesQuery"]["timeSeriesFilter"]
        found.append((shown["filter"], shown["aggregation"]["perSeriesAligner"]))
    return found


def dashboard(plan: Plan) -> dict[str, Any]:
    (planned,) = plan.of("google_monitoring_dashboard").values()
    found: dict[str, Any] = json.loads(planned["dashboard_json"])
    return found


def test_the_dashboard_is_one(plan: Plan) -> None:
    """Unknown fields and wrong types are errors."""
    message = monitoring_dashboard_v1.Dashboard.pb(monitoring_dashboard_v1.Dashboard())
    json_format.ParseDict(dashboard(plan), message, ignore_unknown_fields=False)
    assert len(message.grid_layout.widgets) >= 4


def test_every_metric_exists_and_is_aligned_as_its_kind_allows(plan: Plan) -> None:
    for said, aligner in of_metrics(plan):
        (metric,) = re.findall(r'metric\.type="([^"]+)"', said)
        kind, resource = METRICS[metric]
        assert aligner in ALIGNERS[kind], said
        assert f'resource.type="{resource}"' in said, said


def test_every_alert_has_its_page_and_every_page_its_alert(plan: Plan) -> None:
    pages = {path for path in (ROOT / "docs" / "runbooks").glob("*.md") if path.stem not in NOT_ALERTS}
    named = set()
    for alert in plan.of(ALERTS).values():
        (page,) = re.findall(r"docs/runbooks/[\w-]+\.md", alert["documentation"][0]["content"])
        named.add(ROOT / page)
    assert named == pages


def test_what_alerts_cost_is_told(plan: Plan) -> None:
    """Google charges by condition."""
    page = " ".join((ROOT / "infra" / "README.md").read_text(encoding="utf-8").split())
    assert len(conditions(plan)) == 5
    assert "five conditions of the alerts" in page


def test_a_sweep_that_does_not_run_is_missed(plan: Plan) -> None:
    """No tick, no message: nothing waits, and only absence tells."""
    (body,) = [body for kind, body in conditions(plan) if kind == "condition_absent"]
    assert 'response_class="ack"' in body["filter"]
    assert body["duration"] == "600s"
    assert body["aggregations"][0]["cross_series_reducer"] == "REDUCE_SUM"


def test_no_alert_waits_for_a_metric_that_is_only_being_made(plan: Plan) -> None:
    """It would be unknown for ten minutes: one apply would not be enough."""
    assert not plan.of("google_logging_metric")


def test_the_alert_of_orphans_waits_for_words_that_are_said(plan: Plan) -> None:
    source = Path(orphans.__file__).read_text(encoding="utf-8")
    said = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    block = (ROOT / "infra" / "monitoring.tf").read_text(encoding="utf-8")
    (words,) = re.findall(r'jsonPayload\.message:\\"([^\\]+)\\"', block)
    assert [each for each in said if isinstance(each, str) and each.startswith(words)]
