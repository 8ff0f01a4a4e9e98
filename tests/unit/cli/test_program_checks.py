"""`submit --check`: substitutions, modules that no package has, job directories with files, unknown
images.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.support.archives import sdist, wheel
from tests.support.jobs import a_plan, a_spec
from trainmaster.cli.doctor.file_checks import check_file
from trainmaster.cli.doctor.findings import Finding, Status
from trainmaster.cli.doctor.program_checks import check_programs, check_staged_programs
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Container, Program
from trainmaster_local.memory.objects import MemoryObjects

URI = "gs://bucket/trainer-0.1.tar.gz"


def a_program(module: str, *packages: str, job_dir: str | None = None) -> Plan:
    return a_plan(program=Program(packages or (f"{URI}#7",), module, (), job_dir))


def stored(content: bytes) -> MemoryObjects:
    objects = MemoryObjects()
    objects.write(URI, content, content_type="application/gzip")
    return objects


def of(findings: Sequence[Finding], status: Status) -> list[tuple[str, str]]:
    return [(finding.what, finding.fix) for finding in findings if finding.status is status]


FILES = (
    "setup.py",
    "trainer/__init__.py",
    "trainer/task.py",
    "trainer/deep/__main__.py",
    "trainer/fast.cpython-311.so",
)


@pytest.mark.parametrize("build", [sdist, wheel])
@pytest.mark.parametrize("module", ["trainer.task", "trainer.deep", "trainer.fast"])
def test_module_that_a_package_has_is_found(build: type, module: str) -> None:
    (finding,) = check_programs(a_program(module), stored(build(*FILES)))
    assert finding.status is Status.OK


def test_wrong_module_is_named_with_the_nearest_before_a_vm_is_paid() -> None:
    (finding,) = check_programs(a_program("trainer.tsak"), stored(sdist(*FILES)))
    assert of([finding], Status.FIX) == [
        (
            "no package of the job has the module trainer.tsak",
            "correct pythonModule, for example trainer.task",
        )
    ]


@pytest.mark.parametrize("build", [sdist, wheel])
def test_name_of_a_file_in_place_of_a_module_is_a_problem(build: type) -> None:
    (finding,) = check_programs(a_program("trainer.task.py"), stored(build(*FILES)))
    assert of([finding], Status.FIX) == [
        (
            "trainer.task.py is the name of a file, and no module",
            "correct pythonModule: trainer.task",
        )
    ]


@pytest.mark.parametrize(
    "files", [("trainer/task.py",), ("trainer/__init__.py", "trainer/task.py", "trainer/fast.pyx")]
)
def test_module_that_a_build_or_another_package_may_add_is_a_warning(files: Sequence[str]) -> None:
    (finding,) = check_programs(a_program("trainer.fast"), stored(sdist(*files)))
    assert finding.status is Status.LIMIT


def test_option_and_value_in_one_argument_are_a_warning() -> None:
    args = ("--epochs 3", "--name=two words", "a b", "--lr", "0.1", "-n 2")
    plan = a_plan(program=Program((), "", args, None))
    findings = list(check_programs(plan, MemoryObjects()))
    assert [what.partition(" is one")[0] for what, _ in of(findings, Status.LIMIT)] == [
        "'--epochs 3'",
        "'-n 2'",
    ]


@pytest.mark.parametrize("module", ["torch.distributed.run", "task"])
def test_module_of_a_dependency_is_not_judged(module: str) -> None:
    assert (
        list(
            check_programs(a_program(module), stored(sdist("trainer/__init__.py", "trainer/x.py")))
        )
        == []
    )


@pytest.mark.parametrize(
    "content", [b"", b"no archive", sdist(*FILES)[:40]], ids=["empty", "text", "cut off"]
)
def test_unreadable_archive_is_not_judged(content: bytes) -> None:
    assert list(check_programs(a_program("trainer.task"), stored(content))) == []


@pytest.mark.parametrize("form", ["gz", "bz2", "xz", "zip"])
def test_no_damage_of_an_archive_is_mistaken_for_a_missing_module_or_raises(form: str) -> None:
    """The archive has the module. Other files before and after it make damage to it rare."""
    rng = random.Random(form)  # noqa: S311 - damage, no secret
    files = [*(f"trainer/module_{number}.py" for number in range(200)), *FILES]
    content = wheel(*files) if form == "zip" else sdist(*files, form=form)
    (whole,) = check_programs(a_program("trainer.task"), stored(content))
    assert whole.status is Status.OK
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 8)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert all(
            finding.status is not Status.FIX
            for finding in check_programs(a_program("trainer.task"), stored(bytes(damaged)))
        )


def test_packages_that_are_not_uploaded_yet_are_read_where_they_are_staged() -> None:
    plan, staged = a_program("trainer.task"), stored(sdist(*FILES))
    findings = list(check_staged_programs(plan, staged))
    assert of(findings, Status.OK) == [("module trainer.task: a package of the job has it", "")]
    assert list(check_programs(plan, MemoryObjects(), staged)) == [], "it is told once"


def test_missing_package_says_that_the_module_was_not_looked_up() -> None:
    (finding,) = check_programs(a_program("trainer.task"), MemoryObjects())
    assert finding.what.startswith(
        "module trainer.task: not checked, because gs://bucket/trainer-0.1.tar.gz"
    )


def test_image_outside_of_googles_registries_was_not_looked_up() -> None:
    container = Container("pytorch/pytorch:no-such-tag")
    (finding,) = check_programs(
        a_plan(program=Program((), "", (), None, container)), MemoryObjects()
    )
    assert finding.what.startswith("image pytorch/pytorch:no-such-tag: not checked, because")


def test_job_directory_with_files_of_another_job_is_named() -> None:
    objects = stored(sdist(*FILES))
    objects.write("gs://bucket/jobs/accel/checkpoint-2.pt", b"x", content_type="")
    plan = a_program("trainer.task", job_dir="gs://bucket/jobs/accel")
    ((what, fix),) = of(list(check_programs(plan, objects)), Status.LIMIT)
    assert what.startswith(
        "gs://bucket/jobs/accel already has files: jobs/accel/checkpoint-2.pt was written at 20"
    )
    assert "continues" in fix
    assert (
        of(
            list(check_programs(a_program("trainer.task", job_dir="gs://bucket/new"), objects)),
            Status.LIMIT,
        )
        == []
    )


def test_what_no_longer_exists_is_named_with_what_the_job_gets() -> None:
    findings = check_file(
        {"jobId": "digits_1", **a_spec(runtimeVersion="1.15", pythonVersion="3.7")}
    )
    assert [what.partition(":")[0] for what, _ in of(findings, Status.LIMIT)] == [
        "trainingInput.runtimeVersion",
        "trainingInput.pythonVersion",
        "trainingInput.runtimeVersion",
    ]
