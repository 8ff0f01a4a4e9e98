"""Which processes get the signal that asks a program to save: the topmost one of each branch of the
process tree that catches it, and no launcher.

A launcher, such as torchrun, starts the processes that train. Each process of a test prints "up"
when it is ready.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stack import eventually
from trainmaster.agent.program import process_table
from trainmaster.agent.program.process_table import find_first_process
from trainmaster.agent.program.program import Program
from trainmaster.agent.program.save_request import SaveRequest
from trainmaster.agent.program.signal_receivers import (
    find_catchers,
    find_receivers,
    words_of_program,
)
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.workspace import Workspace

CATCH = "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)"
WAIT = "import time; time.sleep(60)"
PYTHON = sys.executable
CATCHER = [PYTHON, "-c", f"{CATCH}; print('up', flush=True); {WAIT}"]
DEAF = [PYTHON, "-c", f"print('up', flush=True); {WAIT}"]


def command_that_starts(*children: list[str], first: str = "pass") -> list[str]:
    """Return the command line of a process that starts others after `first`."""
    started = f"ps = [s.Popen(c) for c in {children!r}]"
    return [
        PYTHON,
        "-c",
        f"{first}; import subprocess as s; {started}; print('up', flush=True); {WAIT}",
    ]


@pytest.fixture
def request_(tmp_path: Path) -> SaveRequest:
    request = SaveRequest(tmp_path, "4711", signal.SIGUSR1)
    request.reset()
    return request


@pytest.fixture
def start(request_: SaveRequest) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    programs = []

    def run(
        command: list[str], processes: int = 1, folder: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program, and wait until this number of its processes are ready."""
        env = request_.variables(in_container=False)
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, env=env, start_new_session=True, cwd=folder
        )
        programs.append(program)
        assert program.stdout is not None
        for _ in range(processes):
            assert program.stdout.readline() == b"up\n"
        return program

    yield run
    for program in programs:
        end(program)


def end(program: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    if program.stdout is not None:
        program.stdout.close()


def catchers(program: subprocess.Popen[bytes]) -> list[list[str]]:
    """Return the command lines of the processes that get the signal."""
    pids = find_catchers({program.pid}, signal.SIGUSR1)
    return [command_line(pid) for pid in pids]


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


@pytest.mark.parametrize(
    ("program", "processes", "expected"),
    [
        pytest.param(CATCHER, 1, [CATCHER], id="the program itself"),
        pytest.param(DEAF, 1, [], id="nobody: SIGUSR1 would end it"),
        pytest.param(
            command_that_starts(CATCHER, CATCHER, DEAF),
            4,
            [CATCHER, CATCHER],
            id="workers of a parent that is deaf",
        ),
        pytest.param(
            ["sh", "-c", f"{shlex.join(CATCHER)}; true"], 1, [CATCHER], id="behind a shell"
        ),
    ],
)
def test_topmost_process_that_catches_the_signal_gets_it(
    request_: SaveRequest,
    start: Callable[..., subprocess.Popen[bytes]],
    program: list[str],
    processes: int,
    expected: list[list[str]],
) -> None:
    assert catchers(start(program, processes)) == expected


def test_workers_of_a_process_that_catches_it_get_nothing(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    parent = command_that_starts(CATCHER, first=CATCH)
    assert catchers(start(parent, 2)) == [parent]


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "mpirun"])
def test_launcher_is_passed_over_although_it_catches_the_signal(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, name: str
) -> None:
    for children, expected in (([CATCHER], [CATCHER]), ([DEAF], [])):
        script = tmp_path / name
        script.write_text(command_that_starts(*children, first=CATCH)[2])
        program = start([PYTHON, str(script)], 2)
        assert catchers(program) == expected
        end(program)


@pytest.mark.parametrize(
    "module",
    [
        "torch.distributed.run",
        "deepspeed.launcher.runner",
        "horovod.runner",
        "horovod.runner.launch",
        "ray.scripts.scripts",
    ],
)
def test_module_of_a_launcher_is_a_launcher(
    request_: SaveRequest,
    start: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
    module: str,
) -> None:
    write_module(tmp_path, module, command_that_starts(CATCHER, first=CATCH)[2])
    assert catchers(start([PYTHON, "-u", "-m", module], 2, tmp_path)) == [CATCHER]


