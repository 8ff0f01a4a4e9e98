"""Mistakes of the person who sets Trainmaster up: each is named with a command that repairs it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from typer.testing import CliRunner

from tests.integration.cli.doctor.empty_project import (
    PROJECT,
    REGION,
    EmptyProject,
    disabled,
    status_of,
)
from trainmaster.cli.main import app


@dataclass(frozen=True)
class Mistake:
    """What is wrong when somebody sets Trainmaster up, and what the operator then reads."""

    mark: str
    text: str
    answers: Mapping[str, tuple[int, object]] = field(default_factory=dict)
    """End of an address → Google's answer."""
    policy: tuple[str, Mapping[str, object]] | None = None
    project: str = PROJECT
    region: str = REGION


def refusal(status: int, message: str) -> tuple[int, object]:
    return status, {"error": {"code": status, "message": message}}


MISTAKES: dict[str, Mistake] = {
    "APIs not enabled": Mistake(
        "FIX",
        f"`gcloud services enable compute.googleapis.com --project {PROJECT}`, and wait two",
        {
            "/zones": disabled("compute"),
            f"/regions/{REGION}": disabled("compute"),
            "/aggregated/instances": disabled("compute"),
        },
    ),
    "no API enabled": Mistake(
        "FIX",
        f"`gcloud services enable cloudresourcemanager.googleapis.com --project {PROJECT}`, and",
        {f"/projects/{PROJECT}": disabled("cloudresourcemanager")},
    ),
    "no login of Terraform": Mistake(
        "FIX",
        "log in: gcloud auth application-default login",
        {f"/projects/{PROJECT}": refusal(401, "Your default credentials were not found")},
    ),
    "project mistyped": Mistake(
        "FIX",
        f"there is no project {PROJECT}, or you may not see it: compare its id with `gcloud",
        {f"/projects/{PROJECT}": refusal(403, "The caller does not have permission")},
    ),
    "number of the project": Mistake(
        "FIX",
        "123456789012 is not a project's id (6 to 30 lower-case letters, digits and hyphens)",
        project="123456789012",
    ),
    "region mistyped": Mistake(
        "FIX",
        "there is no region us-cental1: choose one of `gcloud compute regions list`",
        {"/regions/us-cental1": refusal(404, "The resource was not found")},
        region="us-cental1",
    ),
    "policy of the organisation": Mistake(
        "FIX",
        "gcloud org-policies reset run.managed.requireInvokerIam --project my-project`; or set",
        policy=("run.managed.requireInvokerIam", {"enforce": True}),
    ),
    "policies cannot be read": Mistake(
        "?",
        "get roles/orgpolicy.policyViewer on the project or its organisation",
        {
            "/policies/run.managed.requireInvokerIam:getEffectivePolicy": refusal(
                403, "Permission 'orgpolicy.policy.get' denied"
            )
        },
    ),
    "European locations only": Mistake(
        "FIX",
        "gcp.resourceLocations refuses resources in us-central1",
        policy=("gcp.resourceLocations", {"values": {"allowedValues": ["in:europe-locations"]}}),
    ),
    "members of one organisation only": Mistake(
        "!",
        "iam.managed.allowedPolicyMembers refuses grants to members that it does not list",
        policy=("iam.managed.allowedPolicyMembers", {"enforce": True}),
    ),
    "database of another use": Mistake(
        "FIX",
        '`installation = "ml"` in terraform.tfvars',
        {"/databases/(default)": (200, {"locationId": "nam5"})},
    ),
    "no owner": Mistake(
        "FIX",
        "get roles/owner on the project, which the first apply needs",
        {":testIamPermissions": (200, {"permissions": []})},
    ),
    "installed again within 37 days": Mistake(
        "!",
        'set `role_suffix = "2"`',
        {
            "/roles": (
                200,
                {
                    "roles": [
                        {"name": f"projects/{PROJECT}/roles/trainmasterSshUser", "deleted": True}
                    ]
                },
            )
        },
    ),
    "quotas of a new project": Mistake(
        "FIX",
        "quota CPUS in us-central1: 0 of 8; a first job needs 12",
        {
            f"/regions/{REGION}": (
                200,
                {"name": REGION, "quotas": [{"metric": "CPUS", "usage": 0, "limit": 8}]},
            )
        },
    ),
    "gcloud has another account": Mistake(
        "FIX",
        "the last step of the first apply runs gcloud: `gcloud config set account me@example.com`",
        {"/v1/userinfo": (200, {"email": "me@example.com", "email_verified": True})},
    ),
}
"""Two more are Terraform's to tell: `make stage` was forgotten (tests/infra/test_plan.py), and jobs
in another region than their data (tests/infra/test_regions.py).
"""


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistake_of_a_set_up_is_named_with_its_repair(
    project: EmptyProject, mistake: Mistake
) -> None:
    for end, answer in mistake.answers.items():
        ends = [known for known in project.google.responses if known.endswith(end)] or [end]
        project.google.responses.update(dict.fromkeys(ends, answer))
    if mistake.policy:
        project.set_policy(*mistake.policy)
    command = ["doctor", "--project", mistake.project, "--before-install"]
    result = CliRunner().invoke(app, [*command, "--region", mistake.region])
    lines = result.stdout.splitlines()
    assert result.exit_code == status_of(lines)
    assert [line for line in lines if line.startswith(f"{mistake.mark} ") and mistake.text in line]
    assert "run `terraform apply` in infra/" not in result.stdout, "nothing is installed yet"
    for text in re.findall(r"`([^`]+)`", result.stdout):
        if text.startswith(("gcloud ", "terraform ")):
            subprocess.run(["bash", "-n", "-c", text], check=True)
