"""`trainmaster doctor` on deployed functions and on the API's reachability."""

from __future__ import annotations

import pytest

from tests.integration.cli.doctor.empty_project import PROJECT, EmptyProject
from trainmaster.cli.doctor.findings import Finding, Status
from trainmaster.cli.doctor.function_checks import FUNCTIONS, check_functions
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.gcp.tools.inspection import Endpoints, Inspection
from trainmaster_emulators.checkout import ROOT


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
