"""One program from directive to exit: its environment, its output, its end."""

from __future__ import annotations

import json
import re
import time

import pytest

from shared.flows.sender_identity import token_of
from shared.memory.bus import ATTRIBUTE_BYTES_MAX

from .support.cloud import Cloud
from .support.vm import CLUSTER, NAME, Vm, is_alive


def test_a_program_gets_the_documented_environment_arguments_and_job_dir(cloud: Cloud, vm: Vm) -> None:
    vm.program(
        """
        import json, os, sys
        print("ARGV", json.dumps(sys.argv[1:]))
        print("ENV", json.dumps(dict(os.environ)))
        """
    )
    vm.gang(args=["--name", "a b; $(rm x)", "--job-dir=x"], job_dir="gs://b/d")
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("replica-exit")

    assert json.loads(vm.wait_for_line("ARGV ")[5:]) == [
        "--name", "a b; $(rm x)", "--job-dir=x", "--job-dir", "gs://b/d",
    ]  # fmt: skip
    environment = json.loads(vm.wait_for_line("ENV ")[4:])
    assert json.loads(environment["TF_CONFIG"]) == {
        "cluster": CLUSTER,
        "task": {"type": "worker", "cloud": "w1-ml", "index": 1},
        "job": {"args": ["ü"]},
        "environment": "cloud",
    }
    assert json.loads(environment["CLUSTER_SPEC"])["task"] == {"type": "worker", "index": 1}
    assert {name: environment[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "PYTHONUNBUFFERED")} == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "h0",
        "PYTHONUNBUFFERED": "1",
    }
    vm.wait_for_line("[trainmaster] Running module trainer.task.")
    vm.wait_for_line(
        "[trainmaster] Running command: python3 -m trainer.task --name 'a b; $(rm x)' --job-dir=x --job-dir gs://b/d"
    )


def test_a_success_is_told_with_the_identity_of_the_replica_after_its_vm_ready(cloud: Cloud, vm: Vm) -> None:
    vm.program("print('trained')")
    cloud.direct(2, 3)
    vm.boot()
    exit_event = cloud.wait_for_message("replica-exit")

    assert cloud.said() == [("vm-ready", (2, 3)), ("replica-exit", (2, 3))]
    ready = cloud.messages[0].body
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ready.pop("at"))
    assert ready == {
        "version": 1,
        "job_id": "digits_1",
        "attempt": 2,
        "task_type": "worker",
        "task_index": 1,
        "incarnation": 3,
        "vm_generation": 1,
        "vm": {"name": NAME, "zone": "us-central1-a", "instance_id": "4711"},
    }
    assert {name: exit_event.body[name] for name in exit_event.body if name not in ready and name != "at"} == {
        "cause": "process",
        "exit_status": 0,
        "signal": None,
        "out_of_memory": False,
        "error": None,
        "tail": "trained\n",
    }
    for message in cloud.messages:
        assert token_of(message.attributes).startswith("token-for:trainmaster/p/digits_1/2/worker/1/3:full")
        assert len(token_of(message.attributes)) > ATTRIBUTE_BYTES_MAX, "in one value Pub/Sub would not take it"
    for line in ("Module completed; cleaning up.", "Clean up finished.", "Task completed successfully."):
        vm.wait_for_line(f"[trainmaster] {line}")


def test_a_machine_without_an_identity_publishes_without_one(cloud: Cloud, vm: Vm) -> None:
    vm.program("pass")
    cloud.identity_status = 404
    cloud.direct(1, 1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").attributes == {}


def test_an_exception_is_told_as_type_message_and_innermost_frame(cloud: Cloud, vm: Vm) -> None:
    vm.program(
        """
        def main():
            raise ValueError("bad shape")
        print("step 1")
        main()
        """
    )
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["signal"]) == (1, None)
    assert body["error"] == {"type": "ValueError", "message": "bad shape", "frame": "trainer/task.py:3 in main"}
    assert "step 1" in body["tail"]
    assert "ValueError: bad shape\n" in body["tail"]


