"""No process of a stack outlives the stack, however it ends."""

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
from typer.testing import CliRunner, Result

from tests.support.stack import clean_environment, eventually, recording_functions
from trainmaster.cli.main import app
from trainmaster_emulators.process import processes, state, state_dirs
from trainmaster_emulators.process.service import Running, Service, stop
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackError, StackStatus
from trainmaster_emulators.stack import stack

HEAVY = pytest.mark.heavy(
    fact="no process outlives a stack",
    quick=(
        "the watchdog without a stack in the same module; the end of Firestore in"
        " `integration/stack/test_delivery.py`"
    ),
)

pytestmark = pytest.mark.emulator

STATE_VARIABLES = (state_dirs.STATE_DIR_VARIABLE, state_dirs.STATE_HOME_VARIABLE)

# Starts a stack and waits until it is killed, as `make run` does.
PARENT = """
import sys, time, pathlib
from trainmaster_emulators.stack.stack import running_stack
from trainmaster_emulators.process.state import StackConfig
with running_stack(pathlib.Path(sys.argv[1]), StackConfig.model_validate_json(sys.argv[2])):
    time.sleep(600)
"""
# Starts a program below the watchdog, which ends all processes below it when its parent is gone.
WATCHED = """
import subprocess, sys, time
watchdog = [sys.executable, "-m", "trainmaster_emulators.process.parent_watchdog", "--lifeline"]
command = [*watchdog, sys.executable, sys.argv[1]]
subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
time.sleep(600)
"""
# Starts two processes in sessions of their own, as a VM does. The environment of `marked` has the
# id of its stack; that of `bare` is empty, so only its parents show which stack it belongs to.
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


def wait_ready(state_dir: Path) -> state.StackState:
    def is_ready() -> bool:
        current = state.read(state_dir)
        return current is not None and current.status is StackStatus.READY

    eventually(is_ready)
    return stack.find(state_dir)


def strays(config: StackConfig) -> list[int]:
    """Return the process ids of `marked` and `bare`."""
    return [int(pid) for pid in (config.functions_dir / "strays").read_text().split()]


def alive(*pids: int) -> list[int]:
    """Return those of the processes that run."""
    return [pid for pid in pids if processes.started_at(pid) is not None]


def all_pids(running: state.StackState, config: StackConfig) -> list[int]:
    """Return the ids of the supervisor, the watchdog above it, all services and the strays."""
    services = [service.pid for service in running.services.values()]
    return [
        running.supervisor_pid,
        psutil.Process(running.supervisor_pid).ppid(),
        *services,
        *strays(config),
    ]


def test_watchdog_ends_all_processes_below_it_when_its_parent_is_killed(tmp_path: Path) -> None:
    """A small program is in the place of the supervisor."""
    program = tmp_path / "program.py"
    program.write_text(f"{STRAYS}\nimport time\ntime.sleep(600)\n", encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED, str(program)], env=clean_environment()
    ) as parent:
        strays_file = tmp_path / "strays"
        eventually(lambda: strays_file.exists() and len(strays_file.read_text().split()) == 2)
        pids = [int(pid) for pid in strays_file.read_text().split()]
        supervisor = psutil.Process(pids[0]).ppid()
        pids += [supervisor, psutil.Process(supervisor).ppid()]
        assert alive(*pids) == pids
        parent.kill()
    eventually(lambda: not alive(*pids))


@HEAVY
@pytest.mark.parametrize("victim", ["parent", "watchdog", "supervisor"])
def test_sigkill_leaves_no_process(
    victim: str, tmp_path: Path, config: StackConfig, parent: subprocess.Popen[bytes]
) -> None:
    running = wait_ready(tmp_path / "state")
    watchdog = psutil.Process(running.supervisor_pid).ppid()
    pids = all_pids(running, config)
    assert {"firestore", "pubsub", "storage", "upload"} <= running.services.keys()
    assert len(alive(*pids)) == len(pids)

    os.kill(
        {"parent": parent.pid, "watchdog": watchdog, "supervisor": running.supervisor_pid}[victim],
        signal.SIGKILL,
    )

    if victim == "watchdog":
        # Without its subreaper, a process in its own session with an empty environment cannot be
        # found.
        marked, bare = strays(config)
        pids.remove(bare)
        assert marked in pids
        eventually(lambda: alive(*pids) in ([], [marked]))
        stack.stop(tmp_path / "state")
        os.kill(bare, signal.SIGKILL)
    eventually(lambda: not alive(*pids))
    assert not processes.list_processes(running.id)


