"""What stops the first installation, one fault at a time: each is named with its repair."""

from __future__ import annotations

import pytest

from tests.integration.cli.doctor.empty_project import PROJECT, REGION, EmptyProject, disabled
from trainmaster.cli.doctor.first_day_checks import BUILD_REGIONS
from trainmaster.cli.doctor.quota_checks import FIRST_JOB
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster_emulators.checkout import ROOT

FORBIDDEN = 403, {"error": {"code": 403, "message": "Permission denied on resource"}}

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
"""Fault → the end of an address, Google's answer there, the mark of the line and what it says."""


@pytest.mark.parametrize(("end", "answer", "mark", "text"), FIRST_DAY.values(), ids=FIRST_DAY)
def test_what_stops_the_first_day_is_named_with_its_repair(
    project: EmptyProject, end: str, answer: tuple[int, object], mark: str, text: str
) -> None:
    assert not [line for line in project.lines(mark, "--region", REGION) if text in line]
    ends = [known for known in project.google.responses if end in known] or [end]
    project.google.responses.update(dict.fromkeys(ends, answer))
    assert [line for line in project.lines(mark, "--region", REGION) if text in line]


def test_region_in_which_new_projects_cannot_build_is_named(project: EmptyProject) -> None:
    project.google.responses["/regions/europe-west4"] = 200, {"quotas": []}
    (line,) = project.lines("!", "--region", "europe-west4")
    assert "Cloud Build may refuse to build the functions in europe-west4" in line
    assert "us-central1, us-west2, europe-west1" in line
    readme = (ROOT / "infra" / "README.md").read_text(encoding="utf-8")
    assert all(region in readme for region in BUILD_REGIONS)


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
