"""The builds: Cloud Build knows their fields, tests have no rights, and only a tested commit is
delivered.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.cloud.devtools import cloudbuild_v1
from google.protobuf import json_format

from tests.infra import iam_table
from tests.support.terraform import terraform_program
from trainmaster_emulators.checkout import ROOT

DIGEST = f"@sha256:{'0' * 64}"


def parse(name: str) -> cloudbuild_v1.Build:
    """Parse the document. Unknown fields and wrong types are errors."""
    document: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    message = cloudbuild_v1.Build()
    json_format.ParseDict(document, cloudbuild_v1.Build.pb(message), ignore_unknown_fields=False)
    return message


@pytest.fixture(scope="module")
def tests_build() -> cloudbuild_v1.Build:
    return parse("cloudbuild.yaml")


@pytest.fixture(scope="module")
def delivery() -> cloudbuild_v1.Build:
    return parse("cloudbuild.deliver.yaml")


def test_all_steps_run_in_the_image_that_the_first_one_builds(
    tests_build: cloudbuild_v1.Build,
) -> None:
    image, *others = tests_build.steps
    assert list(image.args) == ["build", "--tag", "trainmaster-delivery", "infra/delivery"]
    assert {step.name for step in others} == {"trainmaster-delivery"}


def test_image_has_pinned_releases_and_a_terraform_that_infra_accepts() -> None:
    file = (ROOT / "infra" / "delivery" / "Dockerfile").read_text(encoding="utf-8")
    releases = dict(re.findall(r"(?m)^FROM (\S+):(\d+\.\d+\.\d+\S*)", file))
    assert len(releases) == len(re.findall(r"(?m)^FROM ", file))
    assert releases["gcr.io/google.com/cloudsdktool/google-cloud-cli"].endswith("-emulators")
    least = re.findall(
        r'required_version = ">= (\d+)\.(\d+)"', (ROOT / "infra" / "versions.tf").read_text("utf-8")
    )
    terraform = tuple(map(int, releases["hashicorp/terraform"].split(".")))
    assert terraform[:2] >= tuple(map(int, least[0]))


def test_readme_locks_the_providers_and_builds_the_image_of_the_delivery() -> None:
    delivery = (
        (ROOT / "infra" / "README.md").read_text(encoding="utf-8").partition("## Delivery")[2]
    )
    assert "terraform -chdir=infra providers lock -platform=linux_amd64\n" in delivery
    assert "gcloud builds submit infra/delivery --tag" in delivery


def test_image_of_the_apply_has_every_program_that_terraform_runs(
    delivery: cloudbuild_v1.Build,
) -> None:
    """`local-exec` runs on the machine of the apply."""
    (apply,) = [step for step in delivery.steps if step.id == "apply"]
    assert apply.name == "${_IMAGE}"
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "infra").rglob("*.tf")]
    blocks = [block for text in files for block in text.split('provisioner "local-exec"')[1:]]
    assert blocks
    programs = {
        word
        for block in blocks
        for word in re.findall(r'"([a-z][\w.-]*) ', block.partition("\n  }")[0])
    }
    image = (ROOT / "infra" / "delivery" / "Dockerfile").read_text(encoding="utf-8")
    checked = set(re.findall(r"([\w.-]+) (?:beta --help|-?version)", image))
    assert programs <= checked, "the image's build runs each of them"
    betas = {word for block in blocks for word in re.findall(r'"(\w+ beta) ', block)}
    assert all(f"{beta} --help" in image for beta in betas)


def test_tests_fail_without_terraform_where_cloud_build_runs_them(
    tests_build: cloudbuild_v1.Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tests,) = [step for step in tests_build.steps if "make test" in step.args[-1]]
    for variable in tests.env:
        monkeypatch.setenv(*variable.split("="))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.fail.Exception, match="terraform is not installed"):
        terraform_program()


def script_of(build: cloudbuild_v1.Build, step_id: str) -> str:
    """Return a step's script as the shell gets it: Cloud Build replaces `$$` by `$`."""
    (step,) = [step for step in build.steps if step.id == step_id]
    return str(step.args[-1]).replace("$$", "$")


def test_account_of_the_tests_may_only_write_logs(tests_build: cloudbuild_v1.Build) -> None:
    """Tests run hundreds of third-party packages, each of which could use the account."""
    assert tests_build.service_account.startswith(
        "projects/${PROJECT_ID}/serviceAccounts/trainmaster-tests@"
    )
    grants = [grant for grant in iam_table.grants() if grant.member == "tests"]
    assert [(grant.role, grant.resource) for grant in grants] == [
        ("roles/logging.logWriter", "project")
    ]


def test_tests_and_delivery_share_no_workspace(
    tests_build: cloudbuild_v1.Build, delivery: cloudbuild_v1.Build
) -> None:
    assert [step.id for step in tests_build.steps] == ["image", "check-and-test"]
    steps = [step.id for step in delivery.steps]
    assert steps == ["require-tested-commit", "stage", "plan", "apply"]
    assert [list(step.wait_for) for step in delivery.steps[1:]] == [
        [before] for before in steps[:-1]
    ]
    scripts = "".join(arg for step in delivery.steps for arg in step.args)
    assert "make" not in scripts.split()


