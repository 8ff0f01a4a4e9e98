"""`terraform validate` and `terraform plan` on infra/; the plan agrees with the code and the
documentation.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on, `reduced_plan`
nothing that can be left out (`conftest.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Final

from infra import stage
from tests.infra.conftest import (
    BOOT_IMAGE,
    FINANCE,
    GCSFUSE,
    LANDING_KEY,
    LANDING_NETWORK,
    LANDING_SUBNETWORK,
    REQUIRED,
    RESEARCH,
    WORKER_REGIONS,
    Plan,
    Terraform,
)
from trainmaster.core.intake import system_events
from trainmaster.messaging import topics
from trainmaster.packaging.agent_archive import agent_object
from trainmaster.packaging.algorithms_archive import WHEEL, algorithms_object
from trainmaster.settings import Settings
from trainmaster_emulators.checkout import ROOT

SUBSCRIPTION: Final = "google_pubsub_subscription"
BUCKET: Final = "google_storage_bucket"
EVENT_TIMEOUT_MAX_S: Final = 540
"""Source: "Cloud Run functions quotas": event-driven functions."""
ACK_DEADLINE_MAX_S: Final = 600
"""Source: Subscription.ack_deadline_seconds, which is also the timeout of a push."""


def test_configuration_is_valid(terraform: Terraform) -> None:
    """Terraform checks references, types, functions, and arguments of modules and resources."""
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
"""Wrong configuration → terraform's error message."""


WALL: Final = {
    "service_account": "a@p.iam.gserviceaccount.com",
    "ranges": {"us-central1": "10.140.0.0/20"},
}


def test_wrong_configuration_is_detected(terraform: Terraform, tmp_path: Path) -> None:
    """Without this, the test that the configuration is valid could pass for any configuration."""
    done = terraform(
        "init", "-input=false", "-backend=false", f"-from-module={ROOT / 'infra'}", within=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "wrong.tf").write_text("\n".join(WRONG))
    done = terraform("validate", "-no-color", within=tmp_path)
    output = " ".join(done.stderr.split())
    assert {message for message in WRONG.values() if message not in output} == set()


def test_plan_of_an_empty_project_has_every_function(plan: Plan) -> None:
    """A count or for_each that depends on values known only after an apply would be an error of the
    plan.
    """
    modules = {path.stem for path in (ROOT / "functions").glob("[a-z]*.py")} - {"console"}
    assert len(plan.of("google_cloudfunctions2_function")) == len(modules)


def test_mirror_of_pypi_is_created_only_on_request(plan: Plan, full_plan: Plan) -> None:
    assert "google_artifact_registry_repository.packages[0]" not in plan.of(
        "google_artifact_registry_repository"
    )
    repository = full_plan.of("google_artifact_registry_repository")[
        "google_artifact_registry_repository.packages[0]"
    ]
    assert (repository["format"], repository["mode"]) == ("PYTHON", "REMOTE_REPOSITORY")
    readers = full_plan.of("google_artifact_registry_repository_iam_member")
    assert "google_artifact_registry_repository_iam_member.worker_packages[0]" in readers
    environment = full_plan.environments()["trainmaster-provision"]
    url = "https://us-central1-python.pkg.dev/my-project/trainmaster-pypi/simple/"
    assert environment["TRAINMASTER_PACKAGE_INDEX"] == url
    assert environment["TRAINMASTER_BOOT_IMAGES"] == f"debian-12={BOOT_IMAGE}"
    settings = Settings.model_validate(
        {"project": "my-project", "boot_images": environment["TRAINMASTER_BOOT_IMAGES"]}
    )
    assert settings.boot_images == {"debian-12": BOOT_IMAGE}


def test_plan_with_every_variable_set_uses_their_values(full_plan: Plan) -> None:
    plan = full_plan
    (budget,) = plan.of("google_billing_budget").values()
    assert budget["amount"][0]["specified_amount"][0]["units"] == "100"
    environment = plan.environments()["trainmaster-provision"]
    assert environment["TRAINMASTER_LIMITS"] == "nvidia-tesla-t4=8,team:vision=2,vcpus=450"
    entries = "network=projects/1/global/networks/ml*,secret=projects/p/secrets/key"
    assert environment["TRAINMASTER_ALLOWED_RESOURCES"] == entries
    members = {
        grant.get("member") for grant in plan.of("google_storage_bucket_iam_member").values()
    }
    assert {"group:ml@example.com", "user:a@example.com"} <= members
    regions = {subnetwork["region"] for subnetwork in plan.of("google_compute_subnetwork").values()}
    assert regions == {"europe-west4", "us-east1"}
    assert not plan.of("google_compute_router_nat")
    assert plan.of("google_storage_bucket")["google_storage_bucket.this"]["force_destroy"]
    (database,) = plan.of("google_firestore_database").values()
    assert database["delete_protection_state"] == "DELETE_PROTECTION_DISABLED"


