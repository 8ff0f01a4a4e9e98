"""What a VM's last job has left outside of its files: units of systemd, schedules, System V IPC,
packages of the machine's Python, and mounts.

What was there before the first job of the VM is the machine's own, and stays. What cannot be
removed is a finding: a text that names it, and for which the VM is replaced.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from trainmaster.agent.program import machine_processes
from trainmaster.agent.setup import machine_state, previous_tenure
from trainmaster.agent.setup.previous_tenure import (
    clean,
    remember_first_files,
)
from trainmaster.agent.workspace import EMULATED_VM, Workspace


def clean_vm(vm: Workspace) -> str:
    """Clean the VM, on which no containers are. Return the findings; empty: there are none."""
    return clean(vm, lambda: 0)


IPC_MADE: set[str] = set()
"""The System V IPC objects of the running test, as `machine_state.ipc_objects` names them."""


@pytest.fixture
def machine(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    """A VM of Compute Engine whose cron and units are folders below `tmp_path`, with a stand-in for
    systemctl. Of the IPC objects and mounts of the real kernel, only those of the test are seen.
    """
    for name in ("cron.d", "units", "bin", "linger", "site-packages"):
        (tmp_path / name).mkdir()
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho $@ >> {tmp_path / 'calls'}\n")
    systemctl.chmod(0o755)
    ipc_objects, program_mounts = machine_state.ipc_objects, machine_state.program_mounts
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(previous_tenure, "TEMPORARY", ())
    monkeypatch.setattr(previous_tenure, "SCHEDULES", (str(tmp_path / "cron.d"),))
    monkeypatch.setattr(machine_state, "LINGERING", tmp_path / "linger")
    monkeypatch.setattr(machine_state, "python_folders", lambda: [str(tmp_path / "site-packages")])
    monkeypatch.setattr(previous_tenure, "machine_processes", lambda _: [])
    monkeypatch.setattr(machine_state, "UNIT_FOLDERS", (str(tmp_path / "units"),))
    monkeypatch.setattr(
        machine_state, "ipc_objects", lambda: [name for name in ipc_objects() if name in IPC_MADE]
    )
    monkeypatch.setattr(
        machine_state,
        "program_mounts",
        lambda: [point for point in program_mounts() if point.startswith(str(tmp_path))],
    )
    environ = {name: text for name, text in workspace.environ.items() if name != EMULATED_VM}
    yield Workspace(workspace.work, environ, workspace.console)
    for name in IPC_MADE.intersection(ipc_objects()):
        subprocess.run(["ipcrm", *name.split()], check=False)
    IPC_MADE.clear()


def make_ipc() -> str:
    """Make a shared memory, a queue and a semaphore. Return the names of all that were made."""
    for kind, *size in (("-M", "4096"), ("-Q",), ("-S", "1")):
        made = subprocess.run(["ipcmk", kind, *size], capture_output=True, text=True, check=True)
        IPC_MADE.add(f"{kind.lower()} {made.stdout.split()[-1]}")
    return " ".join(sorted(IPC_MADE))


def test_job_of_cron_is_removed_and_those_of_the_machine_stay(
    machine: Workspace, tmp_path: Path
) -> None:
    schedules = tmp_path / "cron.d"
    (schedules / "e2scrub_all").write_text("")
    remember_first_files(machine)
    (schedules / "left").write_text("* * * * * root sleep 98765\n")
    assert clean_vm(machine) == ""
    assert [entry.name for entry in schedules.iterdir()] == ["e2scrub_all"]
    assert not (tmp_path / "calls").exists(), "no unit is new"


def test_schedule_that_the_last_job_has_changed_is_a_finding(
    machine: Workspace, tmp_path: Path
) -> None:
    """Its old content is not known, so it cannot be restored."""
    crontab, other = tmp_path / "cron.d" / "root", tmp_path / "cron.d" / "e2scrub_all"
    crontab.write_text("1 1 * * * true\n")
    other.write_text("")
    remember_first_files(machine)
    crontab.write_text("* * * * * sleep 98765\n")
    (tmp_path / "cron.d" / "left").write_text("* * * * * root sleep 98765\n")
    assert clean_vm(machine) == f"the last job has changed {crontab}"
    assert not (tmp_path / "cron.d" / "left").exists()


def test_packages_that_a_program_installed_for_the_machine_are_a_finding(
    machine: Workspace, tmp_path: Path
) -> None:
    """A `pip install` of root installs them there, and not into the layers, the folders of packages
    of one job.
    """
    folder = tmp_path / "site-packages"
    for name in ("numpy", "numpy-1.0.dist-info", "__pycache__"):
        (folder / name).mkdir()
    (folder / "six.py").write_text("")
    remember_first_files(machine)
    (folder / "__pycache__" / "six.pyc").write_text("")
    (folder / "numpy" / "__pycache__").mkdir()
    assert clean_vm(machine) == ""
    (folder / "numpy-1.0.dist-info").rename(folder / "numpy-2.0.dist-info")
    (folder / "evil.pth").write_text("import os")
    (folder / "six.py").write_text("changed")
    (folder / "more").mkdir()
    assert clean_vm(machine) == (
        f"the last job has changed {folder}/evil.pth, {folder}/more, {folder}/numpy-1.0.dist-info"
        " and 2 others"
    )


def test_user_whose_programs_go_on_without_a_login_is_stopped(
    machine: Workspace, tmp_path: Path
) -> None:
    """After `loginctl enable-linger`, units of a user run without a login, below no service."""
    linger = tmp_path / "linger"
    (linger / "nobody").write_text("")
    remember_first_files(machine)
    (linger / "root").write_text("")
    (linger / "unknown user").write_text("")
    assert clean_vm(machine) == ""
    assert [entry.name for entry in linger.iterdir()] == ["nobody"]
    assert (tmp_path / "calls").read_text().splitlines()[0] == "stop user@0.service"


def test_unit_and_user_that_cannot_be_removed_are_findings(
    machine: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `chattr +i`, not even root can remove a file. An exception would end the agent, which
    would start, fail and start again without end.
    """
    remember_first_files(machine)
    left = {tmp_path / "units" / "left.service", tmp_path / "linger" / "root"}
    for file in left:
        file.write_text("")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path in left:
            raise PermissionError("Operation not permitted")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert clean_vm(machine) == (
        f"the unit {tmp_path / 'units' / 'left.service'} of the last job cannot be removed; the"
        " running user root of the last job cannot be removed"
    )