def test_delivery_installs_only_what_staging_imports(delivery: cloudbuild_v1.Build) -> None:
    script = script_of(delivery, "stage")
    assert "--require-hashes --requirement requirements/stage.txt" in script
    tree = ast.parse((ROOT / "infra" / "stage.py").read_text(encoding="utf-8"))
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    imported |= {
        str(node.module).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert imported - set(sys.stdlib_module_names) == {"grimp", "trainmaster"}
    bare = "import sys; sys.path[:0] = ['.', 'shared']; import trainmaster.packaging.agent_archive"
    # Needs no other package.
    subprocess.run([sys.executable, "-S", "-c", bare], cwd=ROOT, check=True, timeout=60)
    locked = re.findall(
        r"(?m)^([a-z-]+)==", (ROOT / "requirements" / "stage.txt").read_text(encoding="utf-8")
    )
    assert set(locked) <= {"grimp", "typing-extensions"}


def test_image_of_the_delivery_is_set_by_its_trigger(delivery: cloudbuild_v1.Build) -> None:
    assert {step.name for step in delivery.steps} == {"${_IMAGE}"}
    assert {value for name, value in delivery.substitutions.items() if name.endswith("_IMAGE")} == {
        ""
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a provider lock, and a gcloud that lists the triggers of successful builds of
    two commits.
    """
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / ".terraform.lock.hcl").touch()
    gcloud = tmp_path / "bin" / "gcloud"
    gcloud.parent.mkdir()
    listed = (
        '[[ "$*" == *"status=SUCCESS"*"COMMIT_SHA={}"*"value(buildTriggerId)" ]] && printf "{}"\n'
    )
    by_hand, tested = (
        listed.format("by-hand", r"\nother-1\n"),
        listed.format("tested", r"\nother-1\ntests-1\n"),
    )
    gcloud.write_text(f"#!/bin/bash\n{by_hand}{tested}exit 0\n")
    gcloud.chmod(0o755)
    return tmp_path


def check_commit(
    delivery: cloudbuild_v1.Build, checkout: Path, commit: str, image: str, trigger: str = "tests-1"
) -> tuple[int, str]:
    """Run the script of the first step; return its status and output."""
    environment = {"PATH": f"{checkout}/bin{os.pathsep}{os.environ['PATH']}", "PROJECT": "p"}
    done = subprocess.run(
        ["bash", "-euc", script_of(delivery, "require-tested-commit")],
        cwd=checkout,
        env={**environment, "COMMIT": commit, "IMAGE": image, "TRIGGER": trigger},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


def test_tested_commit_is_delivered(delivery: cloudbuild_v1.Build, checkout: Path) -> None:
    assert check_commit(delivery, checkout, "tested", f"a{DIGEST}") == (0, "")


@pytest.mark.parametrize(
    ("commit", "image", "trigger", "message"),
    [
        (
            "untested",
            f"a{DIGEST}",
            "tests-1",
            "Commit untested has no successful build of cloudbuild.yaml",
        ),
        (
            "by-hand",
            f"a{DIGEST}",
            "tests-1",
            "Commit by-hand has no successful build of cloudbuild.yaml by its trigger.",
        ),
        ("tested", f"a{DIGEST}", "tests", "Commit tested has no successful build"),
        (
            "tested",
            f"a{DIGEST}",
            "",
            "Set _TESTS_TRIGGER to the id of the trigger of cloudbuild.yaml",
        ),
        ("", f"a{DIGEST}", "tests-1", "There is no commit"),
        (
            "tested",
            "hashicorp/terraform:1.11",
            "tests-1",
            "Set the image hashicorp/terraform:1.11 by digest",
        ),
    ],
)
def test_untested_commit_or_movable_image_is_not_delivered(
    delivery: cloudbuild_v1.Build,
    checkout: Path,
    commit: str,
    image: str,
    trigger: str,
    message: str,
) -> None:
    status, output = check_commit(delivery, checkout, commit, image, trigger)
    assert status == 1
    assert output.startswith(message)


def test_commit_without_provider_lock_is_not_delivered(
    delivery: cloudbuild_v1.Build, checkout: Path
) -> None:
    (checkout / "infra" / ".terraform.lock.hcl").unlink()
    status, output = check_commit(delivery, checkout, "tested", f"a{DIGEST}")
    assert status == 1
    assert ".terraform.lock.hcl" in output
    assert "-lockfile=readonly" in script_of(delivery, "plan")


def test_substitutions_are_declared_and_reach_no_script(delivery: cloudbuild_v1.Build) -> None:
    """In a script, a substitution could contain commands. Environment variables cannot."""
    used = {
        name
        for step in delivery.steps
        for text in (step.name, *step.env)
        for name in re.findall(r"(?<!\$)\$\{(\w+)\}", text)
    }
    assert used - {"PROJECT_ID", "COMMIT_SHA", "BUILD_ID"} == set(delivery.substitutions)
    assert not [
        arg for step in delivery.steps for arg in step.args if re.search(r"(?<!\$)\$\{?\w", arg)
    ]


def test_make_targets_of_the_tests_exist(tests_build: cloudbuild_v1.Build) -> None:
    targets = set(re.findall(r"(?m)^\s*make ([a-z-]+)", script_of(tests_build, "check-and-test")))
    assert targets == {"check", "check-infra", "test"}
    for target in targets:
        done = subprocess.run(
            ["make", "--dry-run", target],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr


def test_each_resource_has_a_role_of_the_delivery_that_creates_it() -> None:
    readme = (ROOT / "infra/README.md").read_text(encoding="utf-8")
    section = readme.partition("### Roles of the delivery")[2].partition("\n## ")[0]
    named = [
        f"google_{kind}"
        for row in re.findall(r"(?m)^\| `roles/.*?\| (.*)", section)
        for kind in re.findall(r"`(\w+_\w+)`", row)
    ]
    files = [*(ROOT / "infra").glob("*.tf"), *(ROOT / "infra/modules").glob("*/*.tf")]
    created = {
        kind
        for file in files
        for kind in re.findall(r'(?m)^resource "(google_\w+)"', file.read_text(encoding="utf-8"))
    }
    assert sorted(named) == sorted(created), "once each"