def test_labels_are_those_of_all_resources(full_plan: Plan) -> None:
    """The provider gives them to each resource that can have labels."""
    providers = full_plan.document["configuration"]["provider_config"]
    (labels,) = (
        provider["expressions"]["default_labels"]["references"]
        for provider in providers.values()
        if provider["name"] == "google"
    )
    assert labels == ["var.labels"]


def test_wrong_variables_are_rejected_by_name(
    terraform: Terraform, archives: dict[str, Path]
) -> None:
    wrong = {
        "project": "123456789012",
        "installation": "my-team",
        "region": "us-central1",
        "notify": "not-an-address",
        "kms_key": "a-key",
        "network": '{network="shared",subnetwork="training"}',
        "walled_accounts": json.dumps({"one": WALL, "two": WALL}),
        "ssh_users": '["ml@example.com"]',
        "api_access": "public",
        "limits": '{"team:Vision"=1}',
        "labels": '{"Cost"="ml"}',
    }
    given = [f"-var={name}={value}" for name, value in wrong.items()]
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", *given)
    assert done.returncode == 1
    assert set(re.findall(r'variable "(\w+)"', done.stderr)) == {*wrong} - {"region"}
    errors = " ".join(done.stderr.replace("│", " ").split())
    assert "ssh_users must be IAM members" in errors
    assert re.search("api_access.*no-invoker-check", errors)


def test_forgotten_make_stage_is_named(terraform: Terraform, tmp_path: Path) -> None:
    given = [f"-var={name}={value}" for name, value in {**REQUIRED, "stage": tmp_path}.items()]
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", *given)
    assert done.returncode == 1
    errors = " ".join(done.stderr.replace("│", " ").split())
    assert f"There is no {tmp_path}/api.zip: run `make stage` in the folder above infra/" in errors


def test_data_is_protected_by_default(plan: Plan) -> None:
    (database,) = plan.of("google_firestore_database").values()
    assert database["delete_protection_state"] == "DELETE_PROTECTION_ENABLED"
    assert database["type"] == "FIRESTORE_NATIVE"
    assert not plan.of("google_storage_bucket")["google_storage_bucket.this"]["force_destroy"]


def test_agent_is_stored_under_its_hash_and_survives_upgrades(
    plan: Plan, archives: dict[str, Path]
) -> None:
    agent = plan.of("google_storage_bucket_object")["google_storage_bucket_object.agent"]
    content = (archives["provision"].parent / stage.AGENT).read_bytes()
    assert agent["name"] == agent_object(content)
    assert (agent["bucket"], agent["deletion_policy"]) == (
        "my-project-trainmaster-stage",
        "ABANDON",
    )
    functions = plan.of("google_cloudfunctions2_function")
    (provision,) = [
        function for function in functions.values() if function["name"] == "trainmaster-provision"
    ]
    variables = provision["service_config"][0]["environment_variables"]
    assert (
        variables["TRAINMASTER_AGENT"]
        == f"gs://my-project-trainmaster-stage/{agent_object(content)}"
    )


def test_algorithms_are_stored_under_their_hash_and_named_to_the_functions(
    plan: Plan, archives: dict[str, Path]
) -> None:
    wheel = plan.of("google_storage_bucket_object")["google_storage_bucket_object.algorithms"]
    content = (archives["provision"].parent / WHEEL).read_bytes()
    assert wheel["name"] == algorithms_object(content)
    assert (wheel["bucket"], wheel["deletion_policy"]) == (
        "my-project-trainmaster-stage",
        "ABANDON",
    )
    for function in plan.of("google_cloudfunctions2_function").values():
        variables = function["service_config"][0]["environment_variables"]
        assert (
            variables["TRAINMASTER_ALGORITHMS"]
            == f"gs://my-project-trainmaster-stage/{algorithms_object(content)}"
        )


def test_gcsfuse_is_stored_under_its_hash(full_plan: Plan) -> None:
    sha256 = hashlib.sha256(GCSFUSE).hexdigest()
    address = f"gs://my-project-trainmaster-stage/tools/{sha256}/gcsfuse"
    assert full_plan.environments()["trainmaster-provision"]["TRAINMASTER_GCSFUSE"] == address


