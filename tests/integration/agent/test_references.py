"""`$(NAME)` in jobs of Vertex AI."""

from __future__ import annotations

import json

import pytest

from shared.agent.control.vm_config import Gang
from shared.agent.program.variable_references import expanded, resolved

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import Vm, gang

KNOWN = {"A": "1", "PATH_TO": "gs://b/model/", "EMPTY": "", "DEEP": "$(A)"}


@pytest.mark.parametrize(
    ("text", "stands_for"),
    [
        ("--model-dir=$(PATH_TO)", "--model-dir=gs://b/model/"),
        ("$(A)$(A)-$(EMPTY)-", "11--"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("cost: 5$$", "cost: 5$"),
        ("$A ${A} $5 $", "$A ${A} $5 $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$(DEEP)", "$(A)"),  # once: what a value holds is no reference
        ("$(A )", "$(A )"),
    ],
)
def test_a_text_with_references(text: str, stands_for: str) -> None:
    assert expanded(text, KNOWN) == stands_for


def parsed(**changes: object) -> Gang:
    return Gang.parse(json.dumps(gang(**changes)))


def test_a_value_refers_to_those_before_it_and_to_the_platforms_which_come_first() -> None:
    variables = {"LATER": "$(SECOND)", "FIRST": "$(A)x", "SECOND": "$(FIRST)y", "A": "mine", "THIRD": "$(A)"}
    found = resolved(parsed(expands=True, variables=variables), {"A": "1"}).variables
    assert found == {"LATER": "$(SECOND)", "FIRST": "1x", "SECOND": "1xy", "A": "mine", "THIRD": "1"}


def test_a_secret_is_never_referred_to() -> None:
    one = parsed(expands=True, secrets={"KEY": "key"}, variables={"URL": "x-$(KEY)"}, args=["$(KEY)", "$(URL)"])
    found = resolved(one, {})
    assert (found.variables, found.args) == ({"URL": "x-$(KEY)"}, ["$(KEY)", "x-$(KEY)"])


def test_other_jobs_are_left_as_they_are() -> None:
    one = parsed(variables={"B": "$(A)"}, args=["$(A)", "$$"])
    assert resolved(one, {"A": "1"}) is one


def test_a_container_gets_the_values_in_command_arguments_and_environment(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("import os, sys; print('SAW', *sys.argv[1:], os.environ['OUT'])")
    vm.gang(
        expands=True,
        container={"image": IMAGE, "command": ["train-$(RANK)", "$(NONE)"]},
        python_module="",
        args=["--out=$(OUT)", "$$(OUT)"],
        variables={"OUT": "$(CLOUD_ML_JOB_ID)/out"},
    )
    cloud.direct(1, 1)
    vm.boot()
    assert vm.wait_for_line("SAW") == "SAW train-2 $(NONE) --out=digits_1/out $(OUT) digits_1/out"
    vm.wait_for_line(f"[trainmaster] Running image {IMAGE} train-2 '$(NONE)' --out=digits_1/out '$(OUT)'")


def test_a_module_gets_them_too(cloud: Cloud, vm: Vm) -> None:
    vm.program("import os, sys; print('SAW', *sys.argv[1:], os.environ['OUT'])")
    vm.gang(expands=True, args=["--model-dir=$(OUT)"], variables={"OUT": "$(MASTER_ADDR)"})
    cloud.direct(1, 1)
    vm.boot()
    assert vm.wait_for_line("SAW") == "SAW --model-dir=h0 h0"
