"""The program of a job is judged by its packages when the job is accepted."""

from __future__ import annotations

import json

import pytest

from tests.support.archives import sdist, sdist_of, wheel, wheel_of
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.model.origin import Substitution
from trainmaster.errors import RejectedError, TemporaryError
from trainmaster.flows import upload
from trainmaster.flows.job_creation.resource_checks import (
    FINDING_MAX,
    FINDINGS_MAX,
    PACKAGE_BYTES_MAX,
)
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


SETUP = b"from setuptools import setup\nsetup(name='trainer', install_requires=['einops'])\n"
BROKEN = {"trainer/__init__.py": b"", "trainer/task.py": b"import os\nprint 'step'\n"}
BROKEN_LINE = "trainer/task.py:2 is not valid Python: Missing parentheses in call to 'print'."


@pytest.mark.parametrize("build", [sdist_of, wheel_of])
def test_program_that_is_not_valid_python_is_refused_before_a_vm_is_paid(
    world: World, objects: CountingObjects, build: type
) -> None:
    put(objects, build(BROKEN))
    with pytest.raises(RejectedError):
        submit(world, "trainer.task")
    (problem,) = problems(world)
    assert problem.startswith(
        f"Field: training_input.python_module Error: is trainer.task, but {BROKEN_LINE}"
    )
    assert world.store.load("digits_1") is None


def test_broken_program_is_written_next_to_an_uploaded_file(
    world: World, objects: CountingObjects
) -> None:
    put(objects, sdist_of(BROKEN))
    document = {"jobId": "digits_1", **a_spec(pythonModule="trainer.task")}
    generation = objects.write(
        "gs://b/jobs/digits.yaml", json.dumps(document).encode(), content_type="text/plain"
    )
    uploaded = UploadedObject("b", "jobs/digits.yaml", generation, world.now)
    assert upload.handle(uploaded, objects, world.deps) is None
    report = objects.read("gs://b/jobs/digits.yaml.error.json", max_bytes=9999)
    assert report is not None
    (problem,) = json.loads(report)["problems"]
    assert problem["field"] == "trainingInput.pythonModule"
    assert BROKEN_LINE in problem["problem"]
    assert problem["example"] == "correct the line \"print 'step'\""


def test_import_that_nothing_brings_is_noted(world: World, objects: CountingObjects) -> None:
    files = {"trainer/task.py": b"import einops, wandb\n", "setup.py": SETUP}
    put(objects, sdist_of(files))
    submit(world, "trainer.task")
    (note,) = notes(world)
    assert note.reason == (
        "trainer/task.py:1 imports wandb, which neither the runtime 2.21 nor the package's"
        " requirements names: add wandb to the package's requirements, unless another package"
        " brings it"
    )


def test_many_findings_and_long_names_are_cut_short(world: World, objects: CountingObjects) -> None:
    imports = "\n".join(f"import {'m' * 5_000}{number}" for number in range(9))
    put(objects, sdist_of({"trainer/task.py": imports.encode(), "setup.py": SETUP}))
    submit(world, "trainer.task")
    assert len(notes(world)) == FINDINGS_MAX
    assert all(len(note.reason) <= FINDING_MAX + 1 for note in notes(world))


def test_sources_beyond_the_limit_are_not_judged(world: World, objects: CountingObjects) -> None:
    broken = b"print 'step'\n#" + b"x" * 200_000 + b"\n"
    files = {f"trainer/part{number}.py": broken for number in range(6)}
    imports = b"".join(b"import trainer.part%d\n" % number for number in range(6))
    put(objects, sdist_of({"trainer/task.py": imports, **files}))
    with pytest.raises(RejectedError):
        submit(world, "trainer.task")
    (problem,) = problems(world)
    assert problem.count("is not valid Python") == FINDINGS_MAX
