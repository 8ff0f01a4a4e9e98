"""The console for a team in infra/: absent by default, behind Identity-Aware Proxy, with few
permissions.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on, `reduced_plan`
nothing that can be left out (`conftest.py`).
"""

from __future__ import annotations

import re
from typing import Any

from tests.infra import iam_table
from tests.infra.conftest import OPERATORS, VIEWERS, Plan
from trainmaster.cost.price_list import OBJECT_NAME


def services(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the configuration of the two consoles by name."""
    functions = plan.of("google_cloudfunctions2_function").values()
    return {
        function["name"]: function["service_config"][0]
        for function in functions
        if "-console" in function["name"]
    }


def test_console_is_installed_only_on_request(plan: Plan, reduced_plan: Plan) -> None:
    """Although `reduced_plan` names `console_viewers`."""
    for default in (plan, reduced_plan):
        assert not services(default)
        assert not [resource.address for resource in default.resources if "iap" in resource.type]
        assert not [
            address for address in default.of("google_service_account") if "console" in address
        ]


def test_both_consoles_run_one_archive_and_only_one_acts(full_plan: Plan) -> None:
    configurations = services(full_plan)
    acts = {
        name: service["environment_variables"]["TRAINMASTER_CONSOLE_ACTS"]
        for name, service in configurations.items()
    }
    assert acts == {"trainmaster-console": "false", "trainmaster-console-operator": "true"}
    functions = full_plan.of("google_cloudfunctions2_function").values()
    builds = [
        function["build_config"][0] for function in functions if function["name"] in configurations
    ]
    assert {build["entry_point"] for build in builds} == {"console"}
    for service in configurations.values():
        assert (service["min_instance_count"], service["max_instance_count"]) == (0, 2)


def test_each_console_has_identity_aware_proxy_switched_on(full_plan: Plan) -> None:
    switches = [address for address in full_plan.of("terraform_data") if ".iap[" in address]
    assert switches == ['terraform_data.iap["console"]', 'terraform_data.iap["console_operator"]']
    assert (
        full_plan.of("google_project_service")["google_project_service.iap[0]"]["service"]
        == "iap.googleapis.com"
    )


def test_only_the_named_members_may_open_each_console(full_plan: Plan) -> None:
    grants = full_plan.of("google_iap_web_cloud_run_service_iam_member")
    opened = {address.partition(".")[2].partition("[")[0]: set[str]() for address in grants}
    for address, grant in grants.items():
        assert grant["role"] == "roles/iap.httpsResourceAccessor"
        opened[address.partition(".")[2].partition("[")[0]].add(grant["member"])
    assert opened == {"viewers": {VIEWERS, OPERATORS}, "operators": {OPERATORS}}


def test_consoles_may_be_called_by_identity_aware_proxy_only(full_plan: Plan) -> None:
    callers = [
        grant for grant in iam_table.grants() if grant.resource.startswith("function console")
    ]
    assert {(grant.member, grant.role) for grant in callers} == {
        ("IAP's service agent", "roles/run.invoker")
    }


def test_read_only_console_has_no_role_that_writes() -> None:
    roles = {grant.role for grant in iam_table.grants() if grant.member == "console"}
    assert roles == {
        "roles/datastore.viewer",
        "roles/logging.viewer",
        "roles/monitoring.viewer",
        "roles/storage.objectViewer",
    }


def test_operators_console_may_change_state_and_publish_and_nothing_else() -> None:
    roles = {grant.role for grant in iam_table.grants() if grant.member == "console_operator"}
    assert roles == {
        "roles/datastore.user",
        "roles/logging.logWriter",
        "roles/logging.viewer",
        "roles/monitoring.viewer",
        "roles/pubsub.publisher",
        "roles/storage.objectViewer",
    }


def test_consoles_read_the_price_list_and_no_other_object(full_plan: Plan) -> None:
    members = full_plan.of("google_storage_bucket_iam_member")
    grants = {address: grant for address, grant in members.items() if "console" in address}
    assert len(grants) == 2
    folder = OBJECT_NAME.partition("/")[0]
    for grant in grants.values():
        (condition,) = grant["condition"]
        assert re.fullmatch(
            rf"resource\.name\.startsWith\('projects/_/buckets/[^/']+/objects/{folder}/'\)",
            condition["expression"],
        )


def test_programs_of_jobs_cannot_change_the_prices(full_plan: Plan) -> None:
    (writes,) = [
        grant
        for address, grant in full_plan.of("google_storage_bucket_iam_member").items()
        if address == "google_storage_bucket_iam_member.worker_writes"
    ]
    folder = OBJECT_NAME.partition("/")[0]
    assert re.search(
        rf"!resource\.name\.startsWith\('[^']*/objects/{folder}/'\)",
        writes["condition"][0]["expression"],
    )
