"""Folders that jobs run commands in: what is packed, what is refused, and what a VM does with the
wheel.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from trainmaster.core.model.package_uri import without_generation
from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import accept
from trainmaster.packaging.archives import wheel_name
from trainmaster.packaging.folder_origin import folder_origin
from trainmaster.wiring import folders
from trainmaster.wiring.folders import MODULE, folder_wheel, read_requirements, with_folder
from trainmaster_local.memory.objects import MemoryObjects

JOB: dict[str, Any] = {
    "jobId": "digits_1",
    "trainingInput": {"region": "us-central1", "runtimeVersion": "2.21"},
}
COMMAND = ("python", "train.py", "--epochs", "3")
PACKED = ("a b,c.txt", "pkg/__init__.py", "pkg/mod.py", "run.sh", "train.py", "übung.txt")


def make_folder(place: Path) -> Path:
    """Return a folder with a program of two modules, and with much that no job needs."""
    folder = place / "my-project"
    ignored = (
        ".git/config",
        ".venv/bin/python",
        "node_modules/a.js",
        "pkg/__pycache__/mod.pyc",
        "data/x.csv",
        "a.log",
    )
    for name in (*PACKED, *ignored, "pkg/data/y.csv", "out/big.bin"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (folder / "pkg/mod.py").write_text(
        "import sys\nif __name__ == '__main__': sys.exit(f'mod {sys.argv[1:]}')"
    )
    (folder / "train.py").write_text(
        "import sys, pkg.mod\nprint('trained', sys.argv[1:], open('run.sh').read()[:6])"
    )
    (folder / "run.sh").write_text('#!/bin/sh\necho "sh $1"; exit 7\n')
    (folder / "run.sh").chmod(0o755)
    (folder / ".trainmasterignore").write_text("# not needed\ndata/\n*.log\n/out\n")
    (folder / "link.py").symlink_to("train.py")
    (folder / "broken.py").symlink_to("nowhere.py")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of packages in which the real pip has installed the wheel, as on a VM."""
    tmp_path = tmp_path_factory.mktemp("site")
    (tmp_path / wheel_name(MODULE)).write_bytes(folder_wheel(make_folder(tmp_path)))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run(
        [*pip, "--target", str(tmp_path / "site"), str(tmp_path / wheel_name(MODULE))], check=True
    )
    return tmp_path / "site"


