"""`trainmaster doctor` on organisation policies, quotas and deployed functions, which no emulator
has.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.integration.cli.fake_google import FakeGoogle
from trainmaster.cli.doctor.findings import Finding, Status
from trainmaster.cli.doctor.first_day_checks import BUILD_REGIONS, INSTALLER_PERMISSIONS
from trainmaster.cli.doctor.function_checks import FUNCTIONS, check_functions
from trainmaster.cli.doctor.policy_checks import SERVICES
from trainmaster.cli.doctor.quota_checks import FIRST_JOB
from trainmaster.cli.main import app
from trainmaster.gcp.clients import TOKEN_FILE
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.gcp.tools import inspection
from trainmaster.gcp.tools.inspection import Endpoints, Inspection
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.settings import settings
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.services import iam

PROJECT, REGION = "my-project", "us-central1"
EMAIL = "platform@example.com"


def set_gcloud(monkeypatch: pytest.MonkeyPatch, folder: Path, account: str) -> None:
    """Put a gcloud first on PATH that has this active account."""
    program = folder / "bin" / "gcloud"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{account}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@dataclass(frozen=True)
class EmptyProject:
    """A project of an organisation, before the installation."""

    google: FakeGoogle
    endpoint: str

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(
            app, ["doctor", "--project", PROJECT, "--before-install", *arguments]
        )

    def lines(self, mark: str, *arguments: str) -> list[str]:
        """Run the command, and return the lines that begin with the mark."""
        result = self.run(*arguments)
        lines = result.stdout.splitlines()
        assert result.exit_code == status_of(lines), result.output
        return [line for line in lines if line.startswith(f"{mark} ")]

    def set_policy(self, constraint: str, rule: Mapping[str, object]) -> None:
        path = f"/policies/{constraint}:getEffectivePolicy"
        self.google.responses[path] = 200, {"name": constraint, "spec": {"rules": [rule]}}


def status_of(lines: list[str]) -> int:
    marks = {line.partition(" ")[0] for line in lines}
    if "FIX" in marks:
        return 1
    return 3 if "?" in marks else 0


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EmptyProject]:
    quotas = [
        {"metric": "CPUS", "usage": 8, "limit": 72},
        {"metric": "SSD_TOTAL_GB", "usage": 0, "limit": 500},
    ]
    google = FakeGoogle(
        {
            "/zones": (200, {"items": [{"name": f"{REGION}-a"}]}),
            f"/regions/{REGION}": (200, {"name": REGION, "quotas": quotas}),
            f"/projects/{PROJECT}": (200, {"quotas": []}),
            "/v1/userinfo": (200, {"email": EMAIL, "email_verified": True}),
            **{
                f"/{runtime.image}": (200, {"name": "image"})
                for runtime in RUNTIMES.values()
                if runtime.image
            },
            "/aggregated/instances": (200, {"items": {}}),
            "/nodes": (200, {}),
            "/queuedResources": (200, {}),
            "/roles": (200, {"roles": []}),
            f"/{PROJECT}:testIamPermissions": (200, {"permissions": list(INSTALLER_PERMISSIONS)}),
        }
    )
    (tmp_path / "token").write_text(iam.OWNER, encoding="utf-8")
    with google.serving() as endpoint:
        monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
        monkeypatch.setenv("TRAINMASTER_PROJECT", PROJECT)
        monkeypatch.setenv("TRAINMASTER_BUCKET", "bucket")
        monkeypatch.setenv("TRAINMASTER_WORKER_SERVICE_ACCOUNT", "worker")
        endpoints = Endpoints(*[endpoint] * len(Endpoints.__dataclass_fields__))
        monkeypatch.setattr(inspection, "GOOGLE", endpoints)
        monkeypatch.setattr("trainmaster.cli.doctor.inspecting.GOOGLE", endpoints)
        monkeypatch.setenv("TRAINMASTER_IAM_ENDPOINT", endpoint)
        monkeypatch.setenv("TRAINMASTER_IAM_ACCOUNTS_ENDPOINT", endpoint)
        monkeypatch.setenv("TRAINMASTER_IAM_PEOPLE_ENDPOINT", endpoint)
        set_gcloud(monkeypatch, tmp_path, EMAIL)
        settings.cache_clear()
        yield EmptyProject(google, endpoint)
    settings.cache_clear()


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


def test_only_policies_and_quotas_are_checked_before_the_installation(
    project: EmptyProject,
) -> None:
    project.set_policy("iam.disableServiceAccountCreation", {"enforce": True})
    (line,) = project.lines("FIX", "--region", REGION)
    assert "iam.disableServiceAccountCreation" in line
    assert not [
        word for word in ("topic", "bucket", "function trainmaster") if word in project.run().stdout
    ]


FORBIDDEN = 403, {"error": {"code": 403, "message": "Permission denied on resource"}}


def disabled(api: str) -> tuple[int, object]:
    """Return Google's answer for an API that the project has not enabled."""
    message = (
        f"{api} API has not been used in project {PROJECT} before or it is disabled. Enable it by"
        f" visiting https://console.developers.google.com/apis/api/{api}.googleapis.com/overview"
    )
    return 403, {"error": {"code": 403, "message": message}}


