"""Agent crashes, reboots and shutdowns: no exit is lost, and no incarnation runs twice.

An incarnation is one execution of the program. A directive orders the agent to run the next one, or
to hold it until its peers are ready.
"""

from __future__ import annotations

import os
import shutil
import signal

from trainmaster.packaging.agent_archive import agent_archive, agent_object

from .support.cloud import Cloud
from .support.vm import BUCKET, Vm, install_agent, is_alive

AGENT = "instance/attributes/trainmaster-agent"

BLOCKS = """
    import os, signal, time
    print("AGENT", os.getppid())
    print("PID", os.getpid())
    print("START", time.monotonic())
    signal.pause()
"""


def test_killed_agent_restarts_kills_the_orphan_and_reports_its_end(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("vm-ready")
    vm.wait_for_line("START ")
    orphan = int(vm.wait_for_number("PID "))
    os.kill(int(vm.wait_for_number("AGENT ")), signal.SIGKILL)

    body = cloud.wait_for_message("replica-exit", (1, 1)).body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("vm_restarted", None, None)
    assert not is_alive(orphan)
    cloud.direct(attempt=1, incarnation=2)
    vm.wait_for_line("START ", number=2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert cloud.published() == [
        ("vm-ready", (1, 1)),
        ("replica-exit", (1, 1)),
        ("vm-ready", (1, 2)),
    ]

    # It starts from the disk when the metadata server answers again: its object may be gone from
    # the bucket. Until then, the program runs without an agent, and keeps running.
    orphan = int(vm.wait_for_number("PID ", number=2))
    cloud.set(AGENT, None)
    cloud.objects.clear()
    os.kill(int(vm.wait_for_number("AGENT ", number=2)), signal.SIGKILL)
    vm.wait_for_line("[trainmaster] The agent cannot be downloaded")
    assert is_alive(orphan)
    cloud.set(AGENT, f"gs://{BUCKET}/{agent_object(agent_archive(compiled=True))}")
    assert cloud.wait_for_message("replica-exit", (1, 2)).body["cause"] == "vm_restarted"
    assert not is_alive(orphan)


def test_compiler_lock_of_a_killed_program_does_not_block_the_next_one(
    cloud: Cloud, vm: Vm
) -> None:
    """PyTorch's `FileBaton`, with which DeepSpeed and others compile, waits while its lock file
    exists. This program would wait forever in place of being killed.
    """
    vm.program("""
        import os, pathlib, signal
        lock = pathlib.Path.home() / ".cache/torch_extensions/py311_cpu/shm/lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        (lock.parent / "shm.so").touch()
        if not lock.exists():
            lock.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    for incarnation in (1, 2):
        cloud.direct(attempt=1, incarnation=incarnation)
        if incarnation == 1:
            vm.boot()
        assert (
            cloud.wait_for_message("replica-exit", (1, incarnation)).body["signal"]
            == signal.SIGKILL
        )


def test_reboot_into_a_newer_directive_or_a_hold_reports_no_exit_of_the_old_one(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START ")
    cloud.wait_for_message("vm-ready", (1, 1))
    vm.power_off()
    cloud.direct(attempt=1, incarnation=2)
    vm.boot()
    vm.wait_for_line("START ", number=2)
    cloud.wait_for_message("vm-ready", (1, 2))
    vm.power_off()
    cloud.direct(attempt=1, incarnation=3, action="hold")
    vm.boot()
    ended = cloud.wait_for_message("vm-ready", (1, 3)).body["ended"]
    assert (ended["attempt"], ended["incarnation"], ended["cause"]) == (1, 2, "vm_restarted")
    cloud.direct(attempt=1, incarnation=3)
    vm.wait_for_line("START ", number=3)
    assert cloud.published() == [("vm-ready", (1, 1)), ("vm-ready", (1, 2)), ("vm-ready", (1, 3))]


def test_unaccepted_exit_is_reported_after_a_reboot(cloud: Cloud, vm: Vm) -> None:
    vm.program("import sys; sys.exit(7)")
    cloud.direct(attempt=1, incarnation=1)
    with cloud.publishing_fails():
        vm.boot()
        vm.wait_for_line("[trainmaster] Module ended with exit status 7")
        vm.terminate()
        assert vm.wait() == 0
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("process", 7)


def test_accepted_exit_is_reported_again_after_a_reboot_until_a_directive_answers_it(
    cloud: Cloud, vm: Vm
) -> None:
    """Pub/Sub may lose the message after it has accepted it, and the reboot ends the repetition of
    the agent before.
    """
    vm.program("import sys; print('START'); sys.exit(7)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    first = cloud.wait_for_message("replica-exit")
    vm.wait_for_line("[trainmaster] Module ended")
    vm.terminate()
    assert vm.wait() == 0
    vm.boot()
    again = cloud.wait_for_message("replica-exit", (1, 1), number=2)
    assert again.body == first.body
    assert len(vm.lines("START")) == 1
    vm.terminate()
    assert vm.wait() == 0
    cloud.direct(attempt=1, incarnation=2)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 2))
    cloud.direct(attempt=1, incarnation=3, action="hold")
    vm.wait_for_line("[trainmaster] Directive: hold attempt 1, incarnation 3")
    vm.terminate()
    assert vm.wait() == 0
    vm.boot()
    vm.wait_for_line("[trainmaster] Waiting for a directive.", number=4)  # of the fourth boot
    cloud.direct(attempt=1, incarnation=3)
    cloud.wait_for_message("replica-exit", (1, 3))
    exits = [subject for topic, subject in cloud.published() if topic == "replica-exit"]
    assert exits == [(1, 1), (1, 1), (1, 2), (1, 3)]
    assert len(vm.lines("START")) == 3


def test_invalid_state_file_is_ignored(cloud: Cloud, vm: Vm) -> None:
    vm.program("print('START')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    for exits, damage in enumerate(("another VM's", "cut short"), start=1):
        cloud.wait_for_message("replica-exit", number=exits)
        vm.terminate()
        vm.wait()
        if damage == "cut short":
            (vm.work / "state").write_bytes((vm.work / "state").read_bytes()[:40])
        else:
            cloud.set("instance/id", "4712")
        vm.boot()
        vm.wait_for_line("START", number=exits + 1)


def test_shutdown_gives_the_program_its_grace_and_reports_its_exit(cloud: Cloud, vm: Vm) -> None:
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
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    vm.terminate()
    assert vm.wait() == 0
    assert vm.lines("SAVED")
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("vm_stopping", 9)


def test_exit_0_caused_by_a_shutdown_is_not_a_completion(cloud: Cloud, vm: Vm) -> None:
    """The shutdown may signal the program and the agent in any order.

    Here the program gets its signal first.
    """
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
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    program = int(vm.wait_for_line("START").split()[1])
    os.kill(program, signal.SIGTERM)
    vm.terminate()
    assert vm.wait() == 0
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("vm_stopping", 0)


def test_shutdown_does_not_wait_for_a_stuck_program_or_pubsub(cloud: Cloud, vm: Vm) -> None:
    vm.configure(grace_s=0.3)
    vm.program("import signal; signal.signal(15, signal.SIG_IGN); print('START'); signal.pause()")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    with cloud.publishing_fails():
        vm.terminate()
        assert vm.wait() == 0
    vm.wait_for_line("[trainmaster] Module ended with signal 9, because its VM is about to stop.")


def test_missing_address_of_the_agent_is_read_again_and_an_idle_vm_shuts_down_at_once(
    cloud: Cloud, vm: Vm
) -> None:
    cloud.set(AGENT, None)
    vm.boot()
    vm.wait_for_line("[trainmaster] The agent cannot be downloaded")
    install_agent(cloud)
    vm.wait_for_line("[trainmaster] Waiting for a directive.")
    vm.terminate()
    assert vm.wait() == 0


def test_startup_works_with_few_commands_and_no_home_variable(cloud: Cloud, vm: Vm) -> None:
    bin_ = vm.home / "bin"
    bin_.mkdir()
    for name in ("id", "cut", "mkdir", "sleep", "python3"):
        program_path = shutil.which(name, path=vm.environ["PATH"])
        assert program_path is not None
        (bin_ / name).write_text(f'#!/bin/bash\nexec {program_path} "$@"\n')
        (bin_ / name).chmod(0o755)
    (bin_ / "getent").write_text(f"#!/bin/bash\necho root:x:0:0:root:{vm.home}:/bin/bash\n")
    (bin_ / "getent").chmod(0o755)
    vm.program("import os; print('HOME', os.environ['HOME'])")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot({"PATH": str(bin_), "HOME": None})
    assert vm.wait_for_line("HOME ") == f"HOME {vm.home}"
