"""VMs as processes: the startup script, shutdown, faults, and that no process is left."""

from __future__ import annotations

import os
import signal
import time
import urllib.error
from pathlib import Path
from typing import Any

import pytest
from google.cloud import compute_v1

from tests.integration.compute.emulator import (
    PROJECT,
    ZONE,
    Emulator,
    an_instance,
    is_running,
    running_emulator,
)
from tests.integration.tpu.slices import ONE_HOST, Slices
from tests.support.stack import eventually
from trainmaster_emulators.machines.gcsfuse.server import gcsfuse_program
from trainmaster_emulators.machines.powered_vm import Disk

STUBBORN = """
trap '' TERM
setsid sleep 601 &
(setsid sh -c 'trap "" TERM; sleep 602 & sleep 603' &)
nohup sleep 604 &
echo ready
while :; do sleep 0.1; done
"""
"""A script that ignores SIGTERM and has children in other sessions, one of which is an orphan."""
STUBBORN_PROCESSES = 5
"""Number of its processes, at least: its own, and those of the four `sleep`."""

AGENT = """
mkdir -p "$HOME/trainer"; cd "$HOME"
echo 'import time; print("training", flush=True); time.sleep(600)' > trainer/task.py
touch trainer/__init__.py
cat > agent.py <<'EOF'
import os, subprocess, sys
if os.path.exists("gcsfuse"):
    subprocess.Popen(["./gcsfuse", "--foreground", "/gcs"], start_new_session=True)
program = subprocess.Popen([sys.executable, "-m", "trainer.task"], start_new_session=True)
print("program ended", program.wait(), flush=True)
EOF
python3 "$HOME/agent.py"
"""


def operation_types(emulator: Emulator, name: str) -> list[str]:
    operations = emulator.operations.list(project=PROJECT, zone=ZONE)
    suffix = f"/instances/{name}"
    return [
        operation.operation_type
        for operation in operations
        if operation.target_link.endswith(suffix)
    ]


def test_startup_script_runs_with_its_own_home_and_environment(emulator: Emulator) -> None:
    emulator.run(
        "vm",
        'python3 -c "import sys; print(sys.prefix)"; env | cut -d= -f1 | sort | xargs; pwd;'
        " echo end",
    )
    eventually(lambda: "startup-script exit status 0" in emulator.serial("vm"))
    _, prefix, names, work, *_ = emulator.serial("vm").splitlines()
    assert Path(prefix, "bin", "python3").exists()
    of_the_shell = {"PWD", "SHLVL", "_", "OLDPWD"}
    # Only where the machine lets a VM have a root of its own.
    of_the_root = {"TRAINMASTER_EMULATED_ROOT"}
    assert set(names.split()) - of_the_shell - of_the_root == {
        "GCE_METADATA_HOST",
        "GCE_METADATA_IP",
        "HOME",
        "LANG",
        "PATH",
        "TRAINMASTER_EMULATED_VM",
    }
    assert Path(work).is_relative_to(emulator.state_dir)
    assert emulator.status("vm") == "RUNNING"  # the VM outlives its script


def test_processes_of_a_running_vm_are_its_first_one_and_the_training_program(
    emulator: Emulator,
) -> None:
    mount_that_only_sleeps = (
        gcsfuse_program()
        .decode()
        .replace("import main; main()", "import main; import time; time.sleep(600)")
    )
    emulator.run(
        "vm",
        f"cd $HOME; cat >gcsfuse <<'END'\n{mount_that_only_sleeps}END\nchmod +x gcsfuse\n{AGENT}",
    )
    eventually(lambda: "training" in emulator.serial("vm"))
    pids = emulator.call("/emulator/v1/vms/vm/processes")
    assert "vm_init.py" in Path(f"/proc/{pids['init']}/cmdline").read_text()
    assert "trainer.task" in Path(f"/proc/{pids['program']}/cmdline").read_text()
    emulator.fault("vm", "crash")
    eventually(lambda: emulator.status("vm") == "TERMINATED")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        emulator.call("/emulator/v1/vms/vm/processes")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        emulator.call("/emulator/v1/vms/other/processes")


