"""Names of several installations in one project."""

from __future__ import annotations

import itertools
import re

import pytest
from pydantic import ValidationError

from tests.support.jobs import CHIEF
from trainmaster.core.model.installation import INSTALLATION_VARIABLE, checked, name_in_installation
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import VM_NAME, job_hash_in, replica_id_from_vm_name, vm_name
from trainmaster.settings import Settings
from trainmaster_emulators.checkout import ROOT

VARIABLES = ROOT / "infra" / "variables.tf"
LONGEST = "a1234567890"
"""A name of eleven characters, the most that a name may have."""
NAMES = ("", "aa", "aab", "1a", "staging", "staging2", LONGEST)
WRONG = ("a", "my-team", "Staging", "team_a", "é" * 3, " ab", "ab\n", LONGEST + "1")


def test_installation_without_a_name_has_names_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv(INSTALLATION_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(INSTALLATION_VARIABLE, value)
        for name in ("trainmaster-upload", "trainmaster", "tm-", "(default)", "-nightly"):
            assert name_in_installation(name) == name
        assert vm_name("digits_1", CHIEF).startswith("tm-digits-1-")


def test_installation_with_a_name_has_it_in_all_its_names() -> None:
    names = ["trainmaster-vm-ready", "trainmaster", "tm-", "(default)", "-nightly"]
    expected = ["tmstaging-vm-ready", "tmstaging", "tmstaging-", "tmstaging", "tmstaging-nightly"]
    assert [name_in_installation(name, "staging") for name in names] == expected


def test_no_name_of_an_installation_is_the_beginning_of_one_of_another() -> None:
    """Conditions and filters compare beginnings: with the hyphen, except of the networks, buckets
    and the database.
    """
    for one, other in itertools.permutations(NAMES, 2):
        for name in ("tm-", "trainmaster-"):
            assert not name_in_installation("tm-x", other).startswith(
                name_in_installation(name, one)
            )
            assert not name_in_installation("trainmaster-x", other).startswith(
                name_in_installation(name, one)
            )


@pytest.mark.parametrize("name", NAMES)
def test_vms_have_legal_names_that_no_other_installation_takes_for_its_own(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The longest name of a replica, and below that of a job.
    replica_id = ReplicaId(TaskType.EVALUATOR, 99_999)
    vms = {}
    for installation in NAMES:
        monkeypatch.setenv(INSTALLATION_VARIABLE, checked(installation))
        vms[installation] = vm_name("D" * 128, replica_id)
    assert len(set(vms.values())) == len(NAMES)
    monkeypatch.setenv(INSTALLATION_VARIABLE, name)
    for installation, vm in vms.items():
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", vm), vm
        assert VM_NAME.fullmatch(vm)
        assert (job_hash_in(vm) is not None) == (installation == name)
        if installation == name:
            assert replica_id_from_vm_name(vm) == replica_id
        else:
            with pytest.raises(ValueError, match="another installation"):
                replica_id_from_vm_name(vm)


@pytest.mark.parametrize("name", [*NAMES, *WRONG])
def test_settings_and_variables_of_terraform_have_one_rule_and_one_message(name: str) -> None:
    rule = re.search(
        r'regex\("\^([^"]+)\$", var\.installation\)\)\s+error_message = "([^"]+)"',
        VARIABLES.read_text("utf-8"),
    )
    assert rule
    pattern, message = rule.groups()
    accepted = re.fullmatch(pattern, name) is not None
    assert accepted == (name in NAMES)
    if accepted:
        assert Settings(project="my-project", installation=name).installation == name
        return
    with pytest.raises(ValidationError, match=re.escape(message)):
        Settings(project="my-project", installation=name)