def test_gcsfuse_with_another_hash_and_budget_without_billing_account_are_rejected_in_the_plan(
    terraform: Terraform, archives: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "gcsfuse"
    file.write_bytes(GCSFUSE)
    gcsfuse = json.dumps({"file": str(file), "sha256": "0" * 64})
    variables = {
        **REQUIRED,
        "stage": str(archives["api"].parent),
        "budget": "100",
        "gcsfuse": gcsfuse,
    }
    given = [f"-var={name}={value}" for name, value in variables.items()]
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", *given)
    assert done.returncode == 1
    assert "does not have the SHA-256 hash" in done.stderr
    assert "billing_account" in done.stderr


def test_nothing_costs_money_while_no_job_runs(plan: Plan) -> None:
    for address, function in plan.of("google_cloudfunctions2_function").items():
        assert function["service_config"][0]["min_instance_count"] == 0, address
    kinds = {resource.type for resource in plan.resources}
    assert not {
        kind
        for kind in kinds
        if re.search(r"_instance$|_node$|_disk$|_address$|_connector$|_cluster$", kind)
    }


def test_every_event_topic_has_a_push_subscription_with_retries_and_dead_letter(plan: Plan) -> None:
    functions = {
        function["name"]: function
        for function in plan.of("google_cloudfunctions2_function").values()
    }
    pushed_topics = []
    for address, subscription in plan.of(SUBSCRIPTION).items():
        topic = subscription["name"]
        if topic == topics.DEAD_LETTER:
            continue
        pushed_topics.append(subscription["topic"])
        function = functions["trainmaster-maintenance" if topic == topics.SYSTEM_EVENTS else topic]
        timeout_s = function["service_config"][0]["timeout_seconds"]
        assert timeout_s <= subscription["ack_deadline_seconds"] <= ACK_DEADLINE_MAX_S, address
        assert timeout_s <= EVENT_TIMEOUT_MAX_S, address
        assert subscription["expiration_policy"] == [{"ttl": ""}], address
        assert subscription["retry_policy"] == [
            {"minimum_backoff": "1s", "maximum_backoff": "60s"}
        ], address
        assert subscription["dead_letter_policy"][0]["max_delivery_attempts"] == 100, address
        assert subscription["push_config"][0]["oidc_token"], address
    for_users = {topics.DEAD_LETTER, topics.JOB_STATE}
    event_topics = {topic["name"] for topic in plan.of("google_pubsub_topic").values()} - for_users
    assert sorted(pushed_topics) == sorted(event_topics)


def test_functions_that_read_a_topic_allow_internal_traffic_only(plan: Plan) -> None:
    ingress = {
        function["name"]: function["service_config"][0]["ingress_settings"]
        for function in plan.of("google_cloudfunctions2_function").values()
    }
    assert ingress.pop("trainmaster-api") == "ALLOW_ALL"
    assert set(ingress.values()) == {"ALLOW_INTERNAL_ONLY"}


def test_firewall_admits_all_traffic_between_workers_and_no_other(
    plan: Plan, full_plan: Plan
) -> None:
    """The rule selects by address: TPU hosts are in a project of Google, and a job may have its own
    account.
    """
    (only,) = plan.of("google_compute_firewall").values()
    (rule,) = [
        rule
        for rule in full_plan.of("google_compute_firewall").values()
        if rule["name"] == only["name"]
    ]
    assert sorted(rule["source_ranges"]) == sorted(WORKER_REGIONS.values())
    restrictions = (
        "source_tags",
        "source_service_accounts",
        "target_tags",
        "target_service_accounts",
    )
    assert not [name for name in restrictions if rule.get(name)]
    assert {allow["protocol"] for allow in rule["allow"]} == {"tcp", "udp", "icmp"}
    assert not [allow for allow in rule["allow"] if allow.get("ports")]


def test_walled_account_has_a_network_that_admits_only_its_own_vms(full_plan: Plan) -> None:
    plan, finance, research = full_plan, FINANCE["service_account"], RESEARCH["service_account"]
    rules = {rule["network"]: rule for rule in plan.of("google_compute_firewall").values()}
    assert set(rules) == {"trainmaster", "trainmaster-finance", "trainmaster-research"}
    rule = rules["trainmaster-finance"]
    assert rule["source_service_accounts"] == rule["target_service_accounts"] == [finance]
    assert not rule.get("source_ranges")
    assert rules["trainmaster-research"]["source_ranges"] == ["10.142.0.0/20"]
    assert not set(rules["trainmaster"]["source_ranges"]) & {
        "10.140.0.0/20",
        "10.141.0.0/20",
        "10.142.0.0/20",
    }
    names = {subnetwork["name"] for subnetwork in plan.of("google_compute_subnetwork").values()}
    assert {"trainmaster-finance-us-east1", "trainmaster-finance-europe-west4"} <= names
    assert not [kind for kind in plan.resources if "peering" in kind.type]
    networks = plan.environments()["trainmaster-provision"]["TRAINMASTER_ACCOUNT_NETWORKS"]
    assert networks == f"{finance}=trainmaster-finance,{research}=trainmaster-research"


def test_landing_zone_has_its_own_network_key_and_recovery_and_no_public_address(
    reduced_plan: Plan,
) -> None:
    plan = reduced_plan
    kinds = {resource.type for resource in plan.resources}
    assert not {
        kind
        for kind in kinds
        if re.match(r"google_compute_(network|subnetwork|firewall|router|address)", kind)
    }
    for function in plan.of("google_cloudfunctions2_function").values():
        environment = function["service_config"][0]["environment_variables"]
        values = Settings.model_validate(
            {"project": "my-project", "network": environment["TRAINMASTER_NETWORK"]}
        )
        assert values.network == LANDING_NETWORK
        assert environment["TRAINMASTER_SUBNETWORK"] == LANDING_SUBNETWORK
        assert set(environment["TRAINMASTER_REGIONS"].split(",")) == {"us-central1", "europe-west4"}
    (database,) = plan.of("google_firestore_database").values()
    assert database["point_in_time_recovery_enablement"] == "POINT_IN_TIME_RECOVERY_ENABLED"
    assert database["cmek_config"][0]["kms_key_name"] == LANDING_KEY
    assert all(
        bucket["encryption"][0]["default_kms_key_name"] == LANDING_KEY
        for bucket in plan.of(BUCKET).values()
    )
    assert all(
        topic["kms_key_name"] == LANDING_KEY for topic in plan.of("google_pubsub_topic").values()
    )


def test_installation_without_tpus_gives_no_account_a_role_on_their_nodes(
    reduced_plan: Plan,
) -> None:
    """The role of the workers permits to delete every TPU node of the project."""
    grants = reduced_plan.of("google_project_iam_member")
    assert not [
        address
        for address, grant in grants.items()
        if "tpu" in address or "tpu" in (grant.get("role") or "")
    ]
    assert reduced_plan.environments()["trainmaster-provision"]["TRAINMASTER_TPU"] == "false"


def test_installation_without_metrics_gives_no_vm_the_permission_to_write_them(
    full_plan: Plan, reduced_plan: Plan
) -> None:
    """Every point costs money, and programs could write some with the VM's token."""
    writers = [
        [
            address
            for address, grant in grants.items()
            if grant.get("role") == "roles/monitoring.metricWriter"
        ]
        for grants in (plan.of("google_project_iam_member") for plan in (reduced_plan, full_plan))
    ]
    assert writers == [[], ["google_project_iam_member.worker_metrics[0]"]]


def test_sweep_has_one_instance_and_one_call_at_a_time(plan: Plan) -> None:
    (sweep,) = [
        function["service_config"][0]
        for function in plan.of("google_cloudfunctions2_function").values()
        if function["name"] == "trainmaster-sweep"
    ]
    assert (sweep["max_instance_count"], sweep["max_instance_request_concurrency"]) == (1, 1)


def test_log_sink_has_the_filter_of_the_interface_description(plan: Plan) -> None:
    (sink,) = plan.of("google_logging_project_sink").values()
    interfaces = (ROOT / "docs" / "interfaces.md").read_text(encoding="utf-8")
    assert f"`{sink['filter'].replace('my-project', 'P')}`" in interfaces
    assert "/instances/tm-" in sink["filter"]
    assert system_events.__doc__
    assert (
        'logName="projects/my-project/logs/cloudaudit.googleapis.com%2Fsystem_event"'
        in sink["filter"]
    )


def test_function_has_a_thread_for_each_concurrent_request(plan: Plan) -> None:
    """Source: functions-framework, which has four threads per CPU if THREADS is not set."""
    for function in plan.of("google_cloudfunctions2_function").values():
        (service,) = function["service_config"]
        threads = int(service["environment_variables"]["THREADS"])
        assert service["max_instance_request_concurrency"] <= threads
