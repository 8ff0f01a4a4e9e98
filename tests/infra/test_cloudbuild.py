"""cloudbuild.yaml through the real message type, and its steps against the verbs that it says they are."""

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
    found: dict[str, Any] = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def build(document: dict[str, Any]) -> cloudbuild_v1.Build:
    """Unknown fields and wrong types are errors."""
    message = cloudbuild_v1.Build()
    json_format.ParseDict(document, cloudbuild_v1.Build.pb(message), ignore_unknown_fields=False)
    return message


def test_it_checks_tests_stages_plans_and_applies_in_this_order(build: cloudbuild_v1.Build) -> None:
    steps = [step.id for step in build.steps]
    assert steps == ["check-and-test", "stage", "plan", "apply"]
    assert [list(step.wait_for) for step in build.steps[1:]] == [[before] for before in steps[:-1]]


def test_nothing_is_applied_unless_somebody_says_so(build: cloudbuild_v1.Build) -> None:
    assert build.substitutions["_APPLY"] == "no"
    (apply,) = [step for step in build.steps if step.id == "apply"]
    assert 'if [ "${_APPLY}" = yes ]' in apply.args[-1]
    assert "terraform apply -input=false /workspace/plan" in apply.args[-1]


def test_every_substitution_is_declared_or_cloud_builds_own(build: cloudbuild_v1.Build) -> None:
    named = {name for step in build.steps for arg in step.args for name in re.findall(r"\$\{(\w+)\}", arg)}
    assert named <= {*build.substitutions, "PROJECT_ID"}
    assert {name for name in build.substitutions if name not in named} == set()


def test_every_make_verb_exists(build: cloudbuild_v1.Build) -> None:
    said = [
        arg for step in build.steps for arg in ([f"make {step.args[0]}"] if step.entrypoint == "make" else step.args)
    ]
    verbs = {verb for text in said for verb in re.findall(r"(?m)^\s*make ([a-z-]+)", text)}
    assert verbs == {"check", "check-infra", "test", "stage"}
    for verb in verbs:
        done = subprocess.run(
            ["make", "--dry-run", verb], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