@pytest.mark.parametrize(
    ("command", "expected"),
    [  # the interpreter and what it runs
        ("python3 train.py --strategy deepspeed", ["python3", "train.py"]),
        ("/usr/bin/python3.11 -u train.py torchrun", ["/usr/bin/python3.11", "train.py"]),
        ("python -m trainer.task --launcher ray", ["python", "trainer.task"]),
        ("python -um torch.distributed.run x.py", ["python", "torch.distributed.run"]),
        (
            "python -X dev -W error -m accelerate.commands.launch",
            ["python", "accelerate.commands.launch"],
        ),
        (
            "python -Xtracemalloc=5 -m deepspeed.launcher.runner",
            ["python", "deepspeed.launcher.runner"],
        ),
        ("python -Wignore::m train.py torchrun", ["python", "train.py"]),
        ("python -c pass torchrun", ["python"]),
        ("mpirun -n 2 python train.py", ["mpirun"]),
        ("./train --backend mpirun", ["./train"]),
    ],
)
def test_only_what_a_command_runs_may_be_a_launcher(command: str, expected: list[str]) -> None:
    assert words_of_program(command.split()) == expected


def test_trainer_with_a_launchers_name_among_its_arguments_gets_the_signal(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(CATCHER[2])
    program = start([PYTHON, str(script), "--strategy", "deepspeed"], 1)
    assert catchers(program) == [[PYTHON, str(script), "--strategy", "deepspeed"]]


def test_horovods_worker_gets_the_signal_although_a_module_beside_the_launcher_runs_it(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """`horovod.run` starts its workers as `python -m horovod.runner.run_task`."""
    write_module(tmp_path, "horovod.runner.run_task", CATCHER[2])
    worker = [PYTHON, "-m", "horovod.runner.run_task"]
    assert catchers(start(worker, 1, tmp_path)) == [worker]


def write_module(folder: Path, module: str, code: str) -> None:
    """Write the module that `python -m` runs: of horovod.runner, its `__main__`."""
    file = folder / module.replace(".", "/")
    if module == "horovod.runner":
        file = file / "__main__"
    file.parent.mkdir(parents=True)
    file.with_suffix(".py").write_text(code)


@pytest.mark.parametrize(
    ("program", "processes", "expected"),
    [
        pytest.param(DEAF, 1, [DEAF], id="the program itself, whether it catches it or not"),
        pytest.param(["sh", "-c", f"{shlex.join(DEAF)}; true"], 1, [DEAF], id="behind a shell"),
        pytest.param(
            ["sh", "-c", f"bash -c {shlex.quote(shlex.join(CATCHER) + '; true')}; true"],
            1,
            [CATCHER],
            id="behind two shells",
        ),
        pytest.param(
            ["sh", "-c", f"{shlex.join(CATCHER)} | {shlex.join(DEAF)}; true"],
            1,
            [CATCHER],
            id="not the other end of a pipe",
        ),
        pytest.param(
            command_that_starts(CATCHER),
            2,
            [command_that_starts(CATCHER)],
            id="not the program's children",
        ),
    ],
)
def test_signal_for_the_program_reaches_no_shell(
    start: Callable[..., subprocess.Popen[bytes]],
    program: list[str],
    processes: int,
    expected: list[list[str]],
) -> None:
    first = start(program, processes).pid

    def receivers() -> list[list[str]]:
        return [command_line(pid) for pid in find_receivers({first}, signal.SIGUSR1)]

    # The first command of a pipe cannot report here that it catches the signal.
    eventually(lambda: receivers() == expected)


def test_shell_with_a_trap_gets_the_signal(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    first = start(["sh", "-c", f"trap : USR1; {shlex.join(DEAF)}; true"]).pid
    assert find_receivers({first}, signal.SIGUSR1) == [first]


def test_first_process_of_a_container_is_known_by_its_number_and_a_variable(
    request_: SaveRequest,
    start: Callable[..., subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine's command line has the variable, too, but runs outside."""
    (variable,) = request_.variables(in_container=False).items()
    mark = "=".join(variable).encode()
    engine = start(CATCHER)
    program = start(CATCHER)
    numbers = {engine.pid: engine.pid, program.pid: 1}
    monkeypatch.setattr(process_table, "_number_in_container", numbers.get)
    assert find_first_process(mark) == program.pid
    assert find_first_process(mark + b"2") is None


def test_request_creates_the_file_and_signals(request_: SaveRequest, tmp_path: Path) -> None:
    output = tmp_path / "output"
    workspace = Workspace(
        tmp_path, environ={}, console=Console(os.open(output, os.O_WRONLY | os.O_CREAT))
    )
    exits = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))"
    code = f"import signal, sys; {exits}; print('up', flush=True); signal.pause()"
    env = request_.variables(in_container=False)
    program = Program([PYTHON, "-c", code], workspace, env=env, cwd=tmp_path)
    eventually(lambda: output.read_text() == "up\n")
    file = Path(*env.values())
    assert not file.exists()
    request_.create_file()
    assert file.exists()
    assert request_.find_catchers(program)
    assert request_.signal_catchers(program) == 1
    assert program.wait().exit_status == 7
    assert request_.signal_catchers(program) == 0
    request_.reset()
    assert not file.exists()
