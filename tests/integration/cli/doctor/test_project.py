"""Which project `trainmaster doctor` asks, and by whose quota."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.integration.cli.doctor.empty_project import PROJECT, REGION, EmptyProject
from trainmaster.cli.main import app


@pytest.mark.parametrize("name", ["123456789012", "My-Project", "my_project"])
def test_text_that_is_no_project_id_is_reported_before_anything_is_called(
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
