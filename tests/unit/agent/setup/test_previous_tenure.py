"""What a VM's last job has left, such as files and processes, is removed before the next job of
the VM. What cannot be removed is a finding: a text that names it, and for which the VM is replaced.

`test_machine_state` has units, schedules, System V IPC and mounts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.agent.program import machine_processes
from trainmaster.agent.setup import machine_state, previous_tenure
from trainmaster.agent.setup.previous_tenure import (
    OWN_ROOT,
    clean,
    describe_memory,
    remember_first_files,
    temporary_folders,
)
from trainmaster.agent.workspace import EMULATED_VM, Workspace


def no_containers() -> int:
    """Remove the containers of the last job, of which there are none. Return their number."""
    return 0


def test_working_folders_and_new_temporary_files_are_removed(workspace: Workspace) -> None:
    temporary = Path(workspace.environ["TMPDIR"])
    (temporary / "of-the-machine").write_text("")
    remember_first_files(workspace)
    (temporary / "left.txt").write_text("")
    (temporary / "left" / "deep").mkdir(parents=True)
    for name in ("run", "packages", "metric", "layers"):
        (workspace.work / name).mkdir()
    (workspace.work / "agent.pyz").write_text("")
    (workspace.work / "state").write_text("")
    cache = Path(workspace.environ["HOME"]) / ".cache"
    cache.mkdir()
    assert clean(workspace, no_containers) == ""
    assert [entry.name for entry in temporary.iterdir()] == ["of-the-machine"]
    kept = {"agent.pyz", "state", "layers", previous_tenure.FIRST_FILES}
    assert {entry.name for entry in workspace.work.iterdir()} == kept
    assert cache.exists()


def test_containers_are_removed_and_counted(
    workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    remember_first_files(workspace)
    assert clean(workspace, lambda: 3) == ""
    assert "and 3 containers that the last job has left" in capfd.readouterr().out


def test_process_that_cannot_be_ended_is_a_finding(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits for a device may take no signal."""
    remember_first_files(workspace)
    monkeypatch.setattr(previous_tenure, "machine_processes", lambda _: [4711, 4712])
    monkeypatch.setattr(previous_tenure, "kill_all", lambda _: 0)
    assert clean(workspace, no_containers) == "2 processes of the last job cannot be ended"


def test_first_files_are_those_of_the_first_job_also_after_a_restart(workspace: Workspace) -> None:
    remember_first_files(workspace)
    (Path(workspace.environ["TMPDIR"]) / "left.txt").write_text("")
    remember_first_files(workspace)
    clean(workspace, no_containers)
    assert not list(Path(workspace.environ["TMPDIR"]).iterdir())


@pytest.mark.parametrize("stored", [None, "", '{"/tmp": [', "[]", '{"/tmp": 1}'])
def test_files_stay_and_are_a_finding_if_it_is_not_known_which_are_the_machines(
    workspace: Workspace, stored: str | None
) -> None:
    """The disk may have been full, or a program has damaged the record."""
    if stored is not None:
        (workspace.work / previous_tenure.FIRST_FILES).write_text(stored)
    file = Path(workspace.environ["TMPDIR"]) / "x"
    file.write_text("")
    assert clean(workspace, no_containers) == "it is not known what the VM had before its first job"
    assert file.exists()


