"""`trainmaster doctor` on policies of the organisation, which no emulator has."""

from __future__ import annotations

import re

import pytest

from tests.integration.cli.doctor.empty_project import PROJECT, REGION, EmptyProject
from trainmaster.cli.doctor.policy_checks import SERVICES
from trainmaster_emulators.checkout import ROOT

ALLOWED: dict[str, dict[str, object]] = {
    "run.managed.requireInvokerIam": {"enforce": False},
    "cloudfunctions.allowedIngressSettings": {
        "values": {"allowedValues": ["ALLOW_ALL", "ALLOW_INTERNAL_ONLY"]}
    },
    "run.allowedIngress": {"values": {"allowedValues": ["is:all", "is:internal"]}},
    "gcp.resourceLocations": {"values": {"allowedValues": ["in:us-locations"]}},
    "gcp.restrictServiceUsage": {"values": {"deniedValues": ["sqladmin.googleapis.com"]}},
    "gcp.restrictNonCmekServices": {"allowAll": True},
    "compute.trustedImageProjects": {
        "values": {
            "allowedValues": ["projects/debian-cloud", "projects/deeplearning-platform-release"]
        }
    },
    "compute.restrictNonConfidentialComputing": {
        "denyAll": True,
        "condition": {"expression": "resource.matchTag(…)"},
    },
    "iam.allowedPolicyMemberDomains": {"values": {"allowedValues": ["C0123456"]}},
}
"""Constraint → a rule under which Trainmaster works, such as those that Google sets for new
organisations.
"""


def test_policies_that_block_nothing_are_ok(project: EmptyProject) -> None:
    for constraint, rule in ALLOWED.items():
        project.set_policy(constraint, rule)
    assert "ok   organisation policies" in project.lines("ok", "--region", REGION)
    assert project.lines("FIX", "--region", REGION) == []


@pytest.mark.parametrize(
    ("constraint", "rule", "refused"),
    [
        (
            "run.managed.requireInvokerIam",
            {"enforce": True},
            "turning off Cloud Run's check of the function api",
        ),
        (
            "cloudfunctions.allowedIngressSettings",
            {"values": {"allowedValues": ["ALLOW_INTERNAL_ONLY"]}},
            "functions with the ingress ALLOW_ALL",
        ),
        ("run.allowedIngress", {"denyAll": True}, "services with the ingress all, internal"),
        (
            "gcp.resourceLocations",
            {"values": {"allowedValues": ["in:eu-locations"]}},
            "resources in us-central1",
        ),
        (
            "gcp.restrictServiceUsage",
            {"values": {"deniedValues": ["tpu.googleapis.com"]}},
            "the use of tpu.googleapis.com",
        ),
        (
            "gcp.restrictNonCmekServices",
            {"values": {"deniedValues": ["storage.googleapis.com"]}},
            "resources without a customer-managed key in storage.googleapis.com",
        ),
        (
            "compute.restrictNonConfidentialComputing",
            {"denyAll": True},
            "ordinary VMs of compute.googleapis.com",
        ),
        (
            "compute.trustedImageProjects",
            {"values": {"allowedValues": ["projects/debian-cloud"]}},
            "VMs with the images of projects/deeplearning-platform-release",
        ),
        ("compute.restrictCloudNATUsage", {"denyAll": True}, "Cloud NAT"),
        (
            "run.allowedVPCEgress",
            {"values": {"allowedValues": ["all-traffic"]}},
            "services with the VPC egress",
        ),
        (
            "cloudfunctions.requireVPCConnector",
            {"enforce": True},
            "functions without a VPC connector",
        ),
        (
            "cloudbuild.allowedWorkerPools",
            {"values": {"allowedValues": ["projects/x/locations/r/workerPools/w"]}},
            "builds in",
        ),
    ],
)
def test_policy_that_refuses_something_is_named_with_its_command(
    project: EmptyProject, constraint: str, rule: dict[str, object], refused: str
) -> None:
    project.set_policy(constraint, rule)
    (line,) = project.lines("FIX", "--region", REGION)
    assert f"the organisation policy {constraint} refuses {refused}" in line
    assert f"gcloud org-policies reset {constraint} --project {PROJECT}" in line


def test_policy_that_stops_only_jobs_with_gpus_does_not_change_the_exit_status(
    project: EmptyProject,
) -> None:
    project.set_policy("compute.requireShieldedVm", {"enforce": True})
    (line,) = project.lines("!")
    assert "the organisation policy compute.requireShieldedVm refuses VMs with GPUs" in line
    assert project.lines("FIX") == []


def test_policies_that_may_not_be_read_have_an_exit_status_of_their_own(
    project: EmptyProject,
) -> None:
    forbidden = 403, {"error": {"code": 403, "message": "orgpolicy.policy.get denied"}}
    project.google.responses["/policies/run.managed.requireInvokerIam:getEffectivePolicy"] = (
        forbidden
    )
    (line,) = project.lines("?")
    assert line.startswith("?    organisation policies: could not be checked")
    assert project.run().exit_code == 3
    assert "roles/orgpolicy.policyViewer" in line


@pytest.mark.parametrize(
    "constraint",
    ["iam.disableServiceAccountCreation", "iam.managed.disableServiceAccountCreation"],
)
def test_only_policies_and_quotas_are_checked_before_the_installation(
    project: EmptyProject, constraint: str
) -> None:
    project.set_policy(constraint, {"enforce": True})
    (line,) = project.lines("FIX", "--region", REGION)
    assert constraint in line
    assert not [
        word for word in ("topic", "bucket", "function trainmaster") if word in project.run().stdout
    ]


def test_installation_in_europe_under_a_european_policy_has_no_finding(
    project: EmptyProject,
) -> None:
    """tests/infra/test_regions.py has the plan, in which everything is in Europe."""
    region = "europe-west1"
    project.google.responses[f"/regions/{region}"] = project.google.responses[f"/regions/{REGION}"]
    for allowed in ("in:europe-locations", "in:eu-locations", f"in:{region}-locations", region):
        rule = {"values": {"allowedValues": [allowed]}}
        project.set_policy("gcp.resourceLocations", rule)
        assert project.lines("FIX", "--region", region) == []
        assert project.lines("!", "--region", region) == []


def test_region_with_an_unknown_group_of_locations_is_refused(project: EmptyProject) -> None:
    project.set_policy(
        "gcp.resourceLocations", {"values": {"allowedValues": ["in:us-central1-locations"]}}
    )
    assert project.lines("FIX", "--region", REGION) == []
    project.set_policy("gcp.resourceLocations", {"values": {"deniedValues": ["in:us-locations"]}})
    assert len(project.lines("FIX", "--region", REGION)) == 1


def test_checked_services_are_those_that_infra_enables() -> None:
    text = (ROOT / "infra" / "apis.tf").read_text(encoding="utf-8")
    enabled = set(re.findall(r'"([a-z]+)"', text.partition("apis = [")[2].partition("]")[0]))
    assert set(SERVICES) == enabled - {"billingbudgets", "orgpolicy"}