def test_each_vm_has_its_own_tmp(emulator: Emulator) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may create a mount namespace")
    mark = Path("/tmp") / f"vm-mark-{os.getpid()}"
    for name in ("tmp-0", "tmp-1"):
        emulator.run(
            name,
            f"ls {mark} || echo FRESH; echo {name} > {mark}; echo KEPT $(cat {mark}); sleep 600",
        )
    eventually(
        lambda: (
            "KEPT tmp-0" in emulator.serial("tmp-0") and "KEPT tmp-1" in emulator.serial("tmp-1")
        )
    )
    assert "FRESH" in emulator.serial("tmp-0")
    assert "FRESH" in emulator.serial("tmp-1")
    assert not mark.exists()


def test_tmp_of_a_vm_is_empty_after_a_restart(emulator: Emulator) -> None:
    emulator.run("tmp-2", "ls $(dirname $(mktemp)) | wc -l; echo BOOTED; sleep 600")
    eventually(lambda: emulator.serial("tmp-2").count("BOOTED") == 1)
    emulator.done(emulator.instances.stop_unary(project=PROJECT, zone=ZONE, instance="tmp-2"))
    emulator.done(emulator.instances.start_unary(project=PROJECT, zone=ZONE, instance="tmp-2"))
    eventually(lambda: emulator.serial("tmp-2").count("BOOTED") == 2)
    counts = [line for line in emulator.serial("tmp-2").splitlines() if line.isdigit()]
    assert len(counts) == 2
    assert counts[0] == counts[1]


def test_serial_output_continues_after_the_last_read(emulator: Emulator) -> None:
    emulator.run("vm", "echo one; sleep 0.3; echo two; sleep 600")
    eventually(lambda: "one" in emulator.serial("vm"))
    request = compute_v1.GetSerialPortOutputInstanceRequest(
        project=PROJECT, zone=ZONE, instance="vm"
    )
    request.start = emulator.instances.get_serial_port_output(request).next_
    eventually(lambda: emulator.instances.get_serial_port_output(request).contents == "two\n")


def test_serial_output_of_a_vm_before_its_start_is_empty(tmp_path: Path) -> None:
    assert Disk(tmp_path / "vm", tmp_path / "serial" / "vm").serial_output(0) == (0, "", 0)


def test_stopped_vm_has_no_process_and_starts_with_the_same_disk(emulator: Emulator) -> None:
    def wait_for_boot(count: int) -> None:
        eventually(lambda: f"boot {count} of this disk" in emulator.serial("vm"))

    script = (
        'echo >> "$HOME/boots"; echo "boot $(wc -l < "$HOME/boots") of this disk"; setsid sleep 600'
        " & sleep 600"
    )
    emulator.run("vm", script)
    wait_for_boot(1)
    first = emulator.vm_processes()
    emulator.done(emulator.instances.stop_unary(project=PROJECT, zone=ZONE, instance="vm"))
    assert emulator.status("vm") == "TERMINATED"
    assert not emulator.vm_processes()
    emulator.done(emulator.instances.start_unary(project=PROJECT, zone=ZONE, instance="vm"))
    wait_for_boot(2)
    emulator.done(emulator.instances.reset_unary(project=PROJECT, zone=ZONE, instance="vm"))
    wait_for_boot(3)
    assert emulator.status("vm") == "RUNNING"
    assert not first & emulator.vm_processes()


def test_deleted_vm_is_shut_down_and_its_successor_has_an_empty_home(emulator: Emulator) -> None:
    trap = 'trap "echo stopping; sleep 0.2; echo stopped; exit" TERM'
    vm = emulator.run("vm", trap + '; touch "$HOME/x"; while :; do sleep 0.05; done')
    file = emulator.state_dir / "vms" / str(vm.id) / "home" / "x"
    eventually(file.exists)
    emulator.done(emulator.instances.delete_unary(project=PROJECT, zone=ZONE, instance=str(vm.id)))
    # Kept after the VM.
    log = next((emulator.state_dir / "serial").glob(f"vm-{vm.id}.log")).read_text()
    assert "stopping\nstopped\n" in log
    assert not (emulator.state_dir / "vms" / str(vm.id)).exists()
    assert emulator.run("vm", 'ls "$HOME"; echo listed; sleep 600').id != vm.id
    eventually(lambda: "listed" in emulator.serial("vm"))
    assert "x" not in emulator.serial("vm").splitlines()


