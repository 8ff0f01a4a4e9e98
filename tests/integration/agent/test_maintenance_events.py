"""Reporting maintenance and preemption of the VM."""

from __future__ import annotations

import pytest

from .support.cloud import Cloud
from .support.vm import Vm

BLOCKS = "import signal; print('START'); signal.pause()"


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [
        ("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", "maintenance"),
        ("instance/preempted", "TRUE", "preemption"),
    ],
)
def test_maintenance_is_reported_at_once_and_only_once(
    cloud: Cloud, vm: Vm, path: str, value: str, cause: str
) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=1, incarnation=2)
    vm.boot()
    cloud.wait_for_message("vm-ready")
    cloud.set(path, value)
    message = cloud.wait_for_message("maintenance")
    assert (message.body["cause"], message.subject, message.body["vm"]["instance_id"]) == (
        cause,
        (1, 2),
        "4711",
    )
    assert message.attributes["identity"].startswith(
        "token-for:trainmaster/p/digits_1/1/worker/1/2"
    )

    cloud.set_and_wait(path, "NONE")
    cloud.set_and_wait(path, value)
    cloud.direct(attempt=1, incarnation=3)
    cloud.wait_for_message("vm-ready", (1, 3))
    assert [topic for topic, _ in cloud.published()] == ["vm-ready", "maintenance", "vm-ready"]


def test_maintenance_is_reported_when_pubsub_is_back(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("vm-ready")
    with cloud.publishing_fails():
        cloud.set("instance/preempted", "TRUE")
        cloud.wait_for_refusal("maintenance")
    assert cloud.wait_for_message("maintenance").body["cause"] == "preemption"


def test_maintenance_is_not_reported_again_after_a_reboot(cloud: Cloud, vm: Vm) -> None:
    vm.program("import os, signal; print('AGENT', os.getppid()); signal.pause()")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("vm-ready")
    cloud.set("instance/preempted", "TRUE")
    vm.wait_for_line("[trainmaster] The preemption is reported.")
    vm.power_off()
    vm.boot()
    cloud.wait_for_message("replica-exit")
    cloud.direct(attempt=1, incarnation=2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert [topic for topic, _ in cloud.published()].count("maintenance") == 1


def test_live_migration_is_not_reported(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("vm-ready")
    cloud.set("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    vm.wait_for_line("[trainmaster] Maintenance event: MIGRATE_ON_HOST_MAINTENANCE.")
    assert not vm.lines("[trainmaster] The maintenance")
    assert [topic for topic, _ in cloud.published()] == ["vm-ready"]


def test_missing_metadata_entry_is_polled_again(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.set("instance/preempted", None)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("vm-ready")
    cloud.set("instance/preempted", "TRUE")
    cloud.wait_for_message("maintenance")


def test_maintenance_is_reported_after_the_first_directive(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    vm.boot()
    vm.wait_for_line("[trainmaster] This VM is about to stop: maintenance.")
    assert cloud.published() == []
    cloud.direct(attempt=3, incarnation=1)
    assert cloud.wait_for_message("maintenance").subject == (3, 1)
