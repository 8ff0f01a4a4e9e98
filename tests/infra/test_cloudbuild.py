"""cloudbuild.yaml: its fields exist in Cloud Build's message type, and its steps call existing make targets."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml
from google.cloud.devtools import cloudbuild_v1
from google.protobuf import json_format

from emulators.stack.state import ROOT


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def build(document: dict[str, Any]) -> cloudbuild_v1.Build:
    """Parse the document. Unknown fields and wrong types are errors."""
    message = cloudbuild_v1.Build()
    json_format.ParseDict(document, cloudbuild_v1.Build.pb(message), ignore_unknown_fields=False)
    return message


def test_steps_check_stage_plan_and_apply_one_after_the_other(build: cloudbuild_v1.Build) -> None:
    steps = [step.id for step in build.steps]
    assert steps == ["check-and-test", "stage", "plan", "apply"]
    assert [list(step.wait_for) for step in build.steps[1:]] == [[before] for before in steps[:-1]]


def test_plan_is_not_applied_by_default(build: cloudbuild_v1.Build) -> None:
    assert build.substitutions["_APPLY"] == "no"
    (apply,) = [step for step in build.steps if step.id == "apply"]
    assert 'if [ "${_APPLY}" = yes ]' in apply.args[-1]
    assert "terraform apply -input=false /workspace/plan" in apply.args[-1]


def test_substitutions_are_declared_and_used(build: cloudbuild_v1.Build) -> None:
    used = {name for step in build.steps for arg in step.args for name in re.findall(r"\$\{(\w+)\}", arg)}
    assert used <= {*build.substitutions, "PROJECT_ID"}
    assert {name for name in build.substitutions if name not in used} == set()


def test_make_targets_of_the_steps_exist(build: cloudbuild_v1.Build) -> None:
    scripts = [
        arg for step in build.steps for arg in ([f"make {step.args[0]}"] if step.entrypoint == "make" else step.args)
    ]
    targets = {target for script in scripts for target in re.findall(r"(?m)^\s*make ([a-z-]+)", script)}
    assert targets == {"check", "check-infra", "test", "stage"}
    for target in targets:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