FIRST_DAY: dict[str, tuple[str, tuple[int, object], str, str]] = {
    "retired image family": ("/family/common-cu", (404, {}), "FIX", "in `boot_images` of infra/"),
    "missing permission": (
        ":testIamPermissions",
        (200, {"permissions": []}),
        "FIX",
        "get roles/owner on the project",
    ),
    "VMs may not be listed": (
        "/aggregated/instances",
        FORBIDDEN,
        "FIX",
        "get roles/viewer on the project",
    ),
    "unreachable zone": (
        "/aggregated/instances",
        (200, {"items": {"zones/us-east1-b": {"warning": {"code": "UNREACHABLE"}}}}),
        "!",
        "Google cannot reach us-east1-b: VMs there are left as they are",
    ),
    "unreachable zone of TPUs": (
        "/nodes",
        (200, {"unreachable": ["projects/p/locations/us-east1-d"]}),
        "!",
        "us-east1-d",
    ),
    "Cloud TPU is not enabled": ("/nodes", FORBIDDEN, "-", "with `tpu = true`, infra/ enables it"),
    "IAM is not enabled": ("/roles", disabled("iam"), "ok", "has never used IAM's API"),
    "roles may not be listed": ("/roles", FORBIDDEN, "?", "get roles/iam.roleViewer"),
    "Compute Engine is not enabled": (
        "/aggregated/instances",
        disabled("compute"),
        "FIX",
        f"`gcloud services enable compute.googleapis.com --project {PROJECT}`",
    ),
    "policies are not enabled": (
        "/policies/run.managed.requireInvokerIam:getEffectivePolicy",
        disabled("orgpolicy"),
        "?",
        f"`gcloud services enable orgpolicy.googleapis.com --project {PROJECT}`",
    ),
    "database of another use": (
        "/databases/(default)",
        (200, {"locationId": "nam5"}),
        "FIX",
        '`installation = "ml"` in terraform.tfvars',
    ),
    "Firestore may not be read": (
        "/databases/(default)",
        FORBIDDEN,
        "FIX",
        "get roles/viewer on the project",
    ),
    "other account": (
        "/v1/userinfo",
        (200, {"email": "me@example.com", "email_verified": True}),
        "FIX",
        "`gcloud config set account me@example.com`",
    ),
    "deleted role": (
        "/roles",
        (
            200,
            {"roles": [{"name": f"projects/{PROJECT}/roles/trainmasterTpuFuse", "deleted": True}]},
        ),
        "!",
        'set `role_suffix = "2"`',
    ),
}


