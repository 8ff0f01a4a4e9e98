"""The first apply in an empty project of an organisation: it waits where Google Cloud needs time,
and breaks no policy that Google sets for new organisations.

Sources: "Access change propagation" (IAM), "Eventual consistency" of service accounts (IAM), and
Google's Terraform example for a function with its own build account, which sleeps 60 s after the
grants of that account.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on, `reduced_plan`
nothing that can be left out (`conftest.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.infra import iam_table
from tests.infra.conftest import INFRA, Plan, Terraform

APIS: Final = "time_sleep.apis"
IDENTITIES: Final = "time_sleep.identities"
GRANTS: Final = "time_sleep.grants"
SECONDS_MIN: Final = {APIS: 60, IDENTITIES: 30, GRANTS: 120}
"""Wait → the shortest time that Google's documentation states for it."""

Graph = Mapping[str, set[str]]


@pytest.fixture(scope="module")
def graph(terraform: Terraform) -> Graph:
    """Return the dependencies that terraform itself finds: address → addresses, direct and
    indirect.
    """
    done = terraform("graph")
    assert done.returncode == 0, done.stderr
    direct: dict[str, set[str]] = {}
    for node in re.findall(r'(?m)^\s*"([^"]+)" \[label', done.stdout):
        direct[node] = set()
    for node, dependency in re.findall(r'(?m)^\s*"([^"]+)" -> "([^"]+)"', done.stdout):
        direct[node].add(dependency)
    return {node: _reachable(node, direct) for node in direct}


def _reachable(start: str, direct: Graph) -> set[str]:
    found: set[str] = set()
    frontier = [start]
    while frontier:
        new = direct[frontier.pop()] - found
        found |= new
        frontier += new
    return found


def test_waits_are_as_long_as_google_cloud_needs(plan: Plan) -> None:
    seconds = {
        address: int(wait["create_duration"].removesuffix("s"))
        for address, wait in plan.of("time_sleep").items()
    }
    assert {
        address: seconds[address] >= least for address, least in SECONDS_MIN.items()
    } == dict.fromkeys(SECONDS_MIN, True)


def test_everything_waits_for_the_enabled_apis(graph: Graph) -> None:
    apis = "google_project_service.this"
    assert graph[APIS] == {apis}
    assert {node for node, before in graph.items() if APIS not in before} == {apis, APIS}


def test_grants_to_new_service_accounts_wait_until_iam_finds_the_accounts(graph: Graph) -> None:
    members: dict[str, str] = {}
    for path in INFRA.rglob("*.tf"):
        prefix = (
            "" if path.parent == INFRA else f"module.{path.parent.name.removeprefix('event_')}."
        )
        for entry in iam_table.load(path).get("resource", []):
            for kind, bodies in entry.items():
                for name, body in bodies.items():
                    if kind.strip('"').endswith("_iam_member"):
                        members[prefix + kind.strip('"') + "." + name.strip('"')] = str(
                            body["member"]
                        )
    assert len(members) > 10
    ours = {
        address
        for address, member in members.items()
        if re.search(r"google_service_account|var\.account|\.pusher", member)
    }
    sink = {address for address, member in members.items() if "writer_identity" in member}
    assert len(ours) > 8
    assert sink
    assert {address for address in ours | sink if IDENTITIES not in graph[address]} == set()


def test_functions_and_notification_wait_until_their_grants_are_effective(graph: Graph) -> None:
    functions = "module.function.google_cloudfunctions2_function.this"
    builder = {
        "google_project_iam_member.builder_logs",
        "google_project_iam_member.builder_sources",
        "google_storage_bucket_iam_member.builder_archives",
        "google_artifact_registry_repository_iam_member.builder_images",
    }
    assert {*builder, GRANTS} <= graph[functions]
    assert {*builder, "google_pubsub_topic_iam_member.upload_by_storage"} <= graph[GRANTS]
    assert {"google_pubsub_topic_iam_member.upload_by_storage", GRANTS} <= graph[
        "google_storage_notification.job_files"
    ]


def test_functions_wait_for_each_index_that_they_query(graph: Graph) -> None:
    functions = "module.function.google_cloudfunctions2_function.this"
    without_queries = {"google_firestore_field.unindexed", "google_firestore_field.expiry"}
    indexes = {
        node for node in graph if re.match(r"google_firestore_(index|field)\.", node)
    } - without_queries
    assert len(indexes) >= 7
    assert indexes <= graph[functions]


def public_members(plan: Plan) -> list[dict[str, Any]]:
    grants = [resource.values for resource in plan.resources if "_iam_" in resource.type]
    return [
        grant for grant in grants if grant.get("member") in ("allUsers", "allAuthenticatedUsers")
    ]


def test_no_grant_is_public_by_default(plan: Plan) -> None:
    """New organisations enforce iam.allowedPolicyMemberDomains, which refuses public members."""
    assert public_members(plan) == []
    (check,) = plan.of("terraform_data").values()
    assert check["input"] == "--no-invoker-iam-check"


@pytest.mark.parametrize(
    ("plan_with_access", "flag", "public"),
    [("full_plan", "--invoker-iam-check", 1), ("reduced_plan", "--invoker-iam-check", 0)],
    ids=["allUsers", "none"],
)
def test_api_access_selects_who_passes_cloud_runs_check(
    request: pytest.FixtureRequest, plan_with_access: str, flag: str, public: int
) -> None:
    plan = request.getfixturevalue(plan_with_access)
    assert plan.of("terraform_data")["terraform_data.invoker_check"]["input"] == flag
    assert [grant["role"] for grant in public_members(plan)] == ["roles/run.invoker"] * public


def test_upload_may_list_objects_so_that_a_missing_one_is_not_found(plan: Plan) -> None:
    """Cloud Storage answers 403 instead of 404 for a missing object to a caller without
    storage.objects.list.

    That permission is checked on the bucket, so the condition on object names must not cover it.
    """
    (lister,) = [
        role
        for role in plan.of("google_project_iam_custom_role").values()
        if role["role_id"] == "trainmasterObjectLister"
    ]
    assert lister["permissions"] == ["storage.objects.list"]
    (grant,) = [grant for grant in iam_table.grants() if "ObjectLister" in grant.role]
    assert (grant.member, grant.resource, grant.condition) == ("function upload", "bucket", "")
