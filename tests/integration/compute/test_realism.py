"""The behaviours of `--realistic`: durations, quotas of calls, late failures, and late entries of
the audit log.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.integration.compute.emulator import PROJECT, an_instance, running_emulator
from tests.integration.compute.emulator import ZONE as EMULATOR_ZONE
from trainmaster_emulators.compute.__main__ import parse_arguments
from trainmaster_emulators.compute.cloud import Cloud
from trainmaster_emulators.machines.catalog import Catalog, Links
from trainmaster_emulators.machines.compute_errors import ApiError
from trainmaster_emulators.machines.operations import Operation
from trainmaster_emulators.machines.vm_metadata import Project
from trainmaster_emulators.machines.vm_power import VmPower
from trainmaster_emulators.machines.vm_tokens import TokenIssuer
from trainmaster_emulators.machines.vm_transitions import Timing
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.realism.profile import GOOGLE_CLOUD, CallQuota, Profile, Span

FAST = replace(
    GOOGLE_CLOUD,
    create=Span(low_s=0.3, high_s=0.4),
    delete=Span(low_s=0.2, high_s=0.3),
    late_failures=0.0,
    list_lag=Span(low_s=0, high_s=0),
)
ZONE = "us-central1-a"
BODY = {
    "name": "tm-a",
    "machineType": f"zones/{ZONE}/machineTypes/n1-standard-1",
    "disks": [
        {
            "boot": True,
            "initializeParams": {"sourceImage": "projects/p/global/images/family/python"},
        }
    ],
    "networkInterfaces": [{}],
    "metadata": {"items": [{"key": "startup-script", "value": "sleep 60"}]},
}


def cloud_like(profile: Profile, folder: Path) -> Cloud:
    project = Project("my-project", 123456789012)
    for name in ("vms", "serial"):
        (folder / name).mkdir()
    links = Links("http://127.0.0.1/compute/v1", project.id)
    power = VmPower(project, "127.0.0.1", TokenIssuer(), vm_environment={})
    timing = Timing(step_s=0.0, create=profile.create, delete=profile.delete)
    cloud = Cloud(project, Catalog(links, images={}), power, folder, timing)
    cloud.behave_like(profile)
    return cloud


def ended(cloud: Cloud, operation: Operation) -> tuple[Operation, float]:
    """Wait for the operation; return it and how long that took."""
    start = time.monotonic()
    done = cloud.operations.wait(ZONE, operation.name)
    return done, time.monotonic() - start


def test_new_vm_is_missing_in_lists_for_some_time_but_can_be_read(tmp_path: Path) -> None:
    cloud = cloud_like(
        replace(FAST, list_lag=Span(low_s=0.5, high_s=0.5), create=Span(low_s=2, high_s=2)),
        tmp_path,
    )
    cloud.insert(ZONE, BODY, None)
    assert cloud.instances.get(ZONE, "tm-a").name == "tm-a"
    assert cloud.instances.list_visible() == []
    time.sleep(0.6)
    assert [vm.name for vm in cloud.instances.list_visible()] == ["tm-a"]


def test_span_draws_differ_and_stay_within_its_scaled_bounds() -> None:
    span = Span(low_s=20, high_s=60).scaled(0.1)
    random = Random(1)  # noqa: S311 - durations, not secrets
    drawn = [span.draw(random) for _ in range(50)]
    assert 2 <= min(drawn) < 2.5
    assert 5.5 < max(drawn) <= 6


def test_insert_that_fails_late_takes_the_whole_time_and_names_another_zone(tmp_path: Path) -> None:
    cloud = cloud_like(replace(FAST, late_failures=1.0), tmp_path)
    operation, took_s = ended(cloud, cloud.insert(ZONE, BODY, None))
    (error,) = operation.errors
    assert error.code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert f"zonesAvailable': '{ZONE}" not in str(error.details)
    assert took_s >= FAST.create.low_s - 0.05
    assert cloud.instances.list_all() == []


def test_deletion_takes_its_time_after_power_off(tmp_path: Path) -> None:
    """The creation fails late, so that the VM has no process: its power is off."""
    cloud = cloud_like(replace(FAST, late_failures=1.0), tmp_path)
    operation = cloud.insert(ZONE, BODY, None)
    instance = cloud.instances.get(ZONE, "tm-a")
    cloud.operations.wait(ZONE, operation.name)
    start = time.monotonic()
    with instance.transition_lock:
        cloud.lifecycle.vms.delete(instance)
    assert time.monotonic() - start >= FAST.delete.low_s


def test_calls_beyond_the_quota_of_a_minute_are_refused_until_the_next_one() -> None:
    now = [59.0]
    quota = CallQuota(per_minute=2, minute_s=60.0, clock=lambda: now[0])
    assert [quota.admits("read") for _ in range(3)] == [True, True, False]
    assert quota.admits("change"), "each group has its own quota"
    now[0] = 60.0
    assert quota.admits("read")


def test_api_answers_403_when_its_quota_is_used_up(tmp_path: Path) -> None:
    cloud = cloud_like(replace(FAST, calls_per_minute=1, minute_s=1e9), tmp_path)
    cloud.admit_call("GET")
    cloud.admit_call("POST")
    with pytest.raises(ApiError) as error:
        cloud.admit_call("GET")
    assert (error.value.code, error.value.status) == (403, "rateLimitExceeded")


def test_profile_scales_durations_but_neither_quota_nor_failures() -> None:
    scaled = GOOGLE_CLOUD.scaled(0.1)
    assert (scaled.create, scaled.delete) == (Span(low_s=2, high_s=6), Span(low_s=3, high_s=9))
    assert scaled.minute_s == pytest.approx(6)
    assert (scaled.calls_per_minute, scaled.late_failures) == (
        GOOGLE_CLOUD.calls_per_minute,
        GOOGLE_CLOUD.late_failures,
    )


def test_stack_is_realistic_only_on_request(tmp_path: Path) -> None:
    assert not StackConfig().realistic
    required = ["--port", "1", "--state-dir", str(tmp_path), "--project", "my-project"]
    assert not parse_arguments(required).realistic
    options = parse_arguments([*required, "--realistic", "--time-scale", "0.1"])
    assert (options.realistic, options.time_scale) == (True, 0.1)


def test_vm_is_created_and_deleted_as_slowly_as_on_google_cloud(tmp_path: Path) -> None:
    factor = 0.03
    with running_emulator(tmp_path, "--realistic", "--time-scale", str(factor)) as emulator:
        start = time.monotonic()
        operation = emulator.instances.insert_unary(
            project=PROJECT,
            zone=EMULATOR_ZONE,
            instance_resource=an_instance("tm-a", "trap exit TERM; sleep 60 & wait"),
        )
        failed_late = bool(emulator.done(operation).error.errors)
        created_s = time.monotonic() - start
        assert created_s >= GOOGLE_CLOUD.create.low_s * factor
        if failed_late:  # as one creation of some does, by chance
            return
        start = time.monotonic()
        emulator.done(
            emulator.instances.delete_unary(project=PROJECT, zone=EMULATOR_ZONE, instance="tm-a")
        )
        assert time.monotonic() - start >= GOOGLE_CLOUD.delete.low_s * factor