def test_wheel_has_the_files_that_are_not_ignored_and_the_same_bytes(folder: Path) -> None:
    (folder / "requirements.txt").write_text("pandas==2.3")
    content = folder_wheel(folder)
    (folder / "a.log").write_text("more")
    assert folder_wheel(folder) == content
    with zipfile.ZipFile(BytesIO(content)) as wheel:
        head = f"{MODULE}/files/"
        packed = {name.removeprefix(head) for name in wheel.namelist() if name.startswith(head)}
        metadata = wheel.read(
            next(name for name in wheel.namelist() if name.endswith("METADATA"))
        ).decode()
    assert packed == {*PACKED, "link.py", ".trainmasterignore", "requirements.txt"}
    assert "Requires-Dist: pandas==2.3\n" in metadata


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        pytest.param(COMMAND, 0, "trained ['--epochs', '3'] #!/bin", id="python"),
        pytest.param(("train.py", "a b"), 0, "trained ['a b'] #!/bin", id="script"),
        pytest.param(("python3", "-m", "pkg.mod", "x"), 1, "mod ['x']", id="module"),
        pytest.param(("run.sh", "$HOME;"), 7, "sh $HOME;", id="shell"),
        pytest.param(("./run.sh", "x"), 7, "sh x", id="executable"),
        pytest.param(
            ("missing", "x"),
            127,
            "missing cannot be started: No such file or directory",
            id="missing",
        ),
    ],
)
def test_vm_runs_the_command_in_a_copy_and_ends_as_it_ends(
    site: Path, tmp_path: Path, command: tuple[str, ...], status: int, output: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for _ in range(2):  # a restart finds what the program has written
        (run / "checkpoint").write_text("7")
        ended = subprocess.run(
            [sys.executable, "-m", MODULE, *command],
            cwd=run,
            env={"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, (ended.stdout + ended.stderr).strip()) == (status, output)
    assert (run / "checkpoint").read_text() == "7"


def test_folder_is_uploaded_once_and_runs_beside_other_packages(folder: Path) -> None:
    objects = MemoryObjects()
    (folder / "requirements.txt").write_text(
        "# for the data\npandas==2.3  # pinned\n\nscikit-learn[alldeps]>=1,<2\n"
    )
    job = {
        **JOB,
        "training_input": {**JOB["trainingInput"], "package_uris": "gs://bkt/own-1.tar.gz"},
    }
    del job["trainingInput"]
    first = with_folder(job, folder, "the-bucket", objects, COMMAND)
    assert first == with_folder(job, folder, "gs://the-bucket/", objects, COMMAND)
    assert read_requirements(folder) == ["pandas==2.3", "scikit-learn[alldeps]>=1,<2"]
    (stored,) = objects.created("gs://the-bucket/", 9)
    assert stored.name.startswith("packages/folders/")
    plan = accept(first, default_job_id=None).plan
    own, packed = plan.program.package_uris
    assert own == "gs://bkt/own-1.tar.gz"
    assert packed.startswith(f"gs://the-bucket/{stored.name}#")
    assert (plan.program.python_module, plan.program.args) == (MODULE, COMMAND)
    (folder / "train.py").write_text("changed")
    assert with_folder(job, folder, "the-bucket", objects, COMMAND) != first


def test_job_names_the_content_of_its_folder_whatever_is_stored_under_its_name(
    folder: Path,
) -> None:
    objects = MemoryObjects()

    def package() -> str:
        job = with_folder(dict(JOB), folder, "the-bucket", objects, COMMAND)
        return str(job["trainingInput"]["packageUris"][-1])

    first = package()
    assert first.endswith(f"#sha256={hashlib.sha256(folder_wheel(folder)).hexdigest()}")
    objects.write(without_generation(first), b"of a stranger", content_type="application/zip")
    assert package() == first, "the agent refuses what the stranger stored"


def test_command_may_stand_in_the_job_file(folder: Path) -> None:
    job = {**JOB, "trainingInput": {**JOB["trainingInput"], "args": list(COMMAND)}}
    run = with_folder(job, folder, "the-bucket", MemoryObjects())
    assert run["trainingInput"]["args"] == list(COMMAND)


@pytest.mark.parametrize(
    ("training", "bucket", "problem"),
    [
        pytest.param({}, "the-bucket", "a folder needs a command", id="command"),
        pytest.param(
            {"args": ["a"], "pythonModule": "task"},
            "the-bucket",
            r"trainingInput\.pythonModule: the command",
            id="module",
        ),
        pytest.param(
            {"args": ["a"], "python_module": "task"},
            "the-bucket",
            r"trainingInput\.pythonModule: the command",
            id="snake-case",
        ),
        pytest.param({"args": ["a"]}, "", "no bucket to upload the folder to", id="bucket"),
    ],
)
def test_job_that_cannot_have_a_folder_is_refused(
    folder: Path, training: dict[str, object], bucket: str, problem: str
) -> None:
    objects = MemoryObjects()
    with pytest.raises(PermanentError, match=problem):
        with_folder({"jobId": "a", "trainingInput": training}, folder, bucket, objects)
    with pytest.raises(PermanentError, match=r"works with AI Platform's format only.*custom job"):
        with_folder({"jobSpec": {"workerPoolSpecs": []}}, folder, "the-bucket", objects, COMMAND)
    assert objects.created("gs://the-bucket/", 9) == ()


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("-r other.txt", r"write the lines of other\.txt in its place"),
        ("--index-url https://a/simple", "must be a package, such as"),
        ("./own", "must be a package, such as"),
        ("git+https://a/b", "write NAME @ before the address"),
        ("a==1 --hash=sha256:00", "leave out its hashes"),
        ("a==1 \\", "leave out its hashes"),
        ("https://a/b.whl", "must be a package, such as"),
    ],
)
def test_requirement_that_is_no_package_is_named_with_its_line(
    folder: Path, line: str, remedy: str
) -> None:
    (folder / "requirements.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(PermanentError, match=rf"requirements\.txt:2: .*{remedy}"):
        read_requirements(folder)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("numpy @ file:///croot/numpy-1.26.4.whl#sha256=abc", "names a file of this machine"),
        ("mylib @ ../mylib", "names a file of this machine"),
        ("mylib[a] @ /opt/mylib", "names a file of this machine"),
        ("numpy=1.26.4=py311h_0", "is a line of conda, .* write numpy==1.26.4"),
        ("numpy = 1.26", "is a line of conda, .* write numpy==1.26"),
    ],
)
def test_requirement_of_another_machine_or_tool_is_named_with_its_line(
    folder: Path, line: str, words: str
) -> None:
    (folder / "requirements.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(PermanentError, match=rf"requirements\.txt:2: .*{words}"):
        read_requirements(folder)


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a.b-c_d==1.*",
        "a @ https://a/b.whl",
        "a @ git+https://a/b",
        "a===1",
        "a ~=1 ; python_version < '3.12'",
        "a[b,c]",
    ],
)
def test_requirement_of_a_package_is_accepted(folder: Path, line: str) -> None:
    (folder / "requirements.txt").write_text(f"{line}\n")
    assert read_requirements(folder) == [line]


