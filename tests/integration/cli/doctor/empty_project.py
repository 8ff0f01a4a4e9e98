"""A project of an organisation before the installation, on a server that answers like Google,
and `trainmaster doctor` for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from typer.testing import CliRunner, Result

from tests.integration.cli.fake_google import FakeGoogle
from trainmaster.cli.main import app

PROJECT, REGION = "my-project", "us-central1"


@dataclass(frozen=True)
class EmptyProject:
    """A project of an organisation, before the installation."""

    google: FakeGoogle
    """Its `responses`: the end of an address → status and body."""
    endpoint: str

    def run(self, *arguments: str) -> Result:
        """Run `trainmaster doctor` for this project."""
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
        """Put a policy of the organisation in force: one rule of a constraint."""
        path = f"/policies/{constraint}:getEffectivePolicy"
        self.google.responses[path] = 200, {"name": constraint, "spec": {"rules": [rule]}}


def status_of(lines: list[str]) -> int:
    """Return the exit status that the printed lines lead to: 1 if there is something to repair, 3
    if only something could not be checked.
    """
    marks = {line.partition(" ")[0] for line in lines}
    if "FIX" in marks:
        return 1
    return 3 if "?" in marks else 0


def disabled(api: str) -> tuple[int, object]:
    """Return Google's answer for an API that the project has not enabled."""
    message = (
        f"{api} API has not been used in project {PROJECT} before or it is disabled. Enable it by"
        f" visiting https://console.developers.google.com/apis/api/{api}.googleapis.com/overview"
    )
    return 403, {"error": {"code": 403, "message": message}}
