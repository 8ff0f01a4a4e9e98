"""One program from directive to exit: its environment, its output, its end."""

from __future__ import annotations

import json
import re
import time

import pytest

from trainmaster.messaging.authenticate import read_token
from trainmaster_local.memory.bus import VALUE_BYTES_MAX

from .support.cloud import Cloud
from .support.vm import CLUSTER, NAME, Vm, is_alive


def test_program_gets_the_documented_environment_and_arguments(cloud: Cloud, vm: Vm) -> None:
    vm.program("""
        import json, os, sys
        print("ARGV", json.dumps(sys.argv[1:]))
        print("ENV", json.dumps(dict(os.environ)))
        """)
    vm.configure(args=["--name", "a b; $(rm x)", "--job-dir=x"], job_dir="gs://b/d")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit")

    assert json.loads(vm.wait_for_line("ARGV ")[5:]) == [
        "--name",
        "a b; $(rm x)",
        "--job-dir=x",
        "--job-dir",
        "gs://b/d",
    ]
    environment = json.loads(vm.wait_for_line("ENV ")[4:])
    assert json.loads(environment["TF_CONFIG"]) == {
        "cluster": CLUSTER,
        "task": {"type": "worker", "cloud": "w1-ml", "index": 1},
        "job": {"args": ["ü"]},
        "environment": "cloud",
    }
    assert json.loads(environment["CLUSTER_SPEC"])["task"] == {"type": "worker", "index": 1}
    assert {
        name: environment[name]
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "PYTHONUNBUFFERED")
    } == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "h0",
        "PYTHONUNBUFFERED": "1",
    }
    vm.wait_for_line("[trainmaster] Running module trainer.task.")
    vm.wait_for_line(
        "[trainmaster] Running command: python3 -m trainer.task --name 'a b; $(rm x)' --job-dir=x"
        " --job-dir gs://b/d"
    )


