"""Packages of jobs that are created through the API: pinned, and refused by their field."""

from __future__ import annotations

import pytest

from tests.integration.api.client import JOBS, Api
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.wiring import core_services, intake_deps
from trainmaster_local.memory.objects import MemoryObjects

TRAINER = "gs://bucket/trainer-0.1.tar.gz"


@pytest.fixture
def world() -> World:
    return World(objects=MemoryObjects())


def test_created_job_is_pinned_and_shown_as_it_was_submitted(api: Api, world: World) -> None:
    assert world.objects is not None
    generation = world.objects.write(TRAINER, b"code", content_type="application/gzip")
    assert api.create()["trainingInput"]["packageUris"] == [TRAINER]
    assert world.job.plan.program.package_uris == (f"{TRAINER}#{generation}",)


def test_missing_package_is_an_invalid_argument_by_its_field(api: Api, world: World) -> None:
    error = api.send_refused("POST", JOBS, {"jobId": "digits_1", **a_spec()})
    assert error["status"] == "INVALID_ARGUMENT"
    assert f"names {TRAINER}, which does not exist" in str(error)
    assert world.store.load("digits_1") is None


def test_functions_that_accept_jobs_look_up_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the port, packages would not be pinned, and nothing else would fail."""
    monkeypatch.setattr(core_services, "creation_deps", lambda: World().deps)
    assert intake_deps.intake_deps().objects is not None
