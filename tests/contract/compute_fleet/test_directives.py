"""Directives: metadata and label, and who else may have changed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from google.cloud import compute_v1

from tests.contract.fleets import RUN, EmulatorWorld, a_create, a_fleet, metadata, only_vm
from tests.integration.compute.emulator import PROJECT, Emulator
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.ports import Fleet


def test_writing_a_directive_keeps_the_other_metadata(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, workers=1), {**metadata(), "other": "kept"})
    vm = only_vm(compute.fleet, job)
    hold = Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
    assert compute.fleet.write_directive(vm, hold)
    assert compute.metadata(vm) == {**metadata(hold), "other": "kept"}


def test_directive_whose_label_is_missing_gets_it_from_the_next_call(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    hold = Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
    with monkeypatch.context() as patch:
        patch.setattr(compute.fleet._directives, "_write_labels", lambda *_: False)
        assert not compute.fleet.write_directive(only_vm(compute.fleet, job), hold)
    vm = only_vm(compute.fleet, job)
    assert vm.directive == RUN, "the label is behind"
    assert compute.metadata(vm) == metadata(hold)
    assert compute.fleet.write_directive(vm, hold)
    assert only_vm(compute.fleet, job) == replace(vm, directive=hold), (
        "the metadata was not written again"
    )


def test_directive_that_is_behind_the_metadata_is_not_written(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery with a newer state has written the metadata, and not yet the label."""
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    newer = Directive(attempt=1, incarnation=3, action=DirectiveAction.RUN)
    with monkeypatch.context() as patch:
        patch.setattr(compute.fleet._directives, "_write_labels", lambda *_: False)
        compute.fleet.write_directive(only_vm(compute.fleet, job), newer)
    vm = only_vm(compute.fleet, job)
    assert not compute.fleet.write_directive(
        vm, Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
    )
    assert compute.metadata(vm) == metadata(newer)


def test_directive_is_not_written_over_metadata_that_changes_meanwhile(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(compute.fleet, job)
    other = a_fleet(compute.emulator)
    later = Directive(attempt=1, incarnation=3, action=DirectiveAction.RUN)
    after_reading(compute.fleet, lambda: other.write_directive(vm, later), monkeypatch)
    assert not compute.fleet.write_directive(
        vm, Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
    )
    assert compute.metadata(vm) == metadata(later)
    assert only_vm(compute.fleet, job).directive == later


def test_label_is_not_written_over_labels_that_change_meanwhile(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(compute.fleet, job)
    after_reading(
        compute.fleet, lambda: add_label(compute.emulator, vm, "owner", "somebody"), monkeypatch
    )
    hold = Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
    assert not compute.fleet.write_directive(vm, hold)
    assert compute.emulator.get(vm.name).labels["owner"] == "somebody"
    assert compute.fleet.write_directive(only_vm(compute.fleet, job), hold)
    assert compute.emulator.get(vm.name).labels["owner"] == "somebody"


def after_reading(
    fleet: Fleet, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change the VM right after the fleet has read it for the first time, as another
    client may do.
    """
    instances: Any = fleet._instances  # type: ignore[attr-defined]
    get = instances.get

    def get_then_change(*args: object, **options: object) -> object:
        found = get(*args, **options)
        monkeypatch.setattr(instances, "get", get)
        change()
        return found

    monkeypatch.setattr(instances, "get", get_then_change)


def add_label(emulator: Emulator, vm: Vm, key: str, value: str) -> None:
    instance = emulator.get(vm.name)
    request = compute_v1.InstancesSetLabelsRequest(
        label_fingerprint=instance.label_fingerprint, labels={**instance.labels, key: value}
    )
    operation = emulator.instances.set_labels_unary(
        project=PROJECT,
        zone=vm.zone,
        instance=vm.name,
        instances_set_labels_request_resource=request,
    )
    assert not emulator.done(operation).error.errors
