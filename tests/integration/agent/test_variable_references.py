"""`$(NAME)` in jobs of Vertex AI."""

from __future__ import annotations

import json

import pytest

from trainmaster.agent.model.vm_config import VmConfig
from trainmaster.agent.program.variable_references import expand, resolve_references

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import Vm, vm_config

KNOWN = {"A": "1", "PATH_TO": "gs://b/model/", "EMPTY": "", "DEEP": "$(A)"}


@pytest.mark.parametrize(
    ("text", "expected"),
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
        ("$(DEEP)", "$(A)"),  # expanded once: references in a value stay
        ("$(A )", "$(A )"),
    ],
)
def test_references_in_a_text_are_expanded(text: str, expected: str) -> None:
    assert expand(text, KNOWN) == expected


def parsed(**changes: object) -> VmConfig:
    return VmConfig.parse(json.dumps(vm_config(**changes)))


def test_value_refers_to_earlier_variables_and_platform_variables_take_precedence() -> None:
    variables = {
        "LATER": "$(SECOND)",
        "FIRST": "$(A)x",
        "SECOND": "$(FIRST)y",
        "A": "mine",
        "THIRD": "$(A)",
    }
    resolved = resolve_references(parsed(expands=True, variables=variables), {"A": "1"}).variables
    assert resolved == {
        "LATER": "$(SECOND)",
        "FIRST": "1x",
        "SECOND": "1xy",
        "A": "mine",
        "THIRD": "1",
    }


def test_secret_cannot_be_referenced() -> None:
    one = parsed(
        expands=True,
        secrets={"KEY": "key"},
        variables={"URL": "x-$(KEY)"},
        args=["$(KEY)", "$(URL)"],
    )
    resolved = resolve_references(one, {})
    assert (resolved.variables, resolved.args) == ({"URL": "x-$(KEY)"}, ["$(KEY)", "x-$(KEY)"])


def test_config_without_expansion_is_unchanged() -> None:
    one = parsed(variables={"B": "$(A)"}, args=["$(A)", "$$"])
    assert resolve_references(one, {"A": "1"}) is one


def test_container_gets_expanded_command_arguments_and_variables(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push("import os, sys; print('SAW', *sys.argv[1:], os.environ['OUT'])")
    vm.configure(
        expands=True,
        container={"image": IMAGE, "command": ["train-$(RANK)", "$(NONE)"]},
        python_module="",
        args=["--out=$(OUT)", "$$(OUT)"],
        variables={"OUT": "$(CLOUD_ML_JOB_ID)/out"},
    )
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert vm.wait_for_line("SAW") == "SAW train-2 $(NONE) --out=digits_1/out $(OUT) digits_1/out"
    vm.wait_for_line(
        f"[trainmaster] Running image {IMAGE} train-2 '$(NONE)' --out=digits_1/out '$(OUT)'"
    )


def test_module_gets_expanded_arguments_and_variables(cloud: Cloud, vm: Vm) -> None:
    vm.program("import os, sys; print('SAW', *sys.argv[1:], os.environ['OUT'])")
    vm.configure(expands=True, args=["--model-dir=$(OUT)"], variables={"OUT": "$(MASTER_ADDR)"})
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert vm.wait_for_line("SAW") == "SAW --model-dir=h0 h0"