@pytest.mark.parametrize(("end", "answer", "mark", "text"), FIRST_DAY.values(), ids=FIRST_DAY)
def test_what_stops_the_first_day_is_named_with_its_repair(
    project: EmptyProject, end: str, answer: tuple[int, object], mark: str, text: str
) -> None:
    assert not [line for line in project.lines(mark, "--region", REGION) if text in line]
    ends = [known for known in project.google.responses if end in known] or [end]
    project.google.responses.update(dict.fromkeys(ends, answer))
    assert [line for line in project.lines(mark, "--region", REGION) if text in line]


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


@pytest.mark.parametrize("name", ["123456789012", "My-Project", "my_project"])
def test_what_is_not_a_projects_id_is_said_before_anything_is_called(
    project: EmptyProject, name: str
) -> None:
    result = CliRunner().invoke(app, ["doctor", "--project", name, "--before-install"])
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("FIX ")]
    assert f"{name} is not a project's id" in line
    assert "gcloud projects list" in line
    assert result.exit_code == 1
    assert not project.google.quotas


@pytest.mark.parametrize("status", [403, 404])
def test_mistyped_project_is_the_only_finding(project: EmptyProject, status: int) -> None:
    answer = status, {"error": {"code": status, "message": "The caller does not have permission"}}
    project.google.responses[f"/projects/{PROJECT}"] = answer
    result = project.run("--region", REGION)
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("FIX ")]
    assert f"there is no project {PROJECT}, or you may not see it" in line
    assert "terraform" not in result.stdout


def test_each_call_names_the_project_whose_quota_counts(project: EmptyProject) -> None:
    """Google refuses a user's own credentials without it, for organisation policies for example."""
    project.run("--region", REGION)
    without_token = {path for path, quota in project.google.quotas.items() if quota is None}
    with_quota = {path for path, quota in project.google.quotas.items() if quota == PROJECT}
    assert len(with_quota) > 20
    # The clock is read without credentials. Permissions and addresses are asked for with the token
    # alone first, as the API does for callers whose own project may have no such API.
    without_header = {f"/v1/projects/{PROJECT}", f"/v1/projects/{PROJECT}:testIamPermissions"}
    assert without_token <= {*without_header, "/v1/userinfo"}


def test_user_who_may_not_use_the_quota_of_the_project_is_served_without_it(
    project: EmptyProject,
) -> None:
    project.google.refuses_quota_project = True
    assert project.lines("FIX", "--region", REGION) == []


def test_region_in_which_new_projects_cannot_build_is_named(project: EmptyProject) -> None:
    project.google.responses["/regions/europe-west4"] = 200, {"quotas": []}
    (line,) = project.lines("!", "--region", "europe-west4")
    assert "Cloud Build may refuse to build the functions in europe-west4" in line
    assert "us-central1, us-west2, europe-west1" in line
    readme = (ROOT / "infra" / "README.md").read_text(encoding="utf-8")
    assert all(region in readme for region in BUILD_REGIONS)


def test_region_with_an_unknown_group_of_locations_is_refused(project: EmptyProject) -> None:
    project.set_policy(
        "gcp.resourceLocations", {"values": {"allowedValues": ["in:us-central1-locations"]}}
    )
    assert project.lines("FIX", "--region", REGION) == []
    project.set_policy("gcp.resourceLocations", {"values": {"deniedValues": ["in:us-locations"]}})
    assert len(project.lines("FIX", "--region", REGION)) == 1


def test_quotas_of_a_new_project_name_what_cannot_run_and_the_request(
    project: EmptyProject,
) -> None:
    """Source of the numbers: a new project has 12 CPUs, 500 GB of SSD and no GPU."""
    new = [
        {"metric": "GPUS_ALL_REGIONS", "usage": 0, "limit": 0},
        {"metric": "CPUS_ALL_REGIONS", "usage": 4, "limit": 12},
    ]
    project.google.responses[f"/projects/{PROJECT}"] = 200, {"quotas": new}
    (line,) = project.lines("FIX", "--region", REGION)
    assert "quota CPUS_ALL_REGIONS in all regions together: 4 of 12; a first job needs 12" in line
    assert "--quota-id CPUS-ALL-REGIONS-per-project --preferred-value 24`" in line
    (line,) = project.lines("!", "--region", REGION)
    assert "--quota-id GPUS-ALL-REGIONS-per-project --preferred-value 8`" in line


