"""Terraform itself on infra/: it validates, and its plan is what the code and the pages say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from emulators.stack.state import ROOT
from shared.core.intake import system_events
from shared.messaging import topics
from tests.infra.conftest import FILLED, Plan, Terraform

SUBSCRIPTION: Final = "google_pubsub_subscription"
EVENT_TIMEOUT_MAX_S: Final = 540
"""Source: "Cloud Run functions quotas": event-driven functions."""
ACK_DEADLINE_MAX_S: Final = 600
"""Source: Subscription.ack_deadline_seconds, which is also how long a push waits."""


def test_terraform_finds_it_valid(terraform: Terraform) -> None:
    """References, types, functions, arguments of modules and of resources."""
    done = terraform("validate", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr


WRONG: Final = {
    'output "a" {\n  value = var.prject\n}': "undeclared input variable",
    'output "b" {\n  value = google_storage_bucket.this.nmae\n}': 'exported attribute named "nmae"',
    'output "c" {\n  value = module.function["api"].url\n}': 'an attribute named "url"',
    'resource "google_pubsub_topic" "d" {\n  name = []\n}': "Incorrect attribute value type",
    'resource "google_pubsub_topic" "e" {\n  name  = "e"\n  label = {}\n}': "Unsupported argument",
    'resource "google_pubsub_topic" "f" {}': "Missing required argument",
    'resource "google_pubsub_queue" "g" {}': "Invalid resource type",
    'locals {\n  h = joint(",", [])\n}': "Call to unknown function",
}
"""What terraform says of each."""


def test_what_is_wrong_is_found(terraform: Terraform, tmp_path: Path) -> None:
    """So that "valid" says something."""
    done = terraform("init", "-input=false", "-backend=false", f"-from-module={ROOT / 'infra'}", within=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "wrong.tf").write_text("\n".join(WRONG))
    done = terraform("validate", "-no-color", within=tmp_path)
    said = " ".join(done.stderr.split())
    assert {each for each in WRONG.values() if each not in said} == set()


def test_an_empty_project_takes_one_apply(plan: Plan) -> None:
    """No count and no for_each waits for what is only known after an apply: that is an error of the plan."""
    assert len(plan.of("google_cloudfunctions2_function")) == len(list((ROOT / "functions").glob("[a-z]*.py")))


def test_every_variable_may_be_said(planned: Callable[..., Plan]) -> None:
    plan = planned(
        nat=False,
        keep_data=False,
        budget=100,
        billing_account="012345-6789AB-CDEF01",
        clients=["group:ml@example.com", "user:a@example.com"],
        limits={"vcpus": 450, "nvidia-tesla-t4": 8},
        worker_regions={"europe-west4": "10.1.0.0/20", "us-east1": "10.2.0.0/20"},
    )
    (budget,) = plan.of("google_billing_budget").values()
    assert budget["amount"][0]["specified_amount"][0]["units"] == "100"
    _, function = plan.of("google_cloudfunctions2_function").popitem()
    environment = function["service_config"][0]["environment_variables"]
    assert environment["TRAINMASTER_LIMITS"] == "nvidia-tesla-t4=8,vcpus=450"
    members = {each.get("member") for each in plan.of("google_storage_bucket_iam_member").values()}
    assert {"group:ml@example.com", "user:a@example.com"} <= members
    regions = {each["region"] for each in plan.of("google_compute_subnetwork").values()}
    assert regions == {"europe-west4", "us-east1"}
    assert not plan.of("google_compute_router_nat")
    assert plan.of("google_storage_bucket")["google_storage_bucket.this"]["force_destroy"]
    (database,) = plan.of("google_firestore_database").values()
    assert database["delete_protection_state"] == "DELETE_PROTECTION_DISABLED"


def test_wrong_values_are_refused_with_their_names(terraform: Terraform, archives: dict[str, Path]) -> None:
    wrong = {"project": "123456789012", "region": "us-central1", "notify": "nobody"}
    given = [f"-var={name}={value}" for name, value in wrong.items()]
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", *given)
    assert done.returncode == 1
    assert set(re.findall(r'variable "(\w+)"', done.stderr)) == {"project", "notify"}


def test_a_budget_without_its_account_is_refused_before_anything_is_made(
    terraform: Terraform, archives: dict[str, Path]
) -> None:
    said = {**FILLED, "stage": str(archives["api"].parent), "budget": "100"}
    given = [f"-var={name}={value}" for name, value in said.items()]
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", *given)
    assert done.returncode == 1
    assert "billing_account" in done.stderr


def test_data_is_protected_unless_somebody_says_otherwise(plan: Plan) -> None:
    (database,) = plan.of("google_firestore_database").values()
    assert database["delete_protection_state"] == "DELETE_PROTECTION_ENABLED"
    assert database["type"] == "FIRESTORE_NATIVE"
    assert not plan.of("google_storage_bucket")["google_storage_bucket.this"]["force_destroy"]


def test_nothing_is_paid_for_while_nothing_happens(plan: Plan) -> None:
    for address, function in plan.of("google_cloudfunctions2_function").items():
        assert function["service_config"][0]["min_instance_count"] == 0, address
    kinds = {each.type for each in plan.resources}
    assert not {kind for kind in kinds if re.search(r"_instance$|_node$|_disk$|_address$|_connector$|_cluster$", kind)}


def test_every_event_topic_has_one_push_subscription_that_gives_nothing_up(plan: Plan) -> None:
    functions = {each["name"]: each for each in plan.of("google_cloudfunctions2_function").values()}
    pushed = {}
    for address, each in plan.of(SUBSCRIPTION).items():
        if each["name"] == topics.DEAD_LETTER:
            continue
        pushed[each["topic"] if "topic" in each else each["name"]] = each["name"]
        name = "trainmaster-maintenance" if each["name"] == topics.SYSTEM_EVENTS else each["name"]
        timeout_s = functions[name]["service_config"][0]["timeout_seconds"]
        assert timeout_s <= each["ack_deadline_seconds"] <= ACK_DEADLINE_MAX_S, address
        assert timeout_s <= EVENT_TIMEOUT_MAX_S, address
        assert each["expiration_policy"] == [{"ttl": ""}], address
        assert each["retry_policy"] == [{"minimum_backoff": "1s", "maximum_backoff": "60s"}], address
        assert each["dead_letter_policy"][0]["max_delivery_attempts"] == 100, address
        assert each["push_config"][0]["oidc_token"], address
    event_topics = {each["name"] for each in plan.of("google_pubsub_topic").values()} - {topics.DEAD_LETTER}
    assert set(pushed.values()) == event_topics


def test_functions_that_read_a_topic_are_called_from_inside_only(plan: Plan) -> None:
    ingress = {
        each["name"]: each["service_config"][0]["ingress_settings"]
        for each in plan.of("google_cloudfunctions2_function").values()
    }
    assert ingress.pop("trainmaster-api") == "ALLOW_ALL"
    assert set(ingress.values()) == {"ALLOW_INTERNAL_ONLY"}


def test_whatever_runs_in_the_network_is_reached_by_all_that_does_and_by_nobody_else(
    planned: Callable[..., Plan],
) -> None:
    """TPU hosts are in a project of Google's, and a job may bring an account: no rule by accounts is sure of either."""
    ranges = {"us-central1": "10.128.0.0/20", "europe-west4": "10.132.0.0/20"}
    (rule,) = planned(**FILLED, worker_regions=ranges).of("google_compute_firewall").values()
    assert sorted(rule["source_ranges"]) == sorted(ranges.values())
    narrowed = ("source_tags", "source_service_accounts", "target_tags", "target_service_accounts")
    assert not [name for name in narrowed if rule.get(name)]
    assert {allow["protocol"] for allow in rule["allow"]} == {"tcp", "udp", "icmp"}
    assert not [allow for allow in rule["allow"] if allow.get("ports")]


def test_the_sweep_has_one_instance_and_one_call_at_a_time(plan: Plan) -> None:
    (sweep,) = [
        each["service_config"][0]
        for each in plan.of("google_cloudfunctions2_function").values()
        if each["name"] == "trainmaster-sweep"
    ]
    assert (sweep["max_instance_count"], sweep["max_instance_request_concurrency"]) == (1, 1)


def test_the_log_sink_sends_what_the_code_understands(plan: Plan) -> None:
    (sink,) = plan.of("google_logging_project_sink").values()
    interfaces = (ROOT / "docs" / "interfaces.md").read_text(encoding="utf-8")
    assert f"`{sink['filter']}`" in interfaces
    assert "/instances/tm-" in sink["filter"]
    assert system_events.__doc__
    assert 'logName:"cloudaudit.googleapis.com%2Fsystem_event"' in sink["filter"]


def test_a_function_has_a_thread_for_each_request_that_it_is_given_at_a_time(plan: Plan) -> None:
    """Source: functions-framework, which has four for each CPU where THREADS says nothing."""
    for function in plan.of("google_cloudfunctions2_function").values():
        (service,) = function["service_config"]
        threads = int(service["environment_variables"]["THREADS"])
        assert service["max_instance_request_concurrency"] <= threads
