"""`trainmaster submit` with code on the user's disk, as a package or a folder: it is checked
before anything is uploaded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Installation
from tests.integration.cli.submit.local_package import make_package


def test_submit_without_job_file_uses_the_flags(installation: Installation, tmp_path: Path) -> None:
    result = installation.run(
        "submit",
        "digits_1",
        f"--package-path={make_package(tmp_path)}",
        "--module-name=trainer.task",
        "--region=us-central1",
        "--runtime-version=2.21",
        "--",
        "--epochs",
        "5",
    )
    assert result.exit_code == 0, result.output
    program = installation.store.recent_jobs(1)[0].plan.program
    assert program.args == ("--epochs", "5")
    (uri,) = program.package_uris
    assert uri.startswith("gs://the-bucket/packages/digits_1/")
    uri, _, version = uri.partition("#")
    content = installation.objects.read(uri, max_bytes=1 << 20)
    assert content
    assert version == f"sha256={hashlib.sha256(content).hexdigest()}"


def test_submit_of_a_folder_needs_neither_a_job_file_nor_setup_py(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_REGION", "europe-west4")
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "requirements.txt").write_text("pandas\n")
    command = ["submit", "--folder", str(tmp_path), "--runtime-version=2.21"]
    program = ("--", "python", "train.py", "--epochs", "3")
    checked = installation.run(*command, "--check", *program).output
    assert "ok   job file of " in checked
    assert "ok   folder: its files have what the command starts" in checked
    assert "requirements.txt fits the runtime 2.21" in checked
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    result = installation.run(*command, *program)
    assert result.exit_code == 0, result.output
    assert "requirements.txt: pandas\n" in result.stderr
    (job,) = installation.store.recent_jobs(9)
    assert job.job_id.startswith(f"{tmp_path.name.replace('-', '_')[:30]}")
    assert (job.plan.where.region, job.plan.program.args[:2]) == (
        "europe-west4",
        ("python", "train.py"),
    )
    named = installation.run(
        *command[:1], "digits_7", *command[1:], "--region=us-central1", "--", "python", "train.py"
    )
    assert named.exit_code == 0, named.output
    job = installation.store.recent_jobs(1)[0]
    assert (job.job_id, job.plan.where.region) == ("digits_7", "us-central1")
    assert len(installation.objects.created("gs://the-bucket/", 9)) == 1, (
        "the same files are uploaded once"
    )
    assert "a folder needs a command" in str(installation.run(*command).exception)


def test_folder_whose_program_must_fail_is_refused_by_check_and_by_submit(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import einops\n")
    (tmp_path / "requirements.txt").write_text("torch<2.6\n")
    command = ["submit", "a_1", f"--folder={tmp_path}", "--runtime-version=pytorch-2.13"]
    command += ["--region=us-central1"]
    program = ("--", "python", "trian.py")
    checked = installation.run(*command, "--check", *program)
    assert checked.exit_code == 1
    assert "FIX  trian.py is not among the files that the job gets" in checked.output
    assert "FIX  requirements.txt: torch<2.6 excludes torch 2.13" in checked.output
    assert checked.output.count("excludes torch") == 1
    refused = str(installation.run(*command, *program).exception)
    assert "trian.py is not among" in refused
    assert "torch<2.6 excludes" in refused
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    assert installation.store.recent_jobs(9) == ()
    (tmp_path / "requirements.txt").unlink()
    accepted = installation.run(*command, "--", "python", "train.py")
    assert accepted.exit_code == 0, accepted.output
    assert "warning: train.py:1 imports einops" in accepted.stderr
    used = installation.run(*command, "--check", "--", "python", "train.py")
    assert used.exit_code == 1
    assert "FIX  jobId: a job with this id already exists; a_1 is QUEUED" in used.output


@pytest.mark.parametrize("module", ["trainer.tsk", "trainer.task.py"])
def test_local_package_without_the_module_is_refused_before_its_upload(
    installation: Installation, tmp_path: Path, module: str
) -> None:
    command = ["submit", "a_1", f"--package-path={make_package(tmp_path)}"]
    command += ["--region=us-central1", "--runtime-version=2.21", f"--module-name={module}"]
    refused = installation.run(*command)
    assert "trainer.task" in str(refused.exception)
    assert module in str(refused.exception)
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    assert installation.run(*command, "--check").exit_code == 1


@pytest.mark.parametrize("has_setup", [False, True])
def test_local_package_that_is_not_valid_python_is_refused_before_its_upload(
    installation: Installation, tmp_path: Path, *, has_setup: bool
) -> None:
    package = make_package(tmp_path)
    (package / "task.py").write_text("for step in range(3)\n    pass\n")
    if has_setup:
        setup = "from setuptools import setup\nsetup(name='trainer', packages=['trainer'])\n"
        (tmp_path / "setup.py").write_text(setup)
    command = ["submit", "a_1", f"--package-path={package}", "--region=us-central1"]
    command += ["--runtime-version=2.21", "--module-name=trainer.task"]
    problem = "trainer/task.py:1 is not valid Python: expected ':'"
    assert problem in str(installation.run(*command).exception)
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    checked = installation.run(*command, "--check")
    assert f"FIX  {problem}: correct the line 'for step in range(3)'" in checked.output


def test_local_package_that_may_fail_is_submitted_with_a_warning(
    installation: Installation, tmp_path: Path
) -> None:
    package = make_package(tmp_path)
    (package / "task.py").write_text("import einops\n")
    command = ["submit", "a_1", f"--package-path={package}", "--region=us-central1"]
    done = installation.run(*command, "--runtime-version=2.21", "--module-name=trainer.task")
    assert "warning: trainer/task.py:1 imports einops" in done.output
    assert installation.store.load("a_1") is not None


@pytest.mark.parametrize("wheel", [False, True])
def test_check_builds_local_packages_and_uploads_nothing(
    installation: Installation, tmp_path: Path, *, wheel: bool
) -> None:
    package = f"--package-path={make_package(tmp_path)}"
    if wheel:
        (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"zip")
        package = f"--packages=gs://bkt/b-1.tar.gz,{tmp_path}/a-1-py3-none-any.whl"
    command = ["submit", "digits_1", package, "--module-name=trainer.task", "--region=us-central1"]
    result = installation.run(*command, "--runtime-version=2.21", "--check")
    assert "ok   job file of digits_1" in result.output
    assert "packageUris" not in result.output
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    broken = installation.run(*command[:2], f"--package-path={tmp_path}", *command[3:], "--check")
    assert "is not a Python package" in str(broken.exception)