def test_success_is_reported_after_vm_ready_with_the_replicas_identity(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program("print('trained')")
    cloud.direct(attempt=2, incarnation=3)
    vm.boot()
    exit_event = cloud.wait_for_message("replica-exit")

    assert cloud.published() == [("vm-ready", (2, 3)), ("replica-exit", (2, 3))]
    ready = cloud.messages[0].body
    for name in ("at", "agent_started_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ready.pop(name))
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
    assert 0 < exit_event.body.pop("ran_s") < 60
    assert {
        name: exit_event.body[name]
        for name in exit_event.body
        if name not in ready and name != "at"
    } == {
        "cause": "process",
        "exit_status": 0,
        "signal": None,
        "out_of_memory": False,
        "error": None,
        "tail": "trained\n",
        "stderr_line": "",
    }
    for message in cloud.messages:
        assert read_token(message.attributes).startswith(
            "token-for:trainmaster/p/digits_1/2/worker/1/3:full"
        )
        assert len(read_token(message.attributes)) > VALUE_BYTES_MAX, (
            "a single attribute of this size would be rejected by Pub/Sub"
        )
    for line in (
        "Module completed; cleaning up.",
        "Clean up finished.",
        "Task completed successfully.",
    ):
        vm.wait_for_line(f"[trainmaster] {line}")


def test_vm_without_an_identity_publishes_without_a_token(cloud: Cloud, vm: Vm) -> None:
    vm.program("pass")
    cloud.identity_status = 404
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").attributes == {}


def test_exception_is_reported_with_type_message_and_innermost_frame(cloud: Cloud, vm: Vm) -> None:
    vm.program("""
        def main():
            raise ValueError("bad shape")
        print("step 1")
        main()
        """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["signal"]) == (1, None)
    frame = "trainer/task.py:3 in main"
    assert body["error"] == {
        "type": "ValueError",
        "message": "bad shape",
        "frame": frame,
        "own_frame": frame,
    }
    assert "step 1" in body["tail"]
    assert "ValueError: bad shape\n" in body["tail"]


def test_last_line_on_standard_error_is_reported_although_more_output_follows(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program("""
        import sys
        print("task.py: error: unrecognized arguments: --epoch", file=sys.stderr)
        print("=====", file=sys.stderr, flush=True)
        print("bye")
        sys.exit(2)
        """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["error"]) == (2, None)
    assert body["stderr_line"] == "task.py: error: unrecognized arguments: --epoch"


@pytest.mark.parametrize(
    ("stored", "reported"),
    [("gs://results/digits/model.pt", None), ("gs://results/digits_2/model.pt", True)],
)
def test_primary_that_leaves_nothing_below_its_job_dir_reports_that(
    cloud: Cloud, vm: Vm, stored: str, reported: bool | None
) -> None:
    vm.configure(job_dir="gs://results/digits", rank_base=0, vm_names=[NAME])
    cloud.objects[stored] = b"content"
    vm.program("pass")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body.get("left_nothing") is reported


def test_missing_module_is_reported(cloud: Cloud, vm: Vm) -> None:
    vm.configure(python_module="trainer.nothing")
    vm.program("pass")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    error = cloud.wait_for_message("replica-exit").body["error"]
    assert error == {
        "type": "ModuleNotFoundError",
        "message": "No module named trainer.nothing",
        "frame": "",
    }


def test_signal_that_deepspeed_prints_counts_before_the_traceback_of_a_peer(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program("""
        import sys, traceback
        said = "['python', 'a.py'] exits with return code = -11"
        print("[ERROR] [launch.py:259:sigkill_handler] " + said)
        try:
            raise RuntimeError("Connection closed by peer")
        except RuntimeError:
            traceback.print_exc()
        sys.exit(245)
        """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["error"]["message"]) == (
        245,
        "a process was ended by SIGSEGV",
    )


def test_failed_program_reports_its_status_or_signal(cloud: Cloud, vm: Vm) -> None:
    vm.configure(args=["--lr", "0.1"])
    vm.boot()
    programs = [
        ("import sys; sys.exit(42)", 42, None, "returned non-zero exit status 42."),
        ("import os; os.kill(os.getpid(), 11)", None, 11, "died with <Signals.SIGSEGV"),
        # The kernel has not counted it.
        ("import os; os.kill(os.getpid(), 9)", None, 9, "died with <Signals.SIGKILL"),
    ]
    for attempt, (source, exit_status, signal, how) in enumerate(programs, start=1):
        vm.program(source)
        cloud.direct(attempt=attempt, incarnation=1)
        body = cloud.wait_for_message("replica-exit", (attempt, 1)).body
        end = ("process", exit_status, signal, None)
        assert (body["cause"], body["exit_status"], body["signal"], body["error"]) == end, source
        vm.wait_for_line(
            f"[trainmaster] Command '['python3', '-m', 'trainer.task', '--lr', '0.1']' {how}"
        )
    vm.wait_for_line("[trainmaster] No packages to install.")


def test_crash_is_reported_with_its_stack_however_many_modules_python_lists_after_it(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program("""
        import _ctypes, ctypes, sys
        for number in range(200):
            sys.modules[f"a_library_with_many_modules.part_{number}"] = _ctypes
        ctypes.string_at(0)
        """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["signal"], body["error"]) == (11, None)
    current = body["tail"].partition("Current thread 0x")[2]
    assert "in string_at" in current
    assert "trainer/task.py" in current
    assert "a_library" not in body["tail"]


def test_arguments_that_are_too_long_are_reported_as_an_exit(cloud: Cloud, vm: Vm) -> None:
    vm.configure(args=["x" * 200_000])
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["error"]["type"]) == (126, "OSError")


def test_output_lines_appear_whole_and_in_order_while_the_program_runs(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program("""
        import signal, sys
        out = sys.stdout.buffer
        out.write(b"OUT caf\\xe9 \\xff\\n"); out.write(b"OUT " + b"x" * 50_000 + b"\\n")
        for number in range(500):
            print("OUT", number)
            print("ERR", number, file=sys.stderr)
        print("READY")
        signal.pause()
        """)
    cloud.direct(attempt=1, incarnation=1)
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
    assert cloud.published() == [("vm-ready", (1, 1))]


def test_child_processes_end_with_the_program(cloud: Cloud, vm: Vm) -> None:
    vm.program("""
        import subprocess, sys
        ignore_sigterm = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
        sleep = [sys.executable, "-c", ignore_sigterm]
        print("CHILD", subprocess.Popen(sleep).pid)
        print("DAEMON", subprocess.Popen(sleep, start_new_session=True).pid)
        sys.exit(3)
        """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 3
    for name in ("CHILD ", "DAEMON "):
        assert not is_alive(int(vm.wait_for_number(name)))


def test_events_arrive_in_order_after_an_outage_of_pubsub(cloud: Cloud, vm: Vm) -> None:
    vm.program("import sys; print('TRAINING'); sys.exit(5)")
    cloud.direct(attempt=1, incarnation=1)
    with cloud.publishing_fails():
        vm.boot()
        vm.wait_for_line("TRAINING")
        cloud.wait_for_refusal("vm-ready")
    cloud.wait_for_message("replica-exit")
    assert cloud.published() == [("vm-ready", (1, 1)), ("replica-exit", (1, 1))]
    assert cloud.messages[1].body["exit_status"] == 5
    assert cloud.messages[1].body["at"] < time.strftime("%Y-%m-%dT%H:%M:%S.999Z", time.gmtime())
