"""What is packed of a folder that strangers may have made, and where secrets may lie."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from trainmaster.client import package_staging
from trainmaster.packaging.folder_origin import folder_origin
from trainmaster.wiring.folders import (
    IGNORE_FILE,
    MODULE,
    folder_wheel,
    list_folder_files,
    read_requirements,
)

SECRET_FILES = [
    ".env",
    ".env.local",
    "conf/.netrc",
    "key.pem",
    "terraform.tfstate",
    ".ssh/id",
    "my-service-account.json",
    "deep/.aws/credentials",
    "prod.env",
    "KEY.PEM",
    "my-project-0123456789ab.json",
    "key.json",
    ".boto",
    ".s3cfg",
    ".dockercfg",
    ".terraformrc",
    ".vault-token",
    "kaggle.json",
    "conf/secrets.yaml",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a program. Beside it is a file that must not leave the machine."""
    (tmp_path / "id_of_user").write_text("PRIVATE")
    folder = tmp_path / "repository"
    _write(folder / "train.py", "print(1)")
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def packed(folder: Path) -> dict[str, bytes]:
    start = f"{MODULE}/files/"
    with zipfile.ZipFile(io.BytesIO(folder_wheel(folder))) as archive:
        names = [name for name in archive.namelist() if name.startswith(start)]
        return {name.removeprefix(start): archive.read(name) for name in names}


@pytest.mark.parametrize("target", ["../id_of_user", "/proc/self/environ"])
def test_link_that_leads_out_is_left_out_with_its_reason(folder: Path, target: str) -> None:
    (folder / "notes.txt").symlink_to(target)
    (folder / "inside.py").symlink_to("train.py")
    assert packed(folder) == {"train.py": b"print(1)", "inside.py": b"print(1)"}
    assert list_folder_files(folder).describe() == (
        "2 files, 0.0 KiB; left out: notes.txt (leads out of the folder)"
    )


def test_link_to_a_folder_is_left_out_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "x.txt").write_text("x")
    (folder / "data").symlink_to("real")
    (folder / "real" / "loop").symlink_to("..")
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / ".venv").symlink_to(tmp_path)
    found = list_folder_files(folder)
    assert set(found.files) == {"real/x.txt"}
    assert found.left_out == {
        "data": "is a link to a folder",
        "real/loop": "is a link to a folder",
        "elsewhere": "leads out of the folder",
    }


def test_link_through_a_folder_and_a_link_to_a_link_lead_out_too(folder: Path) -> None:
    (folder / "up").symlink_to("..")
    (folder / "first").symlink_to("second")
    (folder / "second").symlink_to("up/id_of_user")
    assert packed(folder) == {"train.py": b"print(1)"}
    assert set(list_folder_files(folder).left_out) == {"first", "second", "up"}


def test_ignore_file_cannot_ask_for_a_link_that_leads_out(folder: Path) -> None:
    (folder / "notes.txt").symlink_to("../id_of_user")
    (folder / IGNORE_FILE).write_text("!notes.txt\n!*\n")
    assert "notes.txt" not in packed(folder)


@pytest.mark.parametrize("target", ["../id_of_user", "x" * 300])
def test_requirements_that_lead_out_or_nowhere_are_not_read(folder: Path, target: str) -> None:
    (folder / "requirements.txt").symlink_to(target)
    assert read_requirements(folder) == []


def test_link_to_a_name_that_no_file_can_have_is_no_file(folder: Path) -> None:
    (folder / "notes.txt").symlink_to("x" * 300)
    (folder / "loop").symlink_to("loop")
    assert packed(folder) == {"train.py": b"print(1)"}


def test_package_leaves_out_modules_that_lead_out(folder: Path, tmp_path: Path) -> None:
    _write(folder / "trainer" / "__init__.py", "")
    (folder / "trainer" / "util.py").symlink_to("../../id_of_user")
    (wheel,) = package_staging.build(folder / "trainer", tmp_path / "out")
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.startswith("trainer/")] == [
            "trainer/__init__.py"
        ]


@pytest.mark.parametrize("name", SECRET_FILES)
def test_secret_stays_unless_the_ignore_file_asks_for_it(folder: Path, name: str) -> None:
    _write(folder / name, "SECRET")
    assert packed(folder) == {"train.py": b"print(1)"}
    assert list_folder_files(folder).left_out == {name: "may contain secrets"}
    (folder / IGNORE_FILE).write_text(f"!{Path(name).name}\n")
    assert packed(folder)[name] == b"SECRET"


def test_secrets_that_the_ignore_file_asks_for_are_named(folder: Path) -> None:
    """The ignore file may have come with a repository of strangers."""
    _write(folder / ".env", "SECRET")
    _write(folder / "key.json", "SECRET")
    (folder / IGNORE_FILE).write_text("!*\nnone\n")
    assert list_folder_files(folder).describe() == (
        "4 files, 0.0 KiB, with .env, key.json, which may contain secrets"
    )


def test_link_to_a_secret_of_the_folder_is_left_out(folder: Path) -> None:
    _write(folder / ".env", "SECRET")
    (folder / "notes.txt").symlink_to(".env")
    assert packed(folder) == {"train.py": b"print(1)"}


def test_files_that_git_ignores_stay_unless_the_ignore_file_asks_for_them(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".gitignore").write_text("private/\n*.secret\n")
    _write(folder / "private" / "data.txt", "SECRET")
    _write(folder / "a.secret", "SECRET")
    _write(folder / "vocabulary.secret", "words")
    (folder / IGNORE_FILE).write_text("!vocabulary.secret\n")
    assert set(packed(folder)) == {".gitignore", IGNORE_FILE, "train.py", "vocabulary.secret"}
    assert list_folder_files(folder).left_out == {
        "a.secret": "git ignores it",
        "private/data.txt": "git ignores it",
    }


def test_folder_that_git_ignores_as_a_whole_is_packed(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder.parent)], check=True)
    (folder.parent / ".gitignore").write_text("repository/\n")
    assert set(packed(folder)) == {"train.py"}


def test_repository_that_lacks_objects_fetches_none(folder: Path, tmp_path: Path) -> None:
    """git would fetch them with a program that the repository's configuration names."""
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    config = {
        "core.repositoryformatversion": "1",
        "core.sshCommand": f"touch {tmp_path}/executed; false",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": "ssh://host.invalid/repository",
    }
    for name, value in config.items():
        subprocess.run([*git, "config", name, value], check=True)
    for path in (folder / ".git" / "objects").glob("??/*"):
        path.unlink()
    assert packed(folder)
    assert folder_origin(folder)["folder"] == "repository"
    assert not (tmp_path / "executed").exists()


def test_tracked_file_that_became_a_pipe_is_a_change_and_is_not_read(folder: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    _write(folder / "data.txt", "1")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    (folder / "data.txt").unlink()
    os.mkfifo(folder / "data.txt")
    assert packed(folder) == {"train.py": b"print(1)"}
    assert folder_origin(folder)["changed"]


def test_configuration_of_a_repository_runs_no_program(folder: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    monitor.chmod(0o755)
    config = ["git", "-C", str(folder), "config", "core.fsmonitor", str(monitor)]
    subprocess.run(config, check=True)
    assert packed(folder)
    assert not (tmp_path / "executed").exists()
