"""The folder of a program's temporary files is removed before the next start: its files, and none
of what the program has mounted there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup import machine_state
from trainmaster.agent.workspace import Workspace

from .support.vm import agent_identity


@pytest.fixture(params=[False, True], ids=["folder", "behind a link"])
def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> Launcher:
    """Return a launcher of programs whose folder is below `tmp_path/tmp`, which may be a link."""
    temporary = tmp_path / "tmp"
    if request.param:
        (tmp_path / "disk").mkdir()
        temporary.symlink_to(tmp_path / "disk")
    else:
        temporary.mkdir()
    workspace = Workspace(tmp_path, environ={"TMPDIR": str(temporary)}, console=Console())
    return Launcher(agent_identity(), workspace, lambda: None, metric=None, gcs=None)  # type: ignore[arg-type]


@pytest.fixture
def mounted(launcher: Launcher, tmp_path: Path) -> Iterator[Path]:
    """Mount a folder, as gcsfuse mounts a bucket, and yield a file of it."""
    bucket, point = tmp_path / "bucket", launcher._temporary_folder / "größe"
    bucket.mkdir()
    (bucket / "precious").write_text("")
    point.mkdir(parents=True)
    mount = subprocess.run(["mount", "--bind", bucket, point], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("mounting needs root")
    yield bucket / "precious"
    subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def test_folder_is_removed_and_the_files_of_a_mount_stay(launcher: Launcher, mounted: Path) -> None:
    (launcher._temporary_folder / "left").write_text("")
    launcher.await_end()
    assert mounted.exists()
    assert not launcher._temporary_folder.exists()


def test_folder_stays_if_a_mount_cannot_be_detached(
    launcher: Launcher, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_state, "unmount_all", lambda _: None)
    launcher.await_end()
    assert mounted.exists()