def test_new_units_are_stopped_whatever_their_names_and_those_of_the_machine_stay(
    machine: Workspace, tmp_path: Path
) -> None:
    """`systemd-run --unit=trainer-cache` has a name that the program chooses."""
    units = tmp_path / "units"
    (units / "ssh.service").write_text("")
    remember_first_files(machine)
    for name in ("run-r1.timer", "trainer-cache.service", "session-3.scope"):
        (units / name).write_text("")
    assert clean_vm(machine) == ""
    assert sorted(entry.name for entry in units.iterdir()) == ["session-3.scope", "ssh.service"]
    names = "run-r1.timer trainer-cache.service"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"stop {names}", "daemon-reload", f"reset-failed {names}"]


def test_process_of_a_new_unit_that_does_not_stop_is_killed(
    machine: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "fs" / "system.slice" / "left.service"
    group.mkdir(parents=True)
    remember_first_files(machine)
    (tmp_path / "units" / "left.service").write_text("")
    daemon = subprocess.Popen(["env", "-i", "setsid", "sleep", "98765"])
    (group / "cgroup.procs").write_text(f"{daemon.pid}\n")

    def running(names: Iterable[str]) -> list[int]:
        found = machine_processes.unit_processes(names, tmp_path / "fs")
        return [pid for pid in found if daemon.poll() is None]

    monkeypatch.setattr(previous_tenure, "unit_processes", running)
    try:
        assert clean_vm(machine) == ""
        assert daemon.wait(5) == -signal.SIGKILL
    finally:
        daemon.kill()
        daemon.wait()


def test_ipc_objects_of_system_v_are_removed_but_not_those_of_the_machine(
    machine: Workspace,
) -> None:
    remember_first_files(machine)
    made = make_ipc()
    assert machine_state.ipc_objects(), made
    assert clean_vm(machine) == ""
    assert machine_state.ipc_objects() == []
    make_ipc()
    (machine.work / previous_tenure.FIRST_FILES).unlink()
    remember_first_files(machine)
    assert clean_vm(machine) == ""
    assert len(machine_state.ipc_objects()) == len(machine_state.IPC_OPTIONS)


def test_ipc_object_that_stays_is_a_finding(
    machine: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_first_files(machine)
    make_ipc()
    monkeypatch.setattr(machine_state, "remove_ipc", lambda _: None)
    findings = clean_vm(machine).split("; ")
    assert len(findings) == len(machine_state.IPC_OPTIONS)
    assert all(
        finding.startswith("the IPC object -") and finding.endswith("cannot be removed")
        for finding in findings
    )


def test_mount_outside_of_the_working_folders_is_detached_and_its_files_stay(
    machine: Workspace, tmp_path: Path
) -> None:
    remember_first_files(machine)
    other, point = tmp_path / "other", tmp_path / "mnt"
    for folder in (other, point):
        folder.mkdir()
    (other / "precious").write_text("")
    mount = subprocess.run(["mount", "--bind", other, point], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("mounting needs root")
    try:
        assert clean_vm(machine) == ""
        assert not list(point.iterdir())
        assert (other / "precious").exists()
    finally:
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


@pytest.mark.parametrize(
    ("point", "is_seen"),
    [
        ("/mnt/data", True),
        ("/home/me/my data", True),
        ("/mnt/größe", True),
        ("/mnt/no utf-8 \udcff\r", True),
        ("/run/user/0", False),
        ("/var/lib/docker/overlay2/x/merged", False),
        ("/proc", False),
        ("/running", True),
    ],
)
def test_mounts_of_the_system_and_of_containers_are_not_of_a_program(
    point: str, is_seen: bool, tmp_path: Path
) -> None:
    file = tmp_path / "mountinfo"
    escaped = os.fsencode(point.replace(" ", "\\040"))
    file.write_bytes(b"36 35 98:0 / %b rw,noatime - ext4 /dev/root rw\n" % escaped)
    assert machine_state.program_mounts(file) == ([point] if is_seen else [])