def test_record_of_the_machine_is_whole_or_missing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that ends in the middle of the record must not leave a part of it."""

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        remember_first_files(workspace)
    assert not (workspace.work / previous_tenure.FIRST_FILES).exists()


def test_local_vm_without_folders_of_its_own_cleans_none(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "disk" / "home"), EMULATED_VM: "x"}
    assert temporary_folders(environ) == []
    assert temporary_folders({**environ, "TMPDIR": "/tmp/of-the-developer"}) == []
    assert Path("/tmp") in temporary_folders({**environ, OWN_ROOT: "own"})
    assert Path("/var/tmp") in temporary_folders({"HOME": "/root"})


def test_what_cannot_be_removed_is_a_finding(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_first_files(workspace)
    (workspace.work / "run").mkdir()
    monkeypatch.setattr(machine_state, "remove", lambda _: None)
    assert clean(workspace, no_containers) == (
        f"{workspace.work / 'run'} of the last job cannot be removed"
    )


def test_daemon_without_parents_session_and_environment_is_ended(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Compute Engine, it is still in the control group of the startup script, which lists it."""
    daemon = subprocess.Popen(["env", "-i", "setsid", "sleep", "98765"])
    stranger = subprocess.Popen(["sleep", "98766"])
    try:
        while Path(f"/proc/{daemon.pid}/comm").read_text().strip() != "sleep":
            time.sleep(0.01)
        monkeypatch.setattr(
            machine_processes, "service_processes", lambda: [daemon.pid, os.getpid()]
        )
        environ = {name: text for name, text in workspace.environ.items() if name != EMULATED_VM}
        machine = Workspace(workspace.work, environ, workspace.console)
        monkeypatch.setattr(previous_tenure, "TEMPORARY", ())
        monkeypatch.setattr(previous_tenure, "_state", lambda _: {})
        monkeypatch.setattr(previous_tenure, "SCHEDULES", ())
        remember_first_files(machine)
        assert clean(machine, no_containers) == ""
        assert daemon.wait(5) == -signal.SIGKILL
        assert stranger.poll() is None
    finally:
        for process in (daemon, stranger):
            process.kill()
            process.wait()


def test_gpu_memory_that_no_process_holds_is_a_finding_after_ten_seconds(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is asked as on a VM: through nvidia-smi on the program's path."""
    smi = tmp_path / "nvidia-smi"
    uses = tmp_path / "memory"
    smi.write_text(f'#!/bin/sh\n[ "$1" = --query-gpu=memory.used,memory.total ] && cat {uses}\n')
    smi.chmod(0o755)
    environ = {**workspace.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    vm = Workspace(workspace.work, environ, workspace.console)
    monkeypatch.setattr(previous_tenure, "has_gpu", lambda: True)
    pauses: list[float] = []
    uses.write_text("9000, 15360\n")  # MiB in use, and in all
    remember_first_files(vm)
    assert clean(vm, no_containers, pauses.append) == (
        "GPU 0 has 9000 MiB in use after the last job"
    )
    assert sum(pauses) == previous_tenure.GPU_FREE_S - 1

    def free(_: float) -> None:
        uses.write_text("3, 15360\n")

    assert clean(vm, no_containers, free) == "", "the driver needs a moment"


@pytest.fixture(params=["my left", "größe, my left", "\udcff my left"])
def mounted(request: pytest.FixtureRequest, workspace: Workspace, tmp_path: Path) -> Iterator[Path]:
    """Mount a folder of another machine below the folder for temporary files."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("")
    remember_first_files(workspace)
    point = Path(workspace.environ["TMPDIR"]) / request.param / "data"
    point.mkdir(parents=True)
    mount = subprocess.run(["mount", "--bind", other, point], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("mounting needs root")
    yield other / "precious"
    subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def test_mount_is_detached_and_its_files_stay(workspace: Workspace, mounted: Path) -> None:
    assert clean(workspace, no_containers) == ""
    assert mounted.exists()
    assert not list(Path(workspace.environ["TMPDIR"]).iterdir())


def test_mount_that_stays_is_a_finding_and_its_files_stay(
    workspace: Workspace, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_state, "unmount_all", lambda _: None)
    assert "my left of the last job cannot be removed" in clean(workspace, no_containers)
    assert mounted.exists()


@pytest.mark.parametrize(
    ("output", "findings"),
    [  # of nvidia-smi: a line of each GPU, with its MiB in use and in all
        ("3, 15360\n", []),
        ("520, 81559\n", []),
        ("9000, 15360\n3, 15360\n", ["GPU 0 has 9000 MiB in use after the last job"]),
        ("[N/A], [N/A]\n", []),
        ("", []),
    ],
)
def test_gpu_memory_that_stays_in_use_is_a_finding(output: str, findings: list[str]) -> None:
    assert describe_memory(output) == findings