def test_first_job_is_the_main_example() -> None:
    job = parse_document((ROOT / "examples" / "digits" / "job.yaml").read_bytes(), "job.yaml")
    plan = accept(job, default_job_id="first").plan
    machines = {group.machine_type for group in plan.groups}
    assert machines == {"n1-standard-4"}
    assert len(plan.replica_ids) == FIRST_JOB["INSTANCES"]
    assert 4 * len(plan.replica_ids) == FIRST_JOB["CPUS"] == FIRST_JOB["CPUS_ALL_REGIONS"]
    assert (
        sum(group.count * group.boot_disk_gib for group in plan.groups) == FIRST_JOB["SSD_TOTAL_GB"]
    )


@pytest.fixture
def deployed(project: EmptyProject) -> list[dict[str, object]]:
    """The functions that Cloud Functions lists."""
    functions: list[dict[str, object]] = [
        {
            "name": f"projects/p/locations/r/functions/{name}",
            "state": "ACTIVE",
            "url": f"{project.endpoint}/{name}",
        }
        for name in FUNCTIONS
    ]
    project.google.responses["/functions"] = 200, {"functions": functions}
    project.google.responses[f"/trainmaster-api/v1/projects/{PROJECT}/jobs"] = (
        401,
        {"error": {"code": 401}},
    )
    return functions


def findings(project: EmptyProject) -> list[Finding]:
    access = ProjectAccess(PROJECT, project.endpoint, project.endpoint)
    return list(check_functions(Inspection(PROJECT, Endpoints(), access)))


def test_active_functions_and_reachable_api_are_fine(
    project: EmptyProject, deployed: list[dict[str, object]]
) -> None:
    assert {finding.status for finding in findings(project)} == {Status.OK}
    deployed_always = {path.stem for path in (ROOT / "functions").glob("[a-z]*.py")} - {"console"}
    assert {f"trainmaster-{name.replace('_', '-')}" for name in deployed_always} == set(FUNCTIONS)


def test_function_that_was_not_built_is_a_problem_with_googles_reason(
    project: EmptyProject, deployed: list[dict[str, object]]
) -> None:
    deployed[0] |= {
        "state": "FAILED",
        "stateMessages": [{"severity": "ERROR", "message": "Build failed: 403"}],
    }
    del deployed[1]
    first, second = (finding for finding in findings(project) if finding.status is Status.FIX)
    assert first.what == "function trainmaster-upload is FAILED: Build failed: 403"
    assert second.what == "there is no function trainmaster-submit"
    assert "terraform apply" in first.fix


@pytest.mark.parametrize(("status", "mark"), [(403, Status.LIMIT), (500, Status.FIX)])
def test_api_that_clients_do_not_reach_is_named(
    project: EmptyProject, deployed: list[dict[str, object]], status: int, mark: Status
) -> None:
    """Cloud Run's own check answers 403, before the function can answer 401."""
    project.google.responses[f"/trainmaster-api/v1/projects/{PROJECT}/jobs"] = status, {}
    *_, last = findings(project)
    assert last.status is mark
    assert "terraform apply" in last.fix


def test_checked_services_are_those_that_infra_enables() -> None:
    text = (ROOT / "infra" / "apis.tf").read_text(encoding="utf-8")
    enabled = set(re.findall(r'"([a-z]+)"', text.partition("apis = [")[2].partition("]")[0]))
    assert set(SERVICES) == enabled - {"billingbudgets", "orgpolicy"}
