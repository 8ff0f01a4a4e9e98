"""Which processes get the signal: the topmost one of each branch that catches it, and
no launcher.
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

from trainmaster.agent.program import save_request
from trainmaster.agent.program.save_request import SaveRequest, find_catchers

CATCH = "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)"
WAIT = "import time; time.sleep(60)"
PYTHON = sys.executable
CATCHER = [PYTHON, "-c", f"{CATCH}; print('up', flush=True); {WAIT}"]
DEAF = [PYTHON, "-c", f"print('up', flush=True); {WAIT}"]


def starting(*children: list[str], first: str = "pass") -> list[str]:
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


def caught(program: subprocess.Popen[bytes]) -> list[list[str]]:
    pids = find_catchers({program.pid}, signal.SIGUSR1)
    return [Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1] for pid in pids]


@pytest.mark.parametrize(
    ("program", "processes", "expected"),
    [
        pytest.param(CATCHER, 1, [CATCHER], id="the program itself"),
        pytest.param(DEAF, 1, [], id="nobody: SIGUSR1 would end it"),
        pytest.param(
            starting(CATCHER, CATCHER, DEAF),
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
    assert caught(start(program, processes)) == expected


def test_workers_of_a_process_that_catches_it_get_nothing(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    parent = starting(CATCHER, first=CATCH)
    assert caught(start(parent, 2)) == [parent]


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "mpirun"])
def test_launcher_is_passed_over_although_it_catches_the_signal(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, name: str
) -> None:
    for children, expected in (([CATCHER], [CATCHER]), ([DEAF], [])):
        script = tmp_path / name
        script.write_text(starting(*children, first=CATCH)[2])
        program = start([PYTHON, str(script)], 2)
        assert caught(program) == expected
        end(program)


def test_module_of_torchs_launcher_is_a_launcher(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    package = tmp_path / "torch/distributed"
    package.mkdir(parents=True)
    (package / "run.py").write_text(starting(CATCHER, first=CATCH)[2])
    assert caught(start([PYTHON, "-u", "-m", "torch.distributed.run"], 2, tmp_path)) == [CATCHER]


def test_processes_of_a_container_are_known_by_their_environment_and_the_engines_do_not_count(
    request_: SaveRequest,
    start: Callable[..., subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The program of a container runs in another PID namespace, and the engine's command line in
    the agent's.
    """
    name, value = next(iter(request_.variables(in_container=True).items()))
    monkeypatch.setattr(request_, "variables", lambda **_: {name: value})
    engine, program = start(CATCHER), start(CATCHER)
    namespaces = {program.pid: "other"}
    monkeypatch.setattr(save_request, "_namespace", lambda pid: namespaces.get(pid, "own"))
    assert request_._roots_in_container() == {program.pid}
    namespaces[engine.pid] = "other"
    assert request_._roots_in_container() == {program.pid, engine.pid}
    assert SaveRequest(tmp_path, "4712", signal.SIGUSR1)._roots_in_container() == set()


def test_request_creates_the_file_and_signals(
    request_: SaveRequest, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    exits = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))"
    program = start(
        [PYTHON, "-c", f"import signal, sys; {exits}; print('up', flush=True); signal.pause()"]
    )
    file = Path(*request_.variables(in_container=False).values())
    assert not file.exists()
    request_.create_file()
    assert file.exists()
    assert request_.signal_catchers(program.pid) == 1
    assert program.wait(10) == 7
    request_.reset()
    assert not file.exists()
