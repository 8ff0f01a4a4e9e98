"""Several installations in one project: no two of them own a resource of one name, or a grant that
is the same.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on (`conftest.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.infra.conftest import SSH_USERS, Plan
from tests.infra.test_conditions import conditions, is_met
from tests.support.jobs import CHIEF
from trainmaster.core.model.installation import INSTALLATION_VARIABLE, name_in_installation
from trainmaster.core.model.vm_names import vm_name
from trainmaster.settings import Settings
from trainmaster.wiring.installation import worker_account_of

LONGEST: Final = "a1234567890"
GOLDEN: Final = Path(__file__).parent / "names_of_an_installation.txt"
NAMED_BY: Final = {
    "google_artifact_registry_repository": "repository_id",
    "google_billing_budget": "display_name",
    "google_monitoring_alert_policy": "display_name",
    "google_monitoring_custom_service": "service_id",
    "google_monitoring_notification_channel": "display_name",
    "google_project_iam_custom_role": "role_id",
    "google_service_account": "account_id",
    **dict.fromkeys(
        (
            "google_cloud_scheduler_job",
            "google_cloudfunctions2_function",
            "google_compute_firewall",
            "google_compute_network",
            "google_compute_router",
            "google_compute_router_nat",
            "google_compute_subnetwork",
            "google_firestore_database",
            "google_logging_project_exclusion",
            "google_logging_project_sink",
            "google_pubsub_schema",
            "google_pubsub_subscription",
            "google_pubsub_topic",
            "google_storage_bucket",
        ),
        "name",
    ),
}
"""Type of a resource → the attribute with which Google, or a person who looks for it, finds it in
the project.
"""
PARTS: Final = {
    "google_firestore_field",
    "google_firestore_index",
    "google_monitoring_dashboard",  # named in its JSON
    "google_monitoring_slo",
    "google_storage_bucket_object",
    "google_storage_notification",
}
"""Resources within those above."""
SHARED: Final = {"google_project_service", "terraform_data", "time_sleep"}
"""An API that both installations enable is one; it stays enabled when one of them is removed."""
LENGTH_MAX: Final = {"google_service_account": 30, "google_cloudfunctions2_function": 49}
"""Source: IAM; Cloud Run, whose services have the names of the functions. All other names: 63."""
PROJECT_LENGTH_MAX: Final = 30


@pytest.fixture(scope="module")
def named(planned: Callable[..., Plan], full_variables: dict[str, object]) -> Plan:
    """Return the plan with everything, for the longest name of an installation."""
    return planned(**{**full_variables, "nat": True, "installation": LONGEST})


def names(*plans: Plan) -> list[str]:
    """Return `TYPE NAME` of all that the installation owns."""
    resources = [
        resource for plan in plans for resource in plan.resources if resource.type in NAMED_BY
    ]
    return sorted(
        {f"{resource.type} {resource.values[NAMED_BY[resource.type]]}" for resource in resources}
    )


def grants(plan: Plan) -> Iterator[tuple[Any, ...]]:
    """Yield the grants on the project, or on resources of others, to members that are not the
    installation's own.
    """
    for resource in plan.resources:
        values, kind = resource.values, resource.type
        if (
            kind.endswith("_iam_member")
            and "member" in values
            and "role" in values  # those of our own roles differ: the roles have different ids
            and kind.startswith("google_project")
        ):
            yield values["role"], values["member"], json.dumps(values.get("condition"))


def test_two_installations_have_no_name_in_common(plan: Plan, full_plan: Plan, named: Plan) -> None:
    kinds = {
        resource.type for resource in named.resources if not resource.type.endswith("_iam_member")
    }
    assert kinds == {*NAMED_BY} | PARTS | SHARED, "what identifies the other types?"
    assert not {*names(plan, full_plan)} & {*names(named)}
    dashboards = [plan.of("google_monitoring_dashboard").values() for plan in (full_plan, named)]
    titles = [
        json.loads(board["dashboard_json"])["displayName"]
        for boards in dashboards
        for board in boards
    ]
    assert titles == ["Trainmaster", f"Trainmaster {LONGEST}"]


def test_removal_of_one_installation_takes_no_grant_of_the_other(
    full_plan: Plan, named: Plan
) -> None:
    """A user may be in `ssh_users` of both.

    Google keeps one grant of those that are equal, with their condition.
    """
    assert len([*grants(named)]) == len([*grants(full_plan)]) > 0
    assert not {*grants(full_plan)} & {*grants(named)}


def test_installation_without_a_name_keeps_the_recorded_names(plan: Plan, full_plan: Plan) -> None:
    """A new line is a new resource. A line that changes is a resource that an upgrade replaces."""
    assert names(plan, full_plan) == GOLDEN.read_text("utf-8").splitlines()


def test_names_with_the_longest_name_of_an_installation_fit(named: Plan) -> None:
    for resource in named.resources:
        name = resource.values.get(NAMED_BY.get(resource.type, ""), "")
        if resource.type not in ("google_billing_budget", "google_monitoring_alert_policy"):
            spare = (
                PROJECT_LENGTH_MAX - len("my-project")
                if resource.type == "google_storage_bucket"
                else 0
            )
            assert len(name) + spare <= LENGTH_MAX.get(resource.type, 63), name


def test_functions_and_commands_use_the_names_of_their_installation(
    named: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INSTALLATION_VARIABLE, LONGEST)
    for name, environment in named.environments().items():
        assert name.startswith(name_in_installation("trainmaster-"))
        if name not in {
            name_in_installation("trainmaster-job-webhook"),
            name_in_installation("trainmaster-job-chat"),
        }:
            assert environment[INSTALLATION_VARIABLE] == LONGEST
            assert (
                environment["TRAINMASTER_BUCKET"]
                == f"my-project-{name_in_installation('trainmaster')}"
            )
    Settings.model_validate({"project": "my-project", "installation": LONGEST})
    (database,) = named.of("google_firestore_database").values()
    assert database["name"] == name_in_installation("(default)")
    accounts = {account["account_id"] for account in named.of("google_service_account").values()}
    assert worker_account_of("my-project").partition("@")[0] in accounts


def test_provision_and_ssh_users_of_one_installation_have_no_access_to_vms_and_state_of_another(
    full_plan: Plan, named: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    vms = {}
    for name, plan in (("", full_plan), (LONGEST, named)):
        monkeypatch.setenv(INSTALLATION_VARIABLE, name)
        vms[plan] = f"projects/p/zones/us-central1-a/instances/{vm_name('digits_1', CHIEF)}"
    for plan in vms:
        sinks = [sink["filter"] for sink in plan.of("google_logging_project_sink").values()]
        for other, vm in vms.items():
            for address in ("provisioner", f'ssh_login["{SSH_USERS}"]'):
                (condition,) = conditions(
                    plan.of("google_project_iam_member")[f"google_project_iam_member.{address}"]
                )
                assert is_met(condition, "compute.googleapis.com/Instance", vm) is (plan is other)
            (part,) = re.findall(r'resourceName:"([^"]+)"', sinks[0])
            assert (part in vm) is (plan is other)
    for database, plan in (("(default)", full_plan), (f"tm{LONGEST}", named)):
        state = [
            conditions(grant)
            for grant in plan.of("google_project_iam_member").values()
            if grant.get("role", "").startswith("roles/datastore.")
        ]
        own_only = f"resource.name == 'projects/my-project/databases/{database}'"
        assert state == [[own_only]] * len(state)
        assert state
