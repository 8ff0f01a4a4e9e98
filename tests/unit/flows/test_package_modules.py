"""The module of a job is looked up in its packages when the job is accepted."""

from __future__ import annotations

import json

import pytest

from tests.support.archives import sdist, wheel
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.model.origin import Substitution
from trainmaster.errors import RejectedError, TemporaryError
from trainmaster.flows import upload
from trainmaster.flows.job_creation.resource_checks import PACKAGE_BYTES_MAX
from trainmaster_local.memory.objects import MemoryObjects

TRAINER = "gs://bucket/trainer-0.1.tar.gz"
HELPER = "gs://bucket/helper-0.1.tar.gz"
FILES = ("trainer/__init__.py", "trainer/task.py")
REFUSED = (
    "Field: training_input.python_module Error: is trainer.tsak, but no package of the job has the"
    " module trainer.tsak"
)


class CountingObjects(MemoryObjects):
    """Objects that count the reads of packages, and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.error: Exception | None = None

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return super().read(uri, generation=generation, max_bytes=max_bytes)


@pytest.fixture
def objects() -> CountingObjects:
    return CountingObjects()


@pytest.fixture
def world(objects: CountingObjects) -> World:
    return World(objects=objects)


def put(objects: MemoryObjects, content: bytes, uri: str = TRAINER) -> int:
    return objects.write(uri, content, content_type="application/gzip")


def submit(world: World, module: str, *packages: str) -> None:
    world.submit(a_spec(packageUris=list(packages or (TRAINER,)), pythonModule=module))


def problems(world: World) -> list[str]:
    return [problem for rejection in world.store.rejections() for problem in rejection.problems]


def notes(world: World) -> list[Substitution]:
    return [note for note in world.job.plan.origin.substitutions if "pythonModule" in note.field]


@pytest.mark.parametrize("build", [sdist, wheel])
def test_module_that_the_package_has_is_accepted_with_one_read(
    world: World, objects: CountingObjects, build: type
) -> None:
    put(objects, build(*FILES))
    submit(world, "trainer.task")
    assert notes(world) == []
    assert objects.reads == 1


def test_wrong_module_is_refused_before_a_vm_is_paid(
    world: World, objects: CountingObjects
) -> None:
    put(objects, sdist(*FILES))
    with pytest.raises(RejectedError):
        submit(world, "trainer.tsak")
    assert problems(world) == [REFUSED]
    assert world.store.load("digits_1") is None


def test_wrong_module_is_written_next_to_an_uploaded_file(
    world: World, objects: CountingObjects
) -> None:
    put(objects, sdist(*FILES))
    document = {"jobId": "digits_1", **a_spec(pythonModule="trainer.tsak")}
    generation = objects.write(
        "gs://b/jobs/digits.yaml", json.dumps(document).encode(), content_type="text/plain"
    )
    uploaded = UploadedObject("b", "jobs/digits.yaml", generation, world.now)
    assert upload.handle(uploaded, objects, world.deps) is None
    report = objects.read("gs://b/jobs/digits.yaml.error.json", max_bytes=9999)
    assert report is not None
    (problem,) = json.loads(report)["problems"]
    assert problem["field"] == "trainingInput.pythonModule"
    assert problem["example"] == "correct pythonModule, for example trainer.task"


def test_module_that_another_package_of_the_job_has_is_accepted(
    world: World, objects: CountingObjects
) -> None:
    put(objects, sdist("trainer/__init__.py"))
    put(objects, wheel("trainer/task.py"), HELPER)
    submit(world, "trainer.task", TRAINER, HELPER)
    assert notes(world) == []


def test_module_that_a_build_may_add_is_noted(world: World, objects: CountingObjects) -> None:
    put(objects, sdist("trainer/task.py"))
    submit(world, "trainer.fast")
    assert notes(world) == [
        Substitution(
            "trainingInput.pythonModule",
            "trainer.fast",
            "trainer.fast",
            "no package of the job has the module trainer.fast: correct pythonModule, for example"
            " trainer.task",
        )
    ]


@pytest.mark.parametrize(
    "content",
    [b"no archive", b"", sdist(*FILES)[:40], bytes(PACKAGE_BYTES_MAX + 1)],
    ids=["text", "empty", "cut off", "large"],
)
def test_package_that_cannot_be_judged_is_accepted(
    world: World, objects: CountingObjects, content: bytes
) -> None:
    put(objects, content)
    submit(world, "trainer.tsak")
    assert notes(world) == []


def test_failed_read_refuses_nothing(world: World, objects: CountingObjects) -> None:
    put(objects, sdist(*FILES))
    objects.error = TemporaryError("503")
    submit(world, "trainer.tsak")
    assert notes(world) == []


def test_package_of_a_named_version_is_not_read(world: World, objects: CountingObjects) -> None:
    generation = put(objects, sdist(*FILES))
    submit(world, "trainer.tsak", f"{TRAINER}#{generation}")
    assert objects.reads == 0


def test_repeated_submission_gets_its_job_whatever_the_package_is_now(
    world: World, objects: CountingObjects
) -> None:
    put(objects, sdist(*FILES))
    submit(world, "trainer.task")
    first = world.job
    put(objects, sdist("trainer/__init__.py", "trainer/other.py"))
    submit(world, "trainer.task")
    assert world.job == first
    assert problems(world) == []
