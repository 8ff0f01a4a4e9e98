"""What a VM's last job has left is gone, or named."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from trainmaster.agent.program import machine_processes
from trainmaster.agent.program.machine_processes import (
    EMULATED_VM,
    scheduled_processes,
    service_processes,
)
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup import machine_state, previous_tenure
from trainmaster.agent.setup.previous_tenure import (
    OWN_ROOT,
    clean,
    describe_memory,
    remember_first_files,
    temporary_folders,
)
from trainmaster.agent.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    disk = tmp_path / "disk"
    (disk / "home" / "trainmaster").mkdir(parents=True)
    (disk / "tmp").mkdir()
    environ = {
        "HOME": str(disk / "home"),
        "TMPDIR": str(disk / "tmp"),
        EMULATED_VM: str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    return Workspace(disk / "home" / "trainmaster", environ, Console())


def no_containers() -> int:
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
    """It may wait for a device, and then takes no signal."""
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
    """On Compute Engine, the control group of the startup script tells."""
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
        assert daemon.wait(5) == -9
        assert stranger.poll() is None
    finally:
        for process in (daemon, stranger):
            process.kill()
            process.wait()


def test_control_group_of_a_service_and_those_below_it(tmp_path: Path) -> None:
    file = tmp_path / "cgroup"
    file.write_text("0::/system.slice/google-startup-scripts.service\n")
    group = tmp_path / "fs" / "system.slice" / "google-startup-scripts.service"
    (group / "below").mkdir(parents=True)
    (group / "cgroup.procs").write_text("10\n11\n")
    (group / "below" / "cgroup.procs").write_text("12\n")
    assert sorted(service_processes(file, tmp_path / "fs")) == [10, 11, 12]


def test_control_group_of_a_session_has_processes_of_others(tmp_path: Path) -> None:
    file = tmp_path / "cgroup"
    file.write_text("0::/user.slice\n1:name=systemd:/\n")
    (tmp_path / "fs" / "user.slice").mkdir(parents=True)
    (tmp_path / "fs" / "user.slice" / "cgroup.procs").write_text("10\n")
    assert service_processes(file, tmp_path / "fs") == []
    assert service_processes(tmp_path / "missing", tmp_path / "fs") == []


def test_processes_of_cron_are_found_without_cron(tmp_path: Path) -> None:
    group = tmp_path / "fs" / "system.slice" / "cron.service"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("10\n11\n12\n")
    for pid, command in ((10, "cron"), (11, "python3")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{command}\n")
    assert scheduled_processes(tmp_path, tmp_path / "fs") == [11]


def test_processes_of_a_unit_are_found_in_every_slice(tmp_path: Path) -> None:
    """`systemd-run --slice` and units of users are in others than `system.slice`."""
    for number, folder in enumerate(("a.slice/left.service", "user.slice/u/user@0.service/app")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cgroup.procs").write_text(f"{10 + number}\n")
    found = machine_processes.unit_processes(["left.service", "user@0.service"], tmp_path)
    assert sorted(found) == [10, 11]


IPC_MADE: set[str] = set()
"""The System V IPC objects of the running test."""


@pytest.fixture
def machine(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    """A VM of Compute Engine whose cron and units are folders below `tmp_path`, with a stand-in for
    systemctl. Of the real kernel, only what the test makes is seen: others use it, too.
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
        machine_state, "ipc_objects", lambda: [one for one in ipc_objects() if one in IPC_MADE]
    )
    monkeypatch.setattr(
        machine_state,
        "program_mounts",
        lambda: [point for point in program_mounts() if point.startswith(str(tmp_path))],
    )
    environ = {name: text for name, text in workspace.environ.items() if name != EMULATED_VM}
    yield Workspace(workspace.work, environ, workspace.console)
    for one in [one for one in ipc_objects() if one in IPC_MADE]:
        subprocess.run(["ipcrm", *one.split()], check=False)
    IPC_MADE.clear()


def make_ipc() -> str:
    """Make one of each kind; return them in words."""
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
    assert clean(machine, no_containers) == ""
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
    assert clean(machine, no_containers) == f"the last job has changed {crontab}"
    assert not (tmp_path / "cron.d" / "left").exists()