def test_crash_leaves_no_process(emulator: Emulator) -> None:
    emulator.run("vm", STUBBORN)
    eventually(lambda: "ready" in emulator.serial("vm"))
    assert len(emulator.vm_processes()) >= STUBBORN_PROCESSES
    emulator.fault("vm", "crash")
    assert not emulator.vm_processes()
    eventually(lambda: emulator.status("vm") == "TERMINATED")
    assert "compute.instances.hostError" in operation_types(emulator, "vm")


def command_line(pid: int) -> bytes:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_killed_vm_init_is_a_host_error_and_leaves_no_process(emulator: Emulator) -> None:
    emulator.run("vm", STUBBORN)
    eventually(lambda: "ready" in emulator.serial("vm"))
    (init,) = [pid for pid in emulator.vm_processes() if b"vm_init.py" in command_line(pid)]
    os.kill(init, signal.SIGKILL)
    eventually(lambda: not emulator.vm_processes())
    eventually(lambda: emulator.status("vm") == "TERMINATED")


def test_host_error_restarts_a_vm_with_automatic_restart(emulator: Emulator) -> None:
    emulator.run("vm", "echo up; sleep 600", scheduling={"automatic_restart": True})
    eventually(lambda: emulator.serial("vm").count("up\n") == 1)
    emulator.fault("vm", "crash")
    eventually(lambda: emulator.serial("vm").count("up\n") == 2)
    assert "compute.instances.automaticRestart" in operation_types(emulator, "vm")


@pytest.mark.parametrize(("action", "status"), [("DELETE", "DELETED"), ("STOP", "TERMINATED")])
def test_preempted_vm_ends_after_the_notice(emulator: Emulator, action: str, status: str) -> None:
    scheduling = {"provisioning_model": "SPOT", "instance_termination_action": action}
    emulator.run("vm", STUBBORN, scheduling=scheduling)
    eventually(lambda: "ready" in emulator.serial("vm"))
    started = time.monotonic()
    emulator.fault("vm", "preempt", notice_s=0.5)
    eventually(lambda: emulator.status("vm") == status)
    assert time.monotonic() - started >= 0.5
    assert not emulator.vm_processes()
    assert "compute.instances.preempted" in operation_types(emulator, "vm")


@pytest.mark.parametrize(("action", "status"), [("DELETE", "DELETED"), ("STOP", "TERMINATED")])
def test_insert_of_a_vm_that_is_preempted_meanwhile_fails(
    emulator: Emulator, action: str, status: str
) -> None:
    emulator.faults(slow_s=0.5)
    scheduling = {"provisioning_model": "SPOT", "instance_termination_action": action}
    resource = an_instance("vm", "echo booted", scheduling=scheduling)
    operation = emulator.instances.insert_unary(
        project=PROJECT, zone=ZONE, instance_resource=resource
    )
    emulator.fault("vm", "preempt")
    (error,) = emulator.done(operation).error.errors
    assert error.message == "Instance failed to start due to preemption."
    assert emulator.status("vm") == status
    assert not emulator.vm_processes()
    assert "compute.instances.preempted" in operation_types(emulator, "vm")


def test_maintenance_is_announced_in_the_metadata_and_stops_the_vm(emulator: Emulator) -> None:
    event = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/maintenance-event"
    watch = (
        f'until curl -s -H Metadata-Flavor:Google "{event}" | grep TERMINATE_; do sleep 0.05; done;'
        " sleep 600"
    )
    emulator.run("vm", f"echo ready; {watch}")
    eventually(lambda: "ready" in emulator.serial("vm"))
    emulator.done(
        emulator.instances.simulate_maintenance_event_unary(
            project=PROJECT, zone=ZONE, instance="vm"
        )
    )
    assert "TERMINATE_ON_HOST_MAINTENANCE" in emulator.serial("vm")
    assert emulator.status("vm") == "TERMINATED"
    assert "compute.instances.terminateOnHostMaintenance" in operation_types(emulator, "vm")