def test_folder_that_is_too_large_names_its_largest_entries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "BYTES_MAX", 1 << 20)
    (folder / "weights.bin").write_bytes(bytes(1 << 20))
    (folder / "pkg" / "vocabulary.txt").write_bytes(bytes(1 << 19))
    with pytest.raises(PermanentError, match=r"1 MiB: weights\.bin \(1\.0 MiB\), pkg \(0\.5 MiB\)"):
        folder_wheel(folder)


def test_file_whose_name_is_no_text_is_named(folder: Path) -> None:
    Path(os.fsdecode(bytes(folder) + b"/\xff.txt")).touch()
    with pytest.raises(
        PermanentError, match=r"cannot be packed: .*\.trainmasterignore can leave it out"
    ):
        folder_wheel(folder)


def test_folder_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").touch()
    with pytest.raises(PermanentError, match="has no file that a job could use"):
        folder_wheel(tmp_path)


def test_job_names_its_folder_and_the_commit_of_a_repository(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    assert folder_origin(folder) == {"folder": "digits"}

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    assert folder_origin(folder) == {"folder": "digits"}, "there is no commit"
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")
    assert folder_origin(folder) == {"folder": "digits", "commit": commit}
    changed = {"folder": "digits", "commit": commit, "changed": True}
    (folder / "new.py").write_text("")
    assert folder_origin(folder) == changed
    (folder / "new.py").unlink()
    (folder / "train.py").write_text("print(22)")
    assert folder_origin(folder) == changed
    git("add", ".")
    assert folder_origin(folder) == changed
    run = with_folder(dict(JOB), folder, "the-bucket", MemoryObjects(), COMMAND)
    assert run["trainmaster"]["packedFrom"] == changed


def test_origin_of_a_folder_runs_no_program_of_its_repository(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    ran = tmp_path / "ran"
    script = tmp_path / "attack.sh"
    script.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    script.chmod(0o755)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    (folder / "train.py").write_text("print(1)")
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "first"], cwd=folder, check=True)
    (folder / ".gitattributes").write_text("*.py filter=attack\n")
    for name in ("core.fsmonitor", "filter.attack.clean", "filter.attack.process"):
        subprocess.run(["git", "config", name, str(script)], cwd=folder, check=True)
    (folder / "train.py").write_text("print(2)")
    assert folder_origin(folder)["changed"]
    assert not ran.exists()