def test_a_module_that_does_not_exist_is_told_as_such(cloud: Cloud, vm: Vm) -> None:
    vm.gang(python_module="trainer.nothing")
    vm.program("pass")
    cloud.direct(1, 1)
    vm.boot()
    error = cloud.wait_for_message("replica-exit").body["error"]
    assert error == {"type": "ModuleNotFoundError", "message": "No module named trainer.nothing", "frame": ""}


@pytest.mark.parametrize(
    ("source", "exit_status", "signal"),
    [
        pytest.param("import sys; sys.exit(42)", 42, None, id="its own status"),
        pytest.param("import os; os.kill(os.getpid(), 11)", None, 11, id="a signal"),
        pytest.param("import os; os.kill(os.getpid(), 9)", None, 9, id="SIGKILL without the kernel's account of it"),
    ],
)
def test_a_failure_is_told_with(cloud: Cloud, vm: Vm, source: str, exit_status: int | None, signal: int | None) -> None:
    vm.program(source)
    cloud.direct(1, 1)
    vm.gang(args=["--lr", "0.1"])
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("process", exit_status, signal)
    assert body["error"] is None
    vm.wait_for_line("[trainmaster] No packages to install.")
    how = f"returned non-zero exit status {exit_status}." if signal is None else "died with <Signals.SIG"
    vm.wait_for_line(f"[trainmaster] Command '['python3', '-m', 'trainer.task', '--lr', '0.1']' {how}")


def test_arguments_no_program_can_be_started_with_are_an_exit_too(cloud: Cloud, vm: Vm) -> None:
    vm.gang(args=["x" * 200_000])
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["error"]["type"]) == (126, "OSError")


def test_lines_come_out_whole_in_order_and_before_the_program_ends(cloud: Cloud, vm: Vm) -> None:
    vm.program(
        """
        import signal, sys
        out = sys.stdout.buffer
        out.write(b"OUT caf\\xe9 \\xff\\n"); out.write(b"OUT " + b"x" * 50_000 + b"\\n")
        for number in range(500):
            print("OUT", number)
            print("ERR", number, file=sys.stderr)
        print("READY")
        signal.pause()
        """
    )
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("READY")
    vm.wait_for_line("ERR 499")
    assert vm.lines("OUT") == [
        b"OUT caf\xe9 \xff",
        b"OUT " + b"x" * 50_000,
        *(b"OUT %d" % number for number in range(500)),
    ]
    assert vm.lines("ERR") == [b"ERR %d" % number for number in range(500)]
    cloud.wait_for_message("vm-ready")
    assert cloud.said() == [("vm-ready", (1, 1))]


def test_what_a_program_leaves_behind_ends_with_it(cloud: Cloud, vm: Vm) -> None:
    vm.program(
        """
        import subprocess, sys
        sleep = [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"]
        print("CHILD", subprocess.Popen(sleep).pid)
        print("DAEMON", subprocess.Popen(sleep, start_new_session=True).pid)
        sys.exit(3)
        """
    )
    cloud.direct(1, 1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 3
    for name in ("CHILD ", "DAEMON "):
        assert not is_alive(int(vm.wait_for_number(name)))


def test_a_program_starts_and_its_events_arrive_in_order_although_pubsub_is_down_meanwhile(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program("import sys; print('TRAINING'); sys.exit(5)")
    cloud.direct(1, 1)
    with cloud.publishing_fails():
        vm.boot()
        vm.wait_for_line("TRAINING")
        cloud.wait_for_refusal("vm-ready")
    cloud.wait_for_message("replica-exit")
    assert cloud.said() == [("vm-ready", (1, 1)), ("replica-exit", (1, 1))]
    assert cloud.messages[1].body["exit_status"] == 5
    assert cloud.messages[1].body["at"] < time.strftime("%Y-%m-%dT%H:%M:%S.999Z", time.gmtime())
