"""Agent crashes, reboots and shutdowns: nothing is lost, and no incarnation is lived twice."""

from __future__ import annotations

import base64
import io
import os
import shutil
import signal
import zipfile

import pytest

from .support.cloud import Cloud
from .support.vm import Vm, is_alive

BLOCKS = """
    import os, signal, time
    print("AGENT", os.getppid())
    print("PID", os.getpid())
    print("START", time.monotonic())
    signal.pause()
"""


def test_a_killed_agent_comes_back_kills_the_orphan_and_tells_that_its_life_is_over(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("vm-ready")
    vm.wait_for_line("START ")
    orphan = int(vm.wait_for_number("PID "))
    os.kill(int(vm.wait_for_number("AGENT ")), signal.SIGKILL)

    body = cloud.wait_for_message("replica-exit", (1, 1)).body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("vm_restarted", None, None)
    assert not is_alive(orphan)
    cloud.direct(1, 2)
    vm.wait_for_line("START ", 2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert cloud.said() == [("vm-ready", (1, 1)), ("replica-exit", (1, 1)), ("vm-ready", (1, 2))]


def test_a_reboot_into_a_newer_directive_says_nothing_about_the_old_life(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START ")
    cloud.wait_for_message("vm-ready", (1, 1))
    vm.power_off()
    cloud.direct(1, 2)
    vm.boot()
    vm.wait_for_line("START ", 2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert cloud.said() == [("vm-ready", (1, 1)), ("vm-ready", (1, 2))]


def test_an_exit_not_accepted_before_the_reboot_is_told_after_it(cloud: Cloud, vm: Vm) -> None:
    vm.program("import sys; sys.exit(7)")
    cloud.direct(1, 1)
    with cloud.publishing_fails():
        vm.boot()
        vm.wait_for_line("[trainmaster] Module ended with exit status 7")
        vm.terminate()
        assert vm.wait() == 0
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("process", 7)


def test_an_accepted_exit_is_not_told_again_after_a_reboot(cloud: Cloud, vm: Vm) -> None:
    vm.program("import sys; print('START'); sys.exit(7)")
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("replica-exit")
    vm.wait_for_line("[trainmaster] Module ended")
    vm.terminate()
    assert vm.wait() == 0
    vm.boot()
    vm.wait_for_line("[trainmaster] Waiting for a directive.", 2)
    cloud.direct(1, 2)
    cloud.wait_for_message("replica-exit", (1, 2))
    assert [subject for topic, subject in cloud.said() if topic == "replica-exit"] == [(1, 1), (1, 2)]
    assert len(vm.lines("START")) == 2


@pytest.mark.parametrize("damage", ["another VM's", "cut short"])
def test_a_state_file_is_not_believed_if_it_is(damage: str, cloud: Cloud, vm: Vm) -> None:
    vm.program("print('START')")
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("replica-exit")
    vm.terminate()
    vm.wait()
    if damage == "cut short":
        (vm.work / "state.json").write_text('{"instance_id": "47')
    else:
        cloud.set("instance/id", "4712")
    vm.boot()
    vm.wait_for_line("START", 2)


def test_a_shutdown_gives_the_program_its_grace_and_tells_its_end(cloud: Cloud, vm: Vm) -> None:
    vm.program(
        """
        import signal, sys
        def save(*_):
            print("SAVED")
            sys.exit(9)
        signal.signal(signal.SIGTERM, save)
        print("START")
        signal.pause()
        """
    )
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    vm.terminate()
    assert vm.wait() == 0
    assert vm.lines("SAVED")
    told = cloud.wait_for_message("replica-exit").body
    assert (told["cause"], told["exit_status"]) == ("vm_stopping", 9)


def test_a_program_that_ends_well_because_its_vm_goes_has_not_completed(cloud: Cloud, vm: Vm) -> None:
    """And whichever of the two the shutdown signals first: here the program, a moment before the agent."""
    vm.program(
        """
        import os, signal, sys
        def save(*_):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("START", os.getpid())
        while True:
            signal.pause()
        """
    )
    cloud.direct(1, 1)
    vm.boot()
    program = int(vm.wait_for_line("START").split()[1])
    os.kill(program, signal.SIGTERM)
    vm.terminate()
    assert vm.wait() == 0
    told = cloud.wait_for_message("replica-exit").body
    assert (told["cause"], told["exit_status"]) == ("vm_stopping", 0)


def test_a_shutdown_does_not_wait_for_a_program_or_a_pubsub_that_never_answers(cloud: Cloud, vm: Vm) -> None:
    vm.gang(grace_s=0.3)
    vm.program("import signal; signal.signal(15, signal.SIG_IGN); print('START'); signal.pause()")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    with cloud.publishing_fails():
        vm.terminate()
        assert vm.wait() == 0
    vm.wait_for_line("[trainmaster] Module ended with signal 9, because its VM goes.")


def test_an_idle_vm_shuts_down_at_once(vm: Vm) -> None:
    vm.boot()
    vm.wait_for_line("[trainmaster] Waiting for a directive.")
    vm.terminate()
    assert vm.wait() == 0


def test_the_agent_is_fetched_again_until_the_metadata_server_has_it(cloud: Cloud, vm: Vm) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", "print('FETCHED')")
    cloud.set("instance/attributes/trainmaster-agent", None)
    vm.boot()
    vm.wait_for_line("[trainmaster] The agent cannot be fetched")
    cloud.set("instance/attributes/trainmaster-agent", base64.encodebytes(archive.getvalue()).decode())
    vm.wait_for_line("FETCHED")
    assert vm.wait() == 0


def test_a_machine_with_little_more_than_python_and_no_home_variable_starts_too(cloud: Cloud, vm: Vm) -> None:
    bin_ = vm.home / "bin"
    bin_.mkdir()
    for name in ("id", "cut", "mkdir", "sleep", "python3"):
        found = shutil.which(name, path=vm.environ["PATH"])
        assert found is not None
        (bin_ / name).write_text(f'#!/bin/bash\nexec {found} "$@"\n')
        (bin_ / name).chmod(0o755)
    (bin_ / "getent").write_text(f"#!/bin/bash\necho root:x:0:0:root:{vm.home}:/bin/bash\n")
    (bin_ / "getent").chmod(0o755)
    vm.program("import os; print('HOME', os.environ['HOME'])")
    cloud.direct(1, 1)
    vm.boot({"PATH": str(bin_), "HOME": None})
    assert vm.wait_for_line("HOME ") == f"HOME {vm.home}"
