"""The shutdown script, without which a shutdown would stop Google's runner alone and never signal
the agent.
"""

from __future__ import annotations

import subprocess

from trainmaster.packaging.agent_archive import AGENT

from .support.cloud import TIMEOUT_S, Cloud
from .support.vm import Vm


def shut_down(vm: Vm) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/bash", AGENT / "shutdown.sh"], env=vm.environ, cwd=vm.home)


def test_agent_reports_the_exit_during_the_shutdown_script(cloud: Cloud, vm: Vm) -> None:
    vm.program("import time; print('START', flush=True); time.sleep(600)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    script = shut_down(vm)
    assert vm.wait() == 0
    assert script.wait(TIMEOUT_S) == 0
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_stopping"


def test_shutdown_script_waits_for_the_agent(cloud: Cloud, vm: Vm) -> None:
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
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    script = shut_down(vm)
    vm.wait_for_line("[trainmaster] The VM is shutting down.")
    assert script.poll() is None
    (vm.home / "saved").touch()
    assert vm.wait() == 0
    assert script.wait(TIMEOUT_S) == 0


def test_process_id_of_an_earlier_boot_is_not_signalled(vm: Vm) -> None:
    vm.work.mkdir(exist_ok=True)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        (vm.work / "startup").write_text(f"00000000-0000-0000-0000-000000000000 {bystander.pid}\n")
        assert shut_down(vm).wait(TIMEOUT_S) == 0
        assert bystander.poll() is None
        bystander.kill()


def test_shutdown_script_ends_at_once_if_the_agent_never_started(vm: Vm) -> None:
    assert shut_down(vm).wait(TIMEOUT_S) == 0