def test_packages_that_a_program_installed_for_the_machine_are_a_finding(
    machine: Workspace, tmp_path: Path
) -> None:
    """`pip install` of root does not install into the layers, which are of one job."""
    folder = tmp_path / "site-packages"
    for name in ("numpy", "numpy-1.0.dist-info", "__pycache__"):
        (folder / name).mkdir()
    (folder / "six.py").write_text("")
    remember_first_files(machine)
    (folder / "__pycache__" / "six.pyc").write_text("")
    (folder / "numpy" / "__pycache__").mkdir()
    assert clean(machine, no_containers) == ""
    (folder / "numpy-1.0.dist-info").rename(folder / "numpy-2.0.dist-info")
    (folder / "evil.pth").write_text("import os")
    (folder / "six.py").write_text("changed")
    (folder / "more").mkdir()
    assert clean(machine, no_containers) == (
        f"the last job has changed {folder}/evil.pth, {folder}/more, {folder}/numpy-1.0.dist-info"
        " and 2 others"
    )


def test_user_whose_programs_go_on_without_a_login_is_stopped(
    machine: Workspace, tmp_path: Path
) -> None:
    """`loginctl enable-linger` makes units of a user, which are of no service of the machine."""
    linger = tmp_path / "linger"
    (linger / "nobody").write_text("")
    remember_first_files(machine)
    (linger / "root").write_text("")
    (linger / "unknown user").write_text("")
    assert clean(machine, no_containers) == ""
    assert [entry.name for entry in linger.iterdir()] == ["nobody"]
    assert (tmp_path / "calls").read_text().splitlines()[0] == "stop user@0.service"


def test_unit_and_user_that_cannot_be_removed_are_findings(
    machine: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`chattr +i` keeps a file also from root. An exception would end the agent, which starts
    again, without end.
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
    assert clean(machine, no_containers) == (
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
    assert clean(machine, no_containers) == ""
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
        assert clean(machine, no_containers) == ""
        assert daemon.wait(5) == -9
    finally:
        daemon.kill()
        daemon.wait()


def test_ipc_objects_of_system_v_are_removed_but_not_those_of_the_machine(
    machine: Workspace,
) -> None:
    remember_first_files(machine)
    made = make_ipc()
    assert machine_state.ipc_objects(), made
    assert clean(machine, no_containers) == ""
    assert machine_state.ipc_objects() == []
    make_ipc()
    (machine.work / previous_tenure.FIRST_FILES).unlink()
    remember_first_files(machine)
    assert clean(machine, no_containers) == ""
    assert len(machine_state.ipc_objects()) == len(machine_state.IPC_OPTIONS)


def test_ipc_object_that_stays_is_a_finding(
    machine: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_first_files(machine)
    make_ipc()
    monkeypatch.setattr(machine_state, "remove_ipc", lambda _: None)
    findings = clean(machine, no_containers).split("; ")
    assert len(findings) == len(machine_state.IPC_OPTIONS)
    assert all(
        finding.startswith("the IPC object -") and finding.endswith("cannot be removed")
        for finding in findings
    )


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
    uses.write_text("9000, 15360\n")
    remember_first_files(vm)
    assert clean(vm, no_containers, pauses.append) == (
        "GPU 0 has 9000 MiB in use after the last job"
    )
    assert sum(pauses) == previous_tenure.GPU_FREE_S - 1

    def free(_: float) -> None:
        uses.write_text("3, 15360\n")

    assert clean(vm, no_containers, free) == "", "the driver needs a moment"


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
        assert clean(machine, no_containers) == ""
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
    ("output", "busy"),
    [
        ("3, 15360\n", []),
        ("520, 81559\n", []),
        ("9000, 15360\n3, 15360\n", ["GPU 0 has 9000 MiB in use after the last job"]),
        ("[N/A], [N/A]\n", []),
        ("", []),
    ],
)
def test_gpu_memory_that_stays_in_use_is_a_finding(output: str, busy: list[str]) -> None:
    assert describe_memory(output) == busy
