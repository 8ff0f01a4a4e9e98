"""A VM that shuts down: Google's runner is stopped alone, so that only the shutdown script tells the agent of it."""

from __future__ import annotations

import subprocess

from shared.wiring.agent_archive import agent_files

from .support.cloud import PATIENCE_S, Cloud
from .support.vm import Vm


def shut_down(vm: Vm) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/bash", "-c", agent_files()["shutdown-script"]], env=vm.environ, cwd=vm.home)


def test_the_agent_says_goodbye_before_the_network_is_gone(cloud: Cloud, vm: Vm) -> None:
    vm.program("import time; print('START', flush=True); time.sleep(600)")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    script = shut_down(vm)
    assert vm.wait() == 0
    assert script.wait(PATIENCE_S) == 0
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_stopping"


def test_it_waits_for_the_agent(cloud: Cloud, vm: Vm) -> None:
    vm.program(
        """
        import os, signal, time
        def save(*_):
            while not os.path.exists(os.path.expanduser("~/saved")):
                time.sleep(0.02)
            raise SystemExit
        signal.signal(signal.SIGTERM, save)
        print("START", flush=True)
        time.sleep(600)
        """
    )
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    script = shut_down(vm)
    vm.wait_for_line("[trainmaster] The VM is shutting down.")
    assert script.poll() is None
    (vm.home / "saved").touch()
    assert vm.wait() == 0
    assert script.wait(PATIENCE_S) == 0


def test_a_number_of_an_earlier_boot_is_nobodys(vm: Vm) -> None:
    vm.work.mkdir(exist_ok=True)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        (vm.work / "startup").write_text(f"00000000-0000-0000-0000-000000000000 {bystander.pid}\n")
        assert shut_down(vm).wait(PATIENCE_S) == 0
        assert bystander.poll() is None
        bystander.kill()


def test_a_vm_that_never_got_as_far_just_goes(vm: Vm) -> None:
    assert shut_down(vm).wait(PATIENCE_S) == 0
