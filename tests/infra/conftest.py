"""The plan that terraform itself makes of infra/, for all tests that ask what will be there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from emulators.stack.state import ROOT
from infra import stage
from tests.infra import bare_provider, provider_schema
from tests.infra.provider_schema import Block

INFRA: Final = ROOT / "infra"
FILLED: Final = {"project": "my-project", "region": "us-central1", "notify": "platform@example.com"}
TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Planned:
    """`values` has what the files say; what only Google knows is not in it."""

    address: str
    type: str
    values: dict[str, Any]


class Plan:
    def __init__(self, document: dict[str, Any]) -> None:
        self.resources = tuple(_resources(document["planned_values"]["root_module"]))
        self.outputs: dict[str, Any] = document["planned_values"].get("outputs", {})

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Address → values."""
        return {each.address: each.values for each in self.resources if each.type == kind}


Terraform = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def schema() -> dict[str, Block]:
    """`make images` leaves it there."""
    return provider_schema.load(ROOT / ".images" / "google-provider" / "schema.json")


@pytest.fixture(scope="session")
def terraform(schema: dict[str, Block], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terraform]:
    """Terraform on a copy of infra/, initialized."""
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("terraform is not installed")
    folder = tmp_path_factory.mktemp("terraform") / "infra"
    shutil.copytree(
        INFRA, folder, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfvars", "__pycache__")
    )
    with bare_provider.attached(schema) as reattached:
        environment = {**os.environ, **reattached, "TF_CLI_CONFIG_FILE": os.devnull, "TF_IN_AUTOMATION": "1"}

        def run(*words: str, within: Path = folder) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, *words],
                cwd=within,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )

        done = run("init", "-input=false", "-backend=false", "-no-color")
        assert done.returncode == 0, done.stderr
        yield run


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stage.stage(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="session")
def planned(
    terraform: Terraform, archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Plan]:
    """What `terraform apply` would make in an empty project: `planned(budget=100)`."""
    folder = next(iter(archives.values())).parent

    def plan(**variables: object) -> Plan:
        file = tmp_path_factory.mktemp("plan") / "plan"
        said = {**FILLED, "stage": str(folder), **variables}
        given = [f"-var={name}={each if isinstance(each, str) else json.dumps(each)}" for name, each in said.items()]
        done = terraform("plan", "-input=false", "-no-color", "-refresh=false", f"-out={file}", *given)
        assert done.returncode == 0, done.stderr
        shown = terraform("show", "-json", str(file))
        assert shown.returncode == 0, shown.stderr
        return Plan(json.loads(shown.stdout))

    return plan


@pytest.fixture(scope="session")
def plan(planned: Callable[..., Plan]) -> Plan:
    """With the three lines filled, and nothing else said."""
    return planned()


def _resources(module: dict[str, Any]) -> Iterator[Planned]:
    for each in module.get("resources", []):
        if each["mode"] == "managed":
            yield Planned(each["address"], each["type"], each["values"])
    for inner in module.get("child_modules", []):
        yield from _resources(inner)