@HEAVY
def test_start_kills_what_a_killed_stack_left_and_nothing_else(
    tmp_path: Path, config: StackConfig, parent: subprocess.Popen[bytes]
) -> None:
    running = wait_ready(tmp_path / "state")
    watchdog = psutil.Process(running.supervisor_pid).ppid()
    marked, bare = strays(config)
    with subprocess.Popen(["sleep", "600"]) as foreign:
        for pid in (watchdog, running.supervisor_pid, parent.pid):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(*(service.pid for service in running.services.values())))
        assert alive(marked), "the test needs a process that survived"

        with stack.running_stack(tmp_path / "state", config) as again:
            assert again.id != running.id
            assert not alive(marked)
            assert alive(foreign.pid)
        os.kill(bare, signal.SIGKILL)
        foreign.kill()
    assert not processes.list_processes(again.id)


@HEAVY  # test_delivery.py ends Firestore too
def test_stack_fails_when_firestore_ends(tmp_path: Path, config: StackConfig) -> None:
    started = stack.start(tmp_path / "state", config)
    running = started.wait_ready()
    os.kill(running.services["firestore"].pid, signal.SIGKILL)
    with pytest.raises(StackError, match="firestore ended with signal SIGKILL and lost its state"):
        started.wait_end()
    assert not processes.list_processes(running.id)
    assert state.read(tmp_path / "state").status is StackStatus.FAILED  # type: ignore[union-attr]


def test_stop_kills_restartable_services_and_asks_others_to_end(tmp_path: Path) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit()))"
    argv = [
        sys.executable,
        "-c",
        f"import signal, sys, time; {handler}; print('ready', flush=True); time.sleep(600)",
    ]
    running = [
        Running(
            Service("a", argv, restartable=restartable),
            processes.service_environment("a"),
            tmp_path / name,
        )
        for name, restartable in (("function", True), ("emulator", False))
    ]
    eventually(lambda: all("ready" in process.log_tail() for process in running))
    stop(running)
    assert ["asked" in process.log_tail() for process in running] == [False, True]


@HEAVY
def test_start_fails_with_the_traceback_of_a_function_that_does_not_load(
    tmp_path: Path, config: StackConfig
) -> None:
    (config.functions_dir / "upload.py").write_text(
        "import nothing_of_that_name\n", encoding="utf-8"
    )
    started = stack.start(tmp_path / "state", config)
    with pytest.raises(
        StackError, match=r"(?s)upload ended .* while starting.*nothing_of_that_name"
    ):
        started.wait_ready()


def test_local_commands_start_show_and_stop_a_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that starts processes runs as a program, the others in this process."""
    folder = recording_functions(tmp_path / "functions")
    monkeypatch.setenv(state_dirs.STATE_DIR_VARIABLE, str(tmp_path / "my state"))
    monkeypatch.setenv(state_dirs.STATE_HOME_VARIABLE, str(tmp_path / "home"))

    def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **clean_environment(),
            **{name: os.environ[name] for name in STATE_VARIABLES},
        }
        argv = ["sh", "-c", command, "sh", *arguments]
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    def local(*argv: str) -> Result:
        return CliRunner().invoke(app, ["local", *argv])

    assert "there is no stack in" in str(local("status").exception)
    start_time = time.monotonic()
    up = run(f"trainmaster local up --detach --no-compute --functions-dir '{folder}'")
    took_s = time.monotonic() - start_time
    assert (up.returncode, up.stderr) == (0, "")
    assert up.stdout.startswith("ready after ")
    assert float(up.stdout.split()[2]) < took_s

    again = local("up", "--detach")
    assert again.exit_code == 1
    assert "already running" in str(again.exception)

    status = json.loads(local("status", "--format", "json").stdout)
    assert status["status"] == "ready"
    assert all(service["alive"] for service in status["services"].values())
    plain = local("status").stdout.splitlines()
    assert plain[0].startswith("ready: project trainmaster-local, gs://trainmaster-local, ")
    assert plain[1].split() == ["SERVICE", "STATE", "PID", "ADDRESS", "RESTARTS", "LOG"]

    evaluated = run(
        'eval "$1" && printf %s "$PUBSUB_EMULATOR_HOST|$BOTO_CONFIG"', local("env").stdout
    )
    assert (
        evaluated.stdout
        == f"{status['endpoints']['pubsub']}|{tmp_path / 'my state' / 'clients' / 'boto'}"
    )
    assert "without the Compute emulator" in str(local("preempt", "vm-1").exception)

    assert local("down").exit_code == 0
    assert not processes.list_processes(status["id"])
    assert local("status").exit_code == 1
    assert local("env").exit_code == 1
    assert local("down").stdout.startswith("no stack is up")


def test_directory_with_other_files_is_refused(tmp_path: Path, config: StackConfig) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StackError, match=r"holds other files \(functions, thesis\.tex\)"):
        stack.start(tmp_path, config)
    assert (tmp_path / "thesis.tex").exists()