@pytest.mark.parametrize("by_control", [False, True])
def test_migrating_vm_reads_the_event_and_keeps_running(
    emulator: Emulator, *, by_control: bool
) -> None:
    event = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/maintenance-event"
    read = f'curl -s -H Metadata-Flavor:Google "{event}"'
    watch = (
        f"until {read} | grep MIGRATE_; do sleep 0.05; done; until {read} | grep NONE; do sleep"
        " 0.05; done"
    )
    vm = emulator.run(
        "vm", f"echo up; {watch}; sleep 600", scheduling={"on_host_maintenance": "MIGRATE"}
    )
    eventually(lambda: "up" in emulator.serial("vm"))
    if by_control:
        emulator.fault("vm", "maintenance", notice_s=0.5)
    else:
        emulator.done(
            emulator.instances.simulate_maintenance_event_unary(
                project=PROJECT, zone=ZONE, instance="vm"
            )
        )
    eventually(
        lambda: (
            "MIGRATE_ON_HOST_MAINTENANCE" in emulator.serial("vm")
            and "NONE" in emulator.serial("vm")
        )
    )
    assert emulator.serial("vm").count("up\n") == 1
    assert (emulator.status("vm"), emulator.get("vm").id) == ("RUNNING", vm.id)
    assert "compute.instances.migrateOnHostMaintenance" in operation_types(emulator, "vm")


def test_spot_vm_with_a_preemption_notice_keeps_running_after_the_announcement(
    emulator: Emulator,
) -> None:
    preempted = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/preempted"
    watch = (
        f'until curl -s -H Metadata-Flavor:Google "{preempted}" | grep TRUE; do sleep 0.05; done;'
        " sleep 600"
    )
    scheduling = {"provisioning_model": "SPOT", "preemption_notice_duration": {"seconds": 120}}
    emulator.run("vm", f"echo ready; {watch}", scheduling=scheduling)
    eventually(lambda: "ready" in emulator.serial("vm"))
    emulator.fault("vm", "preempt")
    eventually(lambda: "TRUE" in emulator.serial("vm"))
    assert emulator.status("vm") == "RUNNING"


def test_run_limit_deletes_the_vm(emulator: Emulator) -> None:
    limit: dict[str, Any] = {
        "max_run_duration": {"seconds": 1},
        "instance_termination_action": "DELETE",
    }
    emulator.run("vm", "sleep 600", scheduling=limit)
    assert emulator.status("vm") == "RUNNING"
    eventually(lambda: emulator.status("vm") == "DELETED")
    assert not emulator.vm_processes()


def test_kill_program_signals_the_training_program_not_the_agent(emulator: Emulator) -> None:
    emulator.run("vm", AGENT)
    eventually(lambda: "training" in emulator.serial("vm"))
    assert emulator.fault("vm", "kill-program", signal="KILL")["signal"] == "SIGKILL"
    eventually(lambda: "program ended -9" in emulator.serial("vm"))


def test_slow_cloud_shows_all_states_of_a_new_vm(emulator: Emulator) -> None:
    emulator.faults(slow_s=0.3)
    resource = compute_v1.Instance(emulator_request("vm"))
    emulator.instances.insert_unary(project=PROJECT, zone=ZONE, instance_resource=resource)
    statuses: list[str] = []
    while not statuses or statuses[-1] != "RUNNING":
        if (status := emulator.get("vm").status) not in statuses[-1:]:
            statuses.append(status)
    assert statuses == ["PROVISIONING", "STAGING", "RUNNING"]


def emulator_request(name: str) -> dict[str, Any]:
    disk = {"boot": True, "initialize_params": {"source_image": "global/images/x"}}
    return {"name": name, "machine_type": "n1-standard-4", "disks": [disk]}


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_emulator(tmp_path: Path, signum: signal.Signals) -> None:
    with running_emulator(tmp_path) as emulator:
        for name in ("a", "b"):
            emulator.run(name, STUBBORN)
            eventually(lambda name=name: "ready" in emulator.serial(name))  # type: ignore[misc]
        slices = Slices(emulator)
        slices.run("slice", STUBBORN, ONE_HOST)
        eventually(lambda: "ready" in slices.logs("slice")[0])
        pids = emulator.vm_processes()
        assert len(pids) >= 3 * STUBBORN_PROCESSES, "two VMs and the host of a slice"
        emulator.process.send_signal(signum)
        emulator.process.wait(10)
        eventually(lambda: not any(map(is_running, pids)))
