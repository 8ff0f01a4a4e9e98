"""Nothing of a stack outlives it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from emulators.stack import processes, stack, state
from emulators.stack.state import StackConfig, StackError, StackStatus
from tests.support.stack import clean_environment, eventually, recording_functions

# Starts a stack and waits, as `make run` does.
PARENT = """
import sys, time, pathlib
from emulators.stack.stack import running_stack
from emulators.stack.state import StackConfig
with running_stack(pathlib.Path(sys.argv[1]), StackConfig.model_validate_json(sys.argv[2])):
    time.sleep(600)
"""
# Starts, like a VM, a process in a session of its own; and one that has also lost its environment.
STRAYS = """
import pathlib, subprocess
folder = pathlib.Path(__file__).parent
marked = subprocess.Popen(["sleep", "600"], start_new_session=True)
bare = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
(folder / "strays").write_text(f"{marked.pid} {bare.pid}")
def upload(request):
    return "", 204
"""


@pytest.fixture
def config(tmp_path: Path) -> StackConfig:
    folder = recording_functions(tmp_path / "functions")
    (folder / "upload.py").write_text(STRAYS, encoding="utf-8")
    return StackConfig(functions_dir=folder, functions=("upload",), compute=False)


@pytest.fixture
def parent(tmp_path: Path, config: StackConfig) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", PARENT, str(tmp_path / "state"), config.model_dump_json()]
    with subprocess.Popen(argv, env=clean_environment()) as process:
        yield process
        process.kill()


def ready(state_dir: Path) -> state.StackState:
    def is_ready() -> bool:
        page = state.read(state_dir)
        return page is not None and page.status is StackStatus.READY

    eventually(is_ready)
    return stack.find(state_dir)


def strays(config: StackConfig) -> list[int]:
    return [int(pid) for pid in (config.functions_dir / "strays").read_text().split()]


def alive(*pids: int) -> list[int]:
    return [pid for pid in pids if processes.started_at(pid) is not None]


def everything(page: state.StackState, config: StackConfig) -> list[int]:
    started = [each.pid for each in page.services.values()]
    return [page.supervisor_pid, psutil.Process(page.supervisor_pid).ppid(), *started, *strays(config)]


@pytest.mark.parametrize("victim", ["the parent", "the guard", "the supervisor"])
def test_a_sigkill_leaves_no_process(
    victim: str, tmp_path: Path, config: StackConfig, parent: subprocess.Popen[bytes]
) -> None:
    page = ready(tmp_path / "state")
    guard = psutil.Process(page.supervisor_pid).ppid()
    pids = everything(page, config)
    assert {"firestore", "pubsub", "storage", "upload"} <= page.services.keys()
    assert len(alive(*pids)) == len(pids)

    os.kill(
        {"the parent": parent.pid, "the guard": guard, "the supervisor": page.supervisor_pid}[victim], signal.SIGKILL
    )

    if victim == "the guard":
        # Without its subreaper a process that has left session and environment behind is out of anybody's sight.
        marked, bare = strays(config)
        pids.remove(bare)
        assert marked in pids
        eventually(lambda: not alive(*pids[:-1]))
        stack.down(tmp_path / "state")
        os.kill(bare, signal.SIGKILL)
    eventually(lambda: not alive(*pids))
    assert not processes.of_stack(page.id)


def test_up_after_everything_was_killed_at_once_ends_the_strays_and_nothing_else(
    tmp_path: Path, config: StackConfig, parent: subprocess.Popen[bytes]
) -> None:
    page = ready(tmp_path / "state")
    guard = psutil.Process(page.supervisor_pid).ppid()
    marked, bare = strays(config)
    with subprocess.Popen(["sleep", "600"]) as foreign:
        for pid in (guard, page.supervisor_pid, parent.pid):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(*(each.pid for each in page.services.values())))
        assert alive(marked), "the test needs something left"

        with stack.running_stack(tmp_path / "state", config) as again:
            assert again.id != page.id
            assert not alive(marked)
            assert alive(foreign.pid)
        os.kill(bare, signal.SIGKILL)
        foreign.kill()
    assert not processes.of_stack(again.id)


def test_a_lost_database_fails_the_stack_and_says_so(tmp_path: Path, config: StackConfig) -> None:
    started = stack.start(tmp_path / "state", config)
    page = started.wait_ready()
    os.kill(page.services["firestore"].pid, signal.SIGKILL)
    with pytest.raises(StackError, match="firestore ended with signal SIGKILL; its state is lost"):
        started.wait_end()
    assert not processes.of_stack(page.id)
    assert state.read(tmp_path / "state").status is StackStatus.FAILED  # type: ignore[union-attr]


def test_a_function_that_does_not_load_ends_the_start_with_its_traceback(tmp_path: Path, config: StackConfig) -> None:
    (config.functions_dir / "upload.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    started = stack.start(tmp_path / "state", config)
    with pytest.raises(StackError, match=r"(?s)upload ended .* while starting.*nothing_of_that_name"):
        started.wait_ready()


def test_up_env_status_down_as_typed(tmp_path: Path) -> None:
    folder = recording_functions(tmp_path / "functions")
    environment = {**clean_environment(), state.STATE_DIR_VARIABLE: str(tmp_path / "my state")}

    def local(*argv: str) -> subprocess.CompletedProcess[str]:
        command = ["trainmaster", "local", *argv]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert "there was never a stack" in local("status").stderr
    began = time.monotonic()
    up = local("up", "--detach", "--no-compute", "--functions-dir", str(folder))
    took_s = time.monotonic() - began
    assert (up.returncode, up.stderr) == (0, "")
    assert up.stdout.startswith("ready after ")
    assert float(up.stdout.split()[2]) < took_s < StackConfig().ready_within_s

    again = local("up", "--detach")
    assert again.returncode == 1
    assert "already up" in again.stderr
    assert again.stderr.count("\n") == 1

    page = json.loads(local("status", "--format", "json").stdout)
    assert page["status"] == "ready"
    assert all(each["alive"] for each in page["services"].values())
    plain = local("status").stdout.splitlines()
    assert plain[0].startswith("ready: project trainmaster-local, gs://trainmaster-local, ")
    assert plain[1].split() == ["PART", "STATE", "PID", "ADDRESS", "RESTARTS", "LOG"]

    evaluated = subprocess.run(
        ["sh", "-c", 'eval "$(trainmaster local env)" && printf %s "$PUBSUB_EMULATOR_HOST|$BOTO_CONFIG"'],
        env=environment, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert evaluated.stdout == f"{page['endpoints']['pubsub']}|{tmp_path / 'my state' / 'clients' / 'boto'}"
    assert "no Compute emulator" in local("preempt", "vm-1").stderr

    down = local("down")
    assert (down.returncode, down.stderr) == (0, "")
    assert not processes.of_stack(page["id"])
    assert local("status").returncode == 1
    assert local("env").returncode == 1
    assert local("down").stdout.startswith("no stack is up")


def test_a_directory_of_somebody_else_is_not_taken(tmp_path: Path, config: StackConfig) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StackError, match="is not a stack's directory: it holds"):
        stack.start(tmp_path, config)
    assert (tmp_path / "thesis.tex").exists()
