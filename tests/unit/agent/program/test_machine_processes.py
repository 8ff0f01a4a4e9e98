"""The processes of systemd's services and units, which the kernel lists by control group.

The folder of a control group has the file `cgroup.procs`, with the ids of its processes.
"""

from __future__ import annotations

from pathlib import Path

from trainmaster.agent.program import machine_processes
from trainmaster.agent.program.machine_processes import (
    scheduled_processes,
    service_processes,
)


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
    """Units of users, and those of `systemd-run --slice`, are outside of `system.slice`."""
    for number, folder in enumerate(("a.slice/left.service", "user.slice/u/user@0.service/app")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cgroup.procs").write_text(f"{10 + number}\n")
    found = machine_processes.unit_processes(["left.service", "user@0.service"], tmp_path)
    assert sorted(found) == [10, 11]
