"""`submit --check` asks the API, which sees what the user's computer does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.api.client import OWNER, PROJECT, TOKENS, UNPRIVILEGED, an_app
from tests.integration.api.served import serving
from tests.support.archives import sdist_of
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.cli.doctor.api_answer import check_by_api
from trainmaster.cli.doctor.findings import Finding, Status, limit
from trainmaster_local.memory.access import MemoryAccess
from trainmaster_local.memory.objects import MemoryObjects

URI = "gs://bucket/trainer-0.1.tar.gz"
JOB = {"jobId": "digits_1", **a_spec(packageUris=[URI], pythonModule="trainer.task")}
SETUP = b"from setuptools import setup\nsetup(name='trainer', packages=['trainer'])\n"


@pytest.fixture
def world() -> World:
    return World(objects=MemoryObjects())


@pytest.fixture(autouse=True)
def api(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "token").write_text(OWNER)
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("TRAINMASTER_PROJECT", PROJECT)
    with serving(an_app(world, MemoryAccess(TOKENS), monkeypatch)) as endpoint:
        monkeypatch.setenv("TRAINMASTER_API_ENDPOINT", endpoint)
        yield


def put(world: World, source: str) -> None:
    assert isinstance(world.objects, MemoryObjects)
    files = {"trainer/__init__.py": b"", "trainer/task.py": source.encode(), "setup.py": SETUP}
    world.objects.write(URI, sdist_of(files), content_type="application/gzip")


def answer(*local_findings: Finding) -> list[tuple[Status, str]]:
    """Return what the API adds to the findings of the user's computer."""
    return [(finding.status, finding.what) for finding in check_by_api(JOB, local_findings)]


def test_job_that_the_api_would_create_is_ok_and_not_created(world: World) -> None:
    put(world, "import os\n")
    ((status, what),) = answer()
    assert (status, what) == (
        Status.OK,
        "the installation's own answer: the API would create the job",
    )
    assert world.store.load("digits_1") is None


def test_refusal_of_the_api_is_a_problem(world: World) -> None:
    put(world, "import os\nprint 'step'\n")
    ((status, what),) = answer()
    assert status is Status.FIX
    assert what.startswith("the API: Field: trainingInput.pythonModule Error: is trainer.task")
    assert "trainer/task.py:2 is not valid Python" in what


@pytest.mark.parametrize(
    ("local", "count"),
    [
        ("trainer/task.py:1 imports einops, which neither the runtime 2.21 nor the package's", 1),
        ("trainer/task.py:9 imports wandb", 2),
    ],
)
def test_note_of_the_api_is_reported_once(world: World, local: str, count: int) -> None:
    put(world, "import einops, wandb\n")
    found = answer(limit(local, ""))
    assert [status for status, _ in found] == [Status.LIMIT] * count
    assert found[-1][1].startswith("the API: trainingInput.pythonModule: trainer.task (")


def test_error_of_the_call_is_no_problem_of_the_job(world: World, tmp_path: Path) -> None:
    put(world, "import os\n")
    (tmp_path / "token").write_text(UNPRIVILEGED)
    ((status, what),) = answer()
    assert status is Status.NOT_CHECKED
    assert "aiplatform.customJobs.create" in what


def test_api_whose_address_is_not_known_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_API_ENDPOINT")
    assert answer() == []
