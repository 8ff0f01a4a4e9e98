"""The path of an installation, walked with Terraform itself: a first apply by hand, the move of its
state, a delivery, and an upgrade.

The scripts are those of cloudbuild.deliver.yaml and the commands of infra/README.md. The provider
creates nothing, the state is in a folder instead of a bucket, and gcloud copies files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.infra import bare_provider
from tests.infra.conftest import INFRA, REQUIRED
from tests.infra.provider_schema import Block
from tests.infra.test_cloudbuild import parse, script_of
from tests.support.terraform import terraform_program

BUCKET = "my-project-trainmaster-terraform"
GCLOUD = """\
#!/bin/bash
# Copies files between this machine and "Cloud Storage"; accepts every other command.
[[ "$1 $2" == "storage cp" ]] || exit 0
from="${3/#gs:\\/\\//$STORAGE/}" to="${4/#gs:\\/\\//$STORAGE/}"
mkdir -p "$(dirname "$to")" && cp "$from" "$to"
"""


@dataclass
class Machine:
    """A machine with Terraform, its providers, and a gcloud."""

    folder: Path
    environment: dict[str, str]
    archives: Path

    def checkout(self, name: str) -> Path:
        """Return a new copy of infra/ in the repository."""
        copy = self.folder / name / "infra"
        ignored = shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfvars", "__pycache__")
        shutil.copytree(INFRA, copy, ignore=ignored)
        return copy

    def run(self, script: str, within: Path, **environment: str) -> tuple[int, str]:
        """Run a script; return its status and its output."""
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=within,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, done.stdout

    def deliver(self, infra: Path, build: str, plan: str = "") -> tuple[int, str]:
        """Run the steps `plan` and `apply` of a delivery."""
        delivery = parse("cloudbuild.deliver.yaml")
        output = ""
        for step in ("plan", "apply"):
            status, text = self.run(
                self.local(script_of(delivery, step)),
                infra,
                TF_VAR_project="my-project",
                STATE_BUCKET=BUCKET,
                COMMIT=infra.parent.name,
                BUILD=build,
                PLAN=plan,
            )
            output += text
            if status != 0:
                return status, output
        return 0, output

    def local(self, script: str) -> str:
        """Return the script with a state in a folder. Providers are attached, so none is locked."""
        state = self.folder / "storage" / BUCKET / "default.tfstate"
        script = script.replace('backend "gcs"', 'backend "local"')
        script = re.sub(r'"bucket=[^"]+"', f'"path={state}"', script)
        script = script.replace("/workspace/", f"{self.folder}/workspace/")
        return script.replace(" -lockfile=readonly", "")


@pytest.fixture(scope="module")
def machine(
    schema: dict[str, Block],
    archives: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("delivery")
    for name in ("bin", "storage", "workspace"):
        (folder / name).mkdir()
    gcloud = folder / "bin" / "gcloud"
    gcloud.write_text(GCLOUD, encoding="utf-8")
    gcloud.chmod(0o755)
    program = Path(terraform_program()).parent
    used = {
        name
        for path in INFRA.rglob("*.tf")
        for name in re.findall(r'"(google_\w+)"', path.read_text("utf-8"))
    }
    types = {
        name: block
        for name, block in schema.items()
        if name.removeprefix("data.") in {*used, "provider"}
    }
    with bare_provider.attached(types) as reattached:
        environment = {
            **os.environ,
            **reattached,
            "PATH": f"{folder / 'bin'}{os.pathsep}{program}{os.pathsep}{os.environ['PATH']}",
            "STORAGE": str(folder / "storage"),
            "TF_CLI_CONFIG_FILE": os.devnull,
            "TF_IN_AUTOMATION": "1",
            "TF_CLI_ARGS": "-no-color",
            "TF_VAR_stage": str(next(iter(archives.values())).parent),
            "GOGC": "off",
        }
        yield Machine(folder, environment, next(iter(archives.values())).parent)


def commands_of_the_readme() -> str:
    """Return the commands that move the state of a first apply, from infra/ on."""
    readme = (INFRA / "README.md").read_text(encoding="utf-8")
    block = readme.partition("1. Move the state")[2].partition("```sh\n")[2].partition("```")[0]
    lines = [line.strip() for line in block.splitlines()]
    return "\n".join(lines[lines.index("cd infra") + 1 :])


def write_variables(infra: Path, **changes: str) -> None:
    values = {**REQUIRED, **changes}
    lines = [f'{name} = "{value}"\n' for name, value in values.items()]
    (infra / "terraform.tfvars").write_text("".join(lines), encoding="utf-8")


def changes_of(output: str) -> tuple[int, int, int]:
    """Return how many resources a plan adds, changes and destroys."""
    if "No changes." in output:
        return 0, 0, 0
    found = re.search(r"Plan: (\d+) to add, (\d+) to change, (\d+) to destroy", output)
    assert found is not None, output[-2000:]
    return int(found[1]), int(found[2]), int(found[3])


def test_installation_made_by_hand_is_delivered_and_upgraded(machine: Machine) -> None:
    by_hand = machine.checkout("by-hand")
    write_variables(by_hand)
    status, output = machine.run("terraform init && terraform apply -auto-approve", by_hand)
    assert status == 0, output[-2000:]
    assert "Apply complete!" in output

    # A commit without the variables, and one whose state was not moved, are refused.
    commit = machine.checkout("commit-1")
    status, output = machine.deliver(commit, "build-0")
    assert status == 1
    assert "The commit has no infra/terraform.tfvars" in output
    write_variables(commit)
    status, output = machine.deliver(commit, "build-0")
    assert status == 1
    assert f"The state in gs://{BUCKET} is empty" in output

    # The commands of the README move the state. Terraform asks before it copies.
    script = machine.local(commands_of_the_readme()).replace("git ", "true git ")
    status, output = machine.run(script.replace("-migrate-state", "-force-copy"), by_hand)
    assert status == 0, output[-2000:]

    # The same commit plans nothing to create or destroy, and applies nothing.
    status, output = machine.deliver(commit, "build-1")
    assert status == 0, output[-2000:]
    added, _, destroyed = changes_of(output)
    assert (added, destroyed) == (0, 0)
    assert "Nothing is applied." in output
    assert "Apply complete!" not in output

    # An upgrade adds an index. Only the plan that was read is applied.
    upgrade = machine.checkout("commit-2")
    write_variables(upgrade)
    firestore = upgrade / "firestore.tf"
    text = firestore.read_text(encoding="utf-8")
    assert "    state = [" in text
    firestore.write_text(
        text.replace("    state = [", '    new   = ["state", "attempt"]\n    state = [', 1),
        encoding="utf-8",
    )
    status, output = machine.deliver(upgrade, "build-2")
    assert status == 0, output[-2000:]
    added, _, destroyed = changes_of(output)
    assert (added, destroyed) == (1, 0)
    status, output = machine.deliver(commit, "build-3", plan="build-2")
    assert status == 1
    assert "There is no plan build-2 of the commit commit-1" in output
    status, output = machine.deliver(upgrade, "build-4", plan="build-2")
    assert status == 0, output[-2000:]
    assert "Apply complete! Resources: 1 added" in output

    # The plan is used up: the state has changed since.
    status, output = machine.deliver(upgrade, "build-5", plan="build-2")
    assert status == 1
    assert "Saved plan is stale" in output
