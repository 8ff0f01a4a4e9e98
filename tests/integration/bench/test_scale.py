"""The simulation of a large installation: every job ends, and the quotas of Compute Engine delay jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from bench.scale.run import run
from bench.scale.scenario import Scenario


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_every_job_runs_and_each_vm_costs_one_change_and_its_insert() -> None:
    usage = run(Scenario(jobs=5, replicas=4))
    assert len(usage.running_s) == 5
    assert usage.total("invocations of vm_ready") == usage.total("invocations of replica_exit") == 20
    assert usage.total("Compute changes") == 5 * (2 + 4), "one insert per role, one deletion per VM"
    assert usage.refused == 0
    assert max(usage.running_s) < 80
    assert max(usage.deleted_s) < 60


def test_small_quota_delays_deletions_and_every_vm_is_still_deleted() -> None:
    usage = run(Scenario(jobs=5, replicas=4, changes_per_minute=1))
    assert usage.peak_per_minute("Compute changes") == 1
    assert usage.total("Compute changes") == 30
    assert len(usage.deleted_s) == 20
    assert max(usage.deleted_s) > 300
    assert usage.refused > 0


def test_limit_of_filtered_lists_delays_jobs_and_every_job_still_ends() -> None:
    usage = run(Scenario(jobs=10, replicas=4, excluded_free=8, excluded_per_minute=30))
    assert usage.refused_lists > 0
    assert usage.peak_per_minute("VMs excluded by filters") <= 30
    assert len(usage.deleted_s) == 40


def test_each_region_has_limits_of_its_own() -> None:
    one = run(Scenario(jobs=5, replicas=4, changes_per_minute=1))
    five = run(Scenario(jobs=5, replicas=4, regions=5, changes_per_minute=1))
    assert five.peak_per_minute("Compute changes") > 1
    assert five.total("Compute changes") == one.total("Compute changes")
    assert max(five.deleted_s) < max(one.deleted_s) / 2
    usage = run(Scenario(jobs=10, replicas=4, regions=5, excluded_free=8, excluded_per_minute=30))
    assert usage.refused_lists == 0
    assert usage.total("VMs excluded by filters") == 0, "each region has the VMs of two jobs"


def test_same_seed_gives_the_same_usage() -> None:
    assert run(Scenario(jobs=3, replicas=3)).counts == run(Scenario(jobs=3, replicas=3)).counts
