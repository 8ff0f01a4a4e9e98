"""Errors of launchers: they say that a worker failed, and the worker's own traceback says why.

The files of `launcher_output` are recorded from torch 2.13: two nodes under gloo, of which one
fails or is killed; in `torchrun.ranks`, one node of three ranks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.agent.program.tracebacks import parse_traceback

RECORDED = Path(__file__).with_name("launcher_output")
SPAWN = "trainer/spawn.py"
TB = "Traceback (most recent call last):\n"
WORKER = TB + '  File "/app/trainer/task.py", line 7, in main\n    step()\nValueError: bad batch\n'
LAUNCHER = (
    TB + '  File "/usr/local/lib/python3.11/site-packages/launcher/run.py", line 9, in launch\n   '
    " raise error\n"
)
ROOT_CAUSE = (
    "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1"
    " (pid: 7)\n"
)
CHILD_FAILED = LAUNCHER + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"

LAUNCHER_ERRORS = {
    "torchrun": CHILD_FAILED + ROOT_CAUSE,
    "torch.multiprocessing": (
        LAUNCHER
        + "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit"
        " code 1\n"
    ),
    "accelerate": (
        LAUNCHER
        + "subprocess.CalledProcessError: Command '['/usr/local/bin/python', 'trainer/task.py']' "
        "returned non-zero exit status 1.\n"
    ),
    "accelerate without Python": (
        LAUNCHER.replace("in launch", "in simple_launcher")
        + "subprocess.CalledProcessError: Command '['./train.sh']' returned non-zero exit status"
        " 1.\n"
    ),
    "own module that calls torchrun": (
        CHILD_FAILED
        + ROOT_CAUSE
        + LAUNCHER
        + "subprocess.CalledProcessError: Command 'torchrun trainer/task.py' died with"
        " <Signals.SIGTERM: 15>.\n"
    ),
    "horovodrun": (
        LAUNCHER
        + "RuntimeError: Horovod detected that one or more processes exited with non-zero status,"
        " thus causing the job to be terminated. The first process to do so was:\nProcess name:"
        " 0\nExit code: 1\n"
    ),
    "horovodrun with mpirun": LAUNCHER + "RuntimeError: mpirun failed with exit code 1\n",
    "ray": LAUNCHER + "ray.train.base_trainer.TrainingFailedError: The Ray Train run failed.\n",
    "ray actor": (
        LAUNCHER
        + "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    ),
}


def prefixed(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # file → last part of the type, words of the message, and the line in the program
        ("torchrun.culprit", ("ValueError", "bad batch", "trainer/train.py:7 in <module>")),
        (
            "torchrun.peer",
            ("RuntimeError", "Connection closed by peer", "trainer/train.py:9 in <module>"),
        ),
        ("torchrun.ranks", ("ValueError", "bad batch", "trainer/train.py:5 in <module>")),
        ("torchrun.killed", ("ChildFailedError", "Signal 9 (SIGKILL) received by PID 2056", "")),
        ("spawn.culprit", ("ValueError", "bad batch", "trainer/spawn.py:7 in f")),
        ("spawn.peer", ("RuntimeError", "Connection closed by peer", "trainer/spawn.py:8 in f")),
        (
            "spawn.killed",
            (
                "ProcessExitedException",
                "terminated with signal SIGKILL",
                "trainer/spawn.py:9 in <module>",
            ),
        ),
    ],
)
def test_error_in_recorded_output_is_that_of_the_worker(
    name: str, expected: tuple[str, str, str]
) -> None:
    error = parse_traceback((RECORDED / f"{name}.txt").read_text())
    assert error is not None
    type_, words, own_frame = expected
    assert (error["type"].rpartition(".")[2], error["own_frame"]) == (type_, own_frame)
    assert words in error["message"]


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        ("torchrun", "Signal 9 (SIGKILL) received by PID 7"),
        ("torch.multiprocessing", "terminated with signal SIGKILL"),
        ("accelerate", "died with <Signals.SIGKILL: 9>."),
    ],
)
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
def test_signal_that_ended_a_worker_counts_before_the_errors_of_its_peers(
    launcher: str, message: str, signal: str
) -> None:
    """Launchers end the other workers by SIGTERM."""
    end = message.replace("SIGKILL", signal)
    # What the launcher prints before it says how the worker ended: torchrun does on a line of its
    # own, and the others at the end of their last line.
    before = LAUNCHER_ERRORS[launcher].partition("returned")[0].partition("terminated")[0]
    before = before.rstrip("\n") + ("\n" if launcher == "torchrun" else "")
    error = parse_traceback(f"{WORKER}{before}{end}\n")
    assert error is not None
    assert error["message"] == (message if signal == "SIGKILL" else "bad batch")


JAX_ABORT = """\
F1126 19:09:37.536597   30172 x.h:80] Terminating process because the JAX distributed \
service detected fatal errors.
1
*** Check failure stack trace: ***
    @     0x7ff7f7640634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
Fatal Python error: Aborted

Thread 0x00007ff7ff29db80 (most recent call first):
  File "/app/trainer/task.py", line 30 in <module>
