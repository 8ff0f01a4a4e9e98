"""VMs as processes: they run the startup script, end as told, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from google.cloud import compute_v1

from emulators.compute.powered_vm import Disk
from tests.integration.compute.emulator import PROJECT, ZONE, Emulator, eventually, incarnations, running_emulator

TENACIOUS = """
trap '' TERM
setsid sleep 601 &
(setsid sh -c 'trap "" TERM; sleep 602 & sleep 603' &)
nohup sleep 604 &
echo ready
while :; do sleep 0.1; done
"""
"""Ignores SIGTERM and has children in other sessions, one of them an orphan."""

AGENT = """
mkdir -p "$HOME/trainer"; cd "$HOME"
echo 'import time; print("training", flush=True); time.sleep(600)' > trainer/task.py; touch trainer/__init__.py
cat > agent.py <<'EOF'
import subprocess, sys
program = subprocess.Popen([sys.executable, "-m", "trainer.task"], start_new_session=True)
print("program ended", program.wait(), flush=True)
EOF
python3 "$HOME/agent.py"
"""


def operation_types(emulator: Emulator, name: str) -> list[str]:
    every = emulator.operations.list(project=PROJECT, zone=ZONE)
    return [each.operation_type for each in every if each.target_link.endswith(f"/instances/{name}")]


def test_the_startup_script_runs_in_a_home_of_its_own_with_nothing_else_in_its_environment(emulator: Emulator) -> None:
    emulator.run("vm", 'python3 -c "import sys; print(sys.prefix)"; env | cut -d= -f1 | sort | xargs; pwd; echo end')
    eventually(lambda: "startup-script exit status 0" in emulator.serial("vm"))
    _, prefix, names, work, *_ = emulator.serial("vm").splitlines()
    assert Path(prefix, "bin", "python3").exists()
    assert set(names.split()) - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "GCE_METADATA_HOST", "GCE_METADATA_IP", "HOME", "LANG", "PATH", "TRAINMASTER_EMULATED_VM",
    }  # fmt: skip
    assert Path(work).is_relative_to(emulator.state_dir)
    assert emulator.status("vm") == "RUNNING"  # a script's end is not the VM's


def test_serial_output_goes_on_where_the_last_read_stopped(emulator: Emulator) -> None:
    emulator.run("vm", "echo one; sleep 0.3; echo two; sleep 600")
    eventually(lambda: "one" in emulator.serial("vm"))
    request = compute_v1.GetSerialPortOutputInstanceRequest(project=PROJECT, zone=ZONE, instance="vm")
    request.start = emulator.instances.get_serial_port_output(request).next_
    eventually(lambda: emulator.instances.get_serial_port_output(request).contents == "two\n")


def test_a_vm_that_is_still_being_made_has_said_nothing(tmp_path: Path) -> None:
    assert Disk(tmp_path / "vm", tmp_path / "serial" / "vm").serial_output(0) == (0, "", 0)


def test_a_stopped_vm_has_no_process_and_starts_again_on_the_same_disk(emulator: Emulator) -> None:
    def boots(count: int) -> None:
        eventually(lambda: f"boot {count} of this disk" in emulator.serial("vm"))

    script = 'echo >> "$HOME/boots"; echo "boot $(wc -l < "$HOME/boots") of this disk"; setsid sleep 600 & sleep 600'
    emulator.run("vm", script)
    boots(1)
    first = emulator.vm_processes()
    emulator.done(emulator.instances.stop_unary(project=PROJECT, zone=ZONE, instance="vm"))
    assert emulator.status("vm") == "TERMINATED"
    assert not emulator.vm_processes()
    emulator.done(emulator.instances.start_unary(project=PROJECT, zone=ZONE, instance="vm"))
    boots(2)
    emulator.done(emulator.instances.reset_unary(project=PROJECT, zone=ZONE, instance="vm"))
    boots(3)
    assert emulator.status("vm") == "RUNNING"
    assert not first & emulator.vm_processes()


def test_stopping_asks_first_and_a_replacement_begins_with_an_empty_home(emulator: Emulator) -> None:
    trap = 'trap "echo asked; sleep 0.2; echo obeyed; exit" TERM'
    vm = emulator.run("vm", trap + '; touch "$HOME/x"; while :; do sleep 0.05; done')
    left = emulator.state_dir / "vms" / str(vm.id) / "home" / "x"
    eventually(left.exists)
    emulator.done(emulator.instances.delete_unary(project=PROJECT, zone=ZONE, instance=str(vm.id)))
    log = next((emulator.state_dir / "serial").glob(f"vm-{vm.id}.log")).read_text()  # kept beyond its VM
    assert "asked\nobeyed\n" in log
    assert not (emulator.state_dir / "vms" / str(vm.id)).exists()
    assert emulator.run("vm", 'ls "$HOME"; echo listed; sleep 600').id != vm.id
    eventually(lambda: "listed" in emulator.serial("vm"))
    assert "x" not in emulator.serial("vm").splitlines()


def test_a_crash_gives_no_notice_and_leaves_no_process(emulator: Emulator) -> None:
    emulator.run("vm", TENACIOUS)
    eventually(lambda: "ready" in emulator.serial("vm"))
    assert len(emulator.vm_processes()) >= 5
    emulator.fault("vm", "crash")
    assert not emulator.vm_processes()
    eventually(lambda: emulator.status("vm") == "TERMINATED")
    assert "compute.instances.hostError" in operation_types(emulator, "vm")


def test_a_vm_whose_init_is_killed_is_a_host_error_with_nothing_left(emulator: Emulator) -> None:
    emulator.run("vm", TENACIOUS)
    eventually(lambda: "ready" in emulator.serial("vm"))
    (init,) = [pid for pid in emulator.vm_processes() if b"vm_init.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(init, signal.SIGKILL)
    eventually(lambda: not emulator.vm_processes())
    eventually(lambda: emulator.status("vm") == "TERMINATED")


def test_a_host_error_restarts_a_vm_that_wants_to_be(emulator: Emulator) -> None:
    emulator.run("vm", "echo up; sleep 600", scheduling={"automatic_restart": True})
    eventually(lambda: emulator.serial("vm").count("up\n") == 1)
    emulator.fault("vm", "crash")
    eventually(lambda: emulator.serial("vm").count("up\n") == 2)
    assert "compute.instances.automaticRestart" in operation_types(emulator, "vm")


@pytest.mark.parametrize(("action", "end"), [("DELETE", "GONE"), ("STOP", "TERMINATED")])
def test_a_preempted_vm_is_asked_given_notice_and_ended(emulator: Emulator, action: str, end: str) -> None:
    scheduling = {"provisioning_model": "SPOT", "instance_termination_action": action}
    emulator.run("vm", TENACIOUS, scheduling=scheduling)
    eventually(lambda: "ready" in emulator.serial("vm"))
    began = time.monotonic()
    emulator.fault("vm", "preempt", notice_s=0.5)
    eventually(lambda: emulator.status("vm") == end)
    assert time.monotonic() - began >= 0.5
    assert not emulator.vm_processes()
    assert "compute.instances.preempted" in operation_types(emulator, "vm")


def test_maintenance_is_announced_in_the_metadata_and_stops_the_vm(emulator: Emulator) -> None:
    event = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/maintenance-event"
    watch = f'until curl -s -H Metadata-Flavor:Google "{event}" | grep TERMINATE_; do sleep 0.05; done; sleep 600'
    emulator.run("vm", f"echo ready; {watch}")
    eventually(lambda: "ready" in emulator.serial("vm"))
    emulator.done(emulator.instances.simulate_maintenance_event_unary(project=PROJECT, zone=ZONE, instance="vm"))
    assert "TERMINATE_ON_HOST_MAINTENANCE" in emulator.serial("vm")
    assert emulator.status("vm") == "TERMINATED"
    assert "compute.instances.terminateOnHostMaintenance" in operation_types(emulator, "vm")


@pytest.mark.parametrize("by_control", [False, True])
def test_a_vm_that_migrates_is_told_and_goes_on(emulator: Emulator, *, by_control: bool) -> None:
    event = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/maintenance-event"
    said = f'curl -s -H Metadata-Flavor:Google "{event}"'
    watch = f"until {said} | grep MIGRATE_; do sleep 0.05; done; until {said} | grep NONE; do sleep 0.05; done"
    vm = emulator.run("vm", f"echo up; {watch}; sleep 600", scheduling={"on_host_maintenance": "MIGRATE"})
    eventually(lambda: "up" in emulator.serial("vm"))
    if by_control:
        emulator.fault("vm", "maintenance", notice_s=0.5)
    else:
        emulator.done(emulator.instances.simulate_maintenance_event_unary(project=PROJECT, zone=ZONE, instance="vm"))
    eventually(lambda: "MIGRATE_ON_HOST_MAINTENANCE" in emulator.serial("vm") and "NONE" in emulator.serial("vm"))
    assert emulator.serial("vm").count("up\n") == 1
    assert (emulator.status("vm"), emulator.get("vm").id) == ("RUNNING", vm.id)
    assert "compute.instances.migrateOnHostMaintenance" in operation_types(emulator, "vm")


def test_a_spot_vm_that_asked_for_it_is_told_two_minutes_ahead(emulator: Emulator) -> None:
    preempted = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/preempted"
    watch = f'until curl -s -H Metadata-Flavor:Google "{preempted}" | grep TRUE; do sleep 0.05; done; sleep 600'
    scheduling = {"provisioning_model": "SPOT", "preemption_notice_duration": {"seconds": 120}}
    emulator.run("vm", f"echo ready; {watch}", scheduling=scheduling)
    eventually(lambda: "ready" in emulator.serial("vm"))
    emulator.fault("vm", "preempt")
    eventually(lambda: "TRUE" in emulator.serial("vm"))
    assert emulator.status("vm") == "RUNNING", "told, and nothing more yet"


def test_the_fuse_deletes_the_vm(emulator: Emulator) -> None:
    limit: dict[str, Any] = {"max_run_duration": {"seconds": 1}, "instance_termination_action": "DELETE"}
    emulator.run("vm", "sleep 600", scheduling=limit)
    assert emulator.status("vm") == "RUNNING"
    eventually(lambda: emulator.status("vm") == "GONE")
    assert not emulator.vm_processes()


def test_kill_program_hits_the_training_program_and_not_the_agent(emulator: Emulator) -> None:
    emulator.run("vm", AGENT)
    eventually(lambda: "training" in emulator.serial("vm"))
    assert emulator.fault("vm", "kill-program", signal="KILL")["signal"] == "SIGKILL"
    eventually(lambda: "program ended -9" in emulator.serial("vm"))


def test_a_slow_cloud_shows_the_states_in_between(emulator: Emulator) -> None:
    emulator.faults(slow_s=0.3)
    resource = compute_v1.Instance(emulator_request("vm"))
    emulator.instances.insert_unary(project=PROJECT, zone=ZONE, instance_resource=resource)
    seen: list[str] = []
    while not seen or seen[-1] != "RUNNING":
        if (status := emulator.get("vm").status) not in seen[-1:]:
            seen.append(status)
    assert seen == ["PROVISIONING", "STAGING", "RUNNING"]


def emulator_request(name: str) -> dict[str, Any]:
    disk = {"boot": True, "initialize_params": {"source_image": "global/images/x"}}
    return {"name": name, "machine_type": "n1-standard-4", "disks": [disk]}


def test_addresses_stay_with_their_names_and_are_nobody_elses(emulator: Emulator, tmp_path: Path) -> None:
    def address(of: Emulator, name: str) -> str:
        return str(of.call(f"/emulator/v1/address?name={name}")["address"])

    assert address(emulator, "a") == address(emulator, "a") != address(emulator, "b")
    with running_emulator(tmp_path) as other:
        theirs = {address(other, f"vm-{n}") for n in range(20)}
        assert not theirs & {address(emulator, f"vm-{n}") for n in range(20)}


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_emulator(tmp_path: Path, signum: signal.Signals) -> None:
    with running_emulator(tmp_path) as emulator:
        for name in ("a", "b"):
            emulator.run(name, TENACIOUS)
            eventually(lambda name=name: "ready" in emulator.serial(name))  # type: ignore[misc]
        pids = emulator.vm_processes()
        assert len(pids) >= 10
        emulator.process.send_signal(signum)
        emulator.process.wait(10)
        eventually(lambda: not any(map(incarnations, pids)))