"""
NCCL_ABORT = """\
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, \
OpType=ALLREDUCE)
Fatal Python error: Aborted
"""
RAY_KILLED = (
    LAUNCHER
    + """\
ray.train.WorkerGroupError: Training failed due to worker errors:
[Rank 0 Error Snippet]:
A worker health check failed.
The actor died unexpectedly before finishing this task.
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR \
Worker exit detail: Worker

[Rank 1 Error Snippet]:
"""
    + WORKER.replace("ValueError: bad batch", "RuntimeError: Connection closed by peer")
)
"""Recorded from Ray 2.60, shortened. Also where the controller logs it, each line with a prefix."""
LAUNCHED_ABORT = CHILD_FAILED + ROOT_CAUSE + "  traceback : Signal 6 (SIGABRT) received by PID 7\n"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            JAX_ABORT,
            "Terminating process because the JAX distributed service detected fatal errors.",
        ),
        (NCCL_ABORT + LAUNCHED_ABORT, NCCL_ABORT.splitlines()[1].partition("  what():  ")[2]),
    ],
    ids=["JAX", "NCCL below torchrun"],
)
def test_words_with_which_a_runtime_aborts_itself_are_the_error(output: str, message: str) -> None:
    assert parse_traceback("step 1\n" + output) == {
        "type": "Aborted",
        "message": message,
        "frame": "",
    }


def test_worker_of_ray_that_died_counts_before_the_traceback_of_its_peer() -> None:
    error = parse_traceback("step 1\n" + RAY_KILLED, "trainer")
    assert error is not None
    assert error["message"] == "The actor is dead because its worker process has died"
    logged = parse_traceback(prefixed("(TrainController pid=7) ", RAY_KILLED) + WORKER)
    assert logged is not None
    assert logged["message"] == "bad batch"


def test_abort_of_a_launched_process_without_words_is_named() -> None:
    error = parse_traceback("step 1\n" + LAUNCHED_ABORT)
    assert error is not None
    assert error["message"] == "Signal 6 (SIGABRT) received by PID 7"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("-9", "a process was ended by SIGKILL"),
        ("-11", "a process was ended by SIGSEGV"),
        ("-15", "bad batch"),
        ("1", "bad batch"),
    ],
)
def test_signal_that_ended_a_process_of_deepspeed_is_the_error(code: str, expected: str) -> None:
    log = (
        "[2026-11-26 21:37:21,421] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 4728\n"
    )
    log += (
        "[2026-11-26 21:37:21,422] [ERROR] [launch.py:259:sigkill_handler] ['a.py'] exits with"
        f" return code = {code}\n"
    )
    error = parse_traceback(WORKER + log)
    assert error is not None
    assert error["message"] == expected


@pytest.mark.parametrize("launcher", LAUNCHER_ERRORS)
def test_error_before_that_of_the_launcher_counts(launcher: str) -> None:
    error = parse_traceback("step 1\n" + WORKER + LAUNCHER_ERRORS[launcher])
    assert error is not None
    assert (error["type"], error["message"], error["frame"]) == (
        "ValueError",
        "bad batch",
        "trainer/task.py:7 in main",
    )


@pytest.mark.parametrize("launcher", LAUNCHER_ERRORS)
def test_error_of_a_launcher_alone_is_none(launcher: str) -> None:
    assert parse_traceback("step 1\n" + LAUNCHER_ERRORS[launcher]) is None


@pytest.mark.parametrize("launcher", LAUNCHER_ERRORS)
def test_handled_error_long_before_that_of_the_launcher_does_not_count(launcher: str) -> None:
    assert parse_traceback(WORKER + "step\n" * 300 + LAUNCHER_ERRORS[launcher]) is None


def test_module_that_no_worker_finds_counts() -> None:
    error = parse_traceback(
        "/usr/bin/python3: No module named trainer.tsk\n" + LAUNCHER_ERRORS["torchrun"]
    )
    assert error is not None
    assert error["type"] == "ModuleNotFoundError"


def test_rank_that_torchrun_names_as_root_cause_counts() -> None:
    other = WORKER.replace("ValueError: bad batch", "RuntimeError: bad loss")
    output = (
        prefixed("[rank1]: ", WORKER) + prefixed("[rank0]: ", other) + CHILD_FAILED + ROOT_CAUSE
    )
    error = parse_traceback(output)
    assert error is not None
    assert error["message"] == "bad batch"
    unknown = parse_traceback(output.replace("rank      : 1", "rank      : 5"))
    assert unknown is not None
    assert unknown["message"] == "bad loss"


def test_error_of_a_command_of_the_program_is_its_own() -> None:
    output = (
        WORKER
        + LAUNCHER
        + "subprocess.CalledProcessError: Command '['gsutil', 'cp']' returned non-zero exit "
    )
    error = parse_traceback(output + "status 1.\n")
    assert error is not None
    assert error["type"] == "subprocess.CalledProcessError"


@pytest.mark.parametrize(
    "end",
    [
        (  # deepspeed
            "[2026-11-25 13:00:00,123] [ERROR] [launch.py:325:sigkill_handler] exits with return"
            " code = 1\n"
        ),
        "-" * 74 + "\nPrimary job  terminated normally, but 1 process returned\n",  # mpirun
    ],
)
def test_words_of_a_launcher_are_not_part_of_the_message(end: str) -> None:
    error = parse_traceback(WORKER + end)
    assert error is not None
    assert error["message"] == "bad batch"


@pytest.mark.parametrize("prefix", ["[0]<stderr>:", "[1,0]<stderr>:", "[1,0]<stderr>: "])
def test_prefix_of_horovodrun_and_mpirun_is_removed(prefix: str) -> None:
    error = parse_traceback(prefixed(prefix, WORKER))
    assert error is not None
    assert (error["type"], error["frame"]) == ("ValueError", "trainer/task.py:7 in main")


LOST_PEER = (
    TB
    + '  File "/app/trainer/task.py", line 9, in main\n    dist.all_reduce(loss)\n'
    + "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:1234\n"
)


@pytest.mark.parametrize("last_rank", [6, 0])
def test_own_error_of_a_rank_counts_before_the_lost_peers_of_seven_others(last_rank: int) -> None:
    """torchrun takes the rank whose end it saw first for the root cause, which may be a peer.

    Rank 3 has the error. `last_rank` prints last, and torchrun names it.
    """
    long_loss = LOST_PEER + "frame #1: c10d::Pair::read()\n" * 40
    ranks = [f"[rank{rank}]: " for rank in (3, 1, 2, 4, 5, 7, 6 - last_rank, last_rank)]
    output = prefixed(ranks[0], WORKER) + "".join(prefixed(rank, long_loss) for rank in ranks[1:])
    root_cause = ROOT_CAUSE.replace("rank      : 1", f"rank      : {last_rank}")
    error = parse_traceback(output + CHILD_FAILED + root_cause)
    assert error is not None
    assert (error["type"], error["message"]) == ("ValueError", "bad batch")


def test_lost_peer_counts_if_all_ranks_of_the_machine_report_one() -> None:
    ranks = "".join(prefixed(f"[rank{rank}]: ", LOST_PEER) for rank in range(4))
    error = parse_traceback(ranks + CHILD_FAILED + ROOT_CAUSE)
    assert error is not None
    assert "Connection closed by peer" in error["message"]


@pytest.mark.parametrize("handled", [WORKER, prefixed("(RayTrainWorker pid=7) ", WORKER)])
def test_error_that_a_rank_logged_and_survived_is_not_the_cause_of_a_lost_peer(
    handled: str,
) -> None:
    output = handled + "step 7\n" + prefixed("[rank0]: ", LOST_PEER)
    error = parse_traceback(output + CHILD_FAILED)
    assert error is not None
    assert "Connection closed by peer" in error["message"]


def test_cause_of_a_lost_peer_in_the_same_rank_is_not_the_error_of_another_rank() -> None:
    chain = WORKER + "\nDuring handling of the above exception, another exception occurred:\n\n"
    output = prefixed("[rank1]: ", chain + LOST_PEER) + prefixed("[rank0]: ", LOST_PEER)
    error = parse_traceback(output + CHILD_FAILED)
    assert error is not None
    assert "Connection closed by peer" in error["message"]


def test_message_ends_before_the_lines_of_another_rank() -> None:
    lines = prefixed("[rank3]: ", WORKER) + prefixed("[rank1]: ", LOST_PEER).partition("\n")[2]
    error = parse_traceback(lines + CHILD_FAILED)
    assert error is not None
    assert error["message"] == "bad batch"


CAUSE = "The above exception was the direct cause of the following exception:\n\n"
POOL = 'multiprocessing.pool.RemoteTraceback: \n"""\n' + WORKER + '"""\n\n'
WAITING = (
    TB
    + '  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get\n    raise value\n'
    + "ValueError: bad batch\n"
)


@pytest.mark.parametrize("between", ["", prefixed("[rank1]: ", LOST_PEER)])
def test_error_in_a_pool_has_its_frames_whatever_another_rank_prints_meanwhile(
    between: str,
) -> None:
    output = prefixed("[rank0]: ", POOL) + between + prefixed("[rank0]: ", CAUSE + WAITING)
    error = parse_traceback(output + CHILD_FAILED)
    assert error is not None
    assert error["own_frame"] == "trainer/task.py:7 in main"


@pytest.mark.parametrize("between", ["", prefixed("[rank1]: ", LOST_PEER)])
def test_error_of_another_rank_is_not_a_cause(between: str) -> None:
    output = prefixed("[rank0]: ", WORKER) + between
    error = parse_traceback(output + prefixed("[rank0]: ", CAUSE + WAITING) + CHILD_FAILED)
    assert error is not None
    assert error["causes"] == ["ValueError"]


def test_exception_group_has_the_cause_that_is_printed_without_a_bar() -> None:
    group = "  + Exception Group " + TB + prefixed("  | ", WORKER.partition("\n")[2])
    error = parse_traceback(prefixed("[rank0]: ", WORKER.replace("Value", "Key") + CAUSE + group))
    assert error is not None
    assert (error["type"], error["causes"]) == ("ValueError", ["KeyError"])
