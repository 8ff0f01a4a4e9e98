"""`make bench-cold`: measure the cost of a cold start of each staged function, beside that of a
bare app with the same client libraries.

    start    the process as Cloud Functions starts it, until it answers: what a user waits for
    import   the part of it in which the function is loaded, measured in an interpreter that does
             nothing else
    event    from there until its first event is answered (cold_events.py)
    memory   of its processes together, when the first event has been answered

A bare app is a functions-framework app of three lines that imports the client libraries of its
function and nothing else. Each function and its bare app run in an environment with the function's
locked requirements and nothing else, as on Cloud Functions, because Google's libraries import more
packages, and start later, where more are installed. Times are seconds of CPU, which other programs
on the machine change little. Each figure is the median of several runs, which take turns. The
limits are those of docs/decisions/0026-google-clients.md; `--check` fails if one is exceeded.
"""

from __future__ import annotations

import argparse
import http.client
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from bench.cold_events import Request, world
from bench.peers.run import family
from infra.stage import FUNCTIONS, REQUIREMENTS, ROOT, stage

CLIENTS: Final = (
    "google.cloud.firestore",
    "google.pubsub_v1.services.publisher",
    "google.cloud.logging",
)
"""Imported by every function."""
MORE: Final = {
    "upload": ("google.cloud.storage",),
    "submit": ("google.cloud.storage",),
    "provision": ("google.cloud.compute_v1",),
    "tune": ("optuna",),
}
"""Imported by one function only. Cloud TPU's client is imported only by installations with TPUs."""
HEAVY: Final = ("provision", "tune")
"""Functions whose own library is larger than all others."""
START_EXTRA_S_MAX: Final = 0.15
"""Most seconds of CPU that a function's start may take beyond its bare app's."""
EXTRA_MIB_MAX: Final = 40.0
"""Most memory that it may use beyond its bare app's."""
CONSOLE_START_EXTRA_S_MAX: Final = 0.25
CONSOLE_EXTRA_MIB_MAX: Final = 50.0
"""The two limits of the console. It imports templates, the job format and prices, which no other
function needs together.
"""
LIGHT_MIB_MAX: Final = 160.0
"""Most memory of a function that is not `HEAVY`."""
ENVIRONMENTS: Final = ROOT / ".images"
"""`make bench-cold` installs each file of locked requirements into an environment in this folder.
"""
HEALTH: Final = "/robots.txt"
"""functions-framework itself answers it, as soon as the function is loaded."""

BARE_REQUEST: Final[Request] = ("GET", "/", {}, b"")
"""The request that a bare app answers in place of an event."""
POLL_S: Final = 0.01
"""Pause between two requests to a function that does not answer yet."""
ANSWER_MAX_S: Final = 120.0
"""Longest time of one request."""
END_MAX_S: Final = 30.0
"""Longest time from SIGTERM to the end of a function's process."""

_BARE_APP: Final = """
import functions_framework
{imports}

@functions_framework.http
def bare(request):
    return "", 204
"""
_TIME_IMPORT: Final = """
import sys, time
sys.path.insert(0, sys.argv[1])
began = time.process_time()
from functions_framework import create_app
create_app(sys.argv[2], sys.argv[1] + "/main.py", "http")
print(time.process_time() - began)
"""


@dataclass(frozen=True, slots=True)
class Cold:
    """Cost of one cold start: seconds of CPU, and MiB."""

    start: float
    imports: float
    event: float
    memory: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A function and its bare app."""

    function: Cold
    bare: Cold

    def exceeded_limits(self, name: str) -> list[str]:
        """Return what is over its limit."""
        start_s_max, mib_max = START_EXTRA_S_MAX, EXTRA_MIB_MAX
        if name == "console":
            start_s_max, mib_max = CONSOLE_START_EXTRA_S_MAX, CONSOLE_EXTRA_MIB_MAX
        checks = {
            "start": self.function.start <= self.bare.start + start_s_max,
            "memory beside the bare app": self.function.memory <= self.bare.memory + mib_max,
            "memory": name in HEAVY or self.function.memory <= LIGHT_MIB_MAX,
        }
        return [check for check, is_kept in checks.items() if not is_kept]


def measure(
    python: Path, folder: Path, target: str, request: Request, variables: Mapping[str, str]
) -> Cold:
    """Start an app once: the function `target` of the `main.py` in `folder`.

    `request`: its first event.
    """
    environment = {"PATH": "/usr/bin:/bin", **variables}
    imports = _import_s(python, folder, target, environment)
    with started(folder, target, environment, python) as (pid, port):
        start = _cpu_s(pid)
        status = send(port, *request)
        if status not in (200, 204):
            raise SystemExit(f"{target} answers its first event with {status}")
        return Cold(start, imports, _cpu_s(pid) - start, memory_mib(pid))


def measure_all(runs: int) -> dict[str, Comparison]:
    """Return function → medians of this many runs."""
    bare: dict[str, list[Cold]] = {}
    functions: dict[str, list[Cold]] = {}
    with tempfile.TemporaryDirectory() as name, world(Path(name)) as cloud:
        folder = Path(name)
        _unpack(folder)
        for run in range(runs):
            for app, function in {_bare_name(function): function for function in FUNCTIONS}.items():
                cold = measure(_python(function), folder / app, "bare", BARE_REQUEST, variables={})
                bare.setdefault(app, []).append(cold)
            # `submit` first: the events of the others are about the job that it stores.
            for function in sorted(FUNCTIONS, key=lambda name: name != "submit"):
                request = cloud.first_request(function, f"job_{run}")
                cold = measure(
                    _python(function), folder / function, function, request, cloud.variables
                )
                functions.setdefault(function, []).append(cold)
    return {
        name: Comparison(_median(colds), _median(bare[_bare_name(name)]))
        for name, colds in functions.items()
    }


def _requirements(function: str) -> str:
    """Return the name of the file with the function's locked requirements."""
    return REQUIREMENTS.get(function, "functions")


def _python(function: str) -> Path:
    """Return the interpreter of the environment with the function's locked requirements."""
    python = ENVIRONMENTS / f"function-{_requirements(function)}" / "bin" / "python"
    if not python.exists():
        raise SystemExit(
            f"{python} is missing: run `make bench-cold`, which installs the functions'"
            " requirements"
        )
    return python


def _bare_name(function: str) -> str:
    """Return the folder of the function's bare app.

    Functions with the same environment and clients share one.
    """
    return "-".join(("bare", _requirements(function), *MORE.get(function, ())))


def _unpack(folder: Path) -> None:
    """Unpack all archives, with bytecode beside the sources, as a buildpack leaves them."""
    for function in FUNCTIONS:
        app = folder / _bare_name(function)
        app.mkdir(exist_ok=True)
        imports = "\n".join(f"import {library}" for library in (*CLIENTS, *MORE.get(function, ())))
        (app / "main.py").write_text(_BARE_APP.format(imports=imports), encoding="utf-8")
    for function, archive in stage(folder / "stage").items():
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder / function)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)


def _import_s(python: Path, folder: Path, target: str, environment: Mapping[str, str]) -> float:
    """Return the seconds of CPU in which an interpreter of its own loads the function."""
    command = [str(python), "-I", "-c", _TIME_IMPORT, str(folder), target]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{target} does not start:\n{done.stderr}")
    return float(done.stdout)


@contextmanager
def started(
    folder: Path, target: str, environment: Mapping[str, str], python: Path = Path(sys.executable)
) -> Iterator[tuple[int, int]]:
    """Start the function, and yield its process id and port when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(python),
        "-I",
        "-m",
        "functions_framework",
        "--target",
        target,
        "--source",
        "main.py",
    ]
    process = subprocess.Popen(
        [*command, "--signature-type", "http", "--host", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                send(port, "GET", HEALTH, headers={}, body=b"")
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{target} does not start") from None
                time.sleep(POLL_S)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(END_MAX_S)


def send(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> int:
    """Return the HTTP status of a request to a function on this machine. Raises OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_MAX_S)
    try:
        connection.request(method, path, body, dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


def _cpu_s(pid: int) -> float:
    """Return the seconds of CPU that the process and its descendants have used.

    Source: proc(5), schedstat: nanoseconds on a CPU, for each thread.
    """
    nanoseconds = 0
    for process in family(pid):
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            on_cpu, *_ = (thread / "schedstat").read_text(encoding="ascii").split()
            nanoseconds += int(on_cpu)
    return nanoseconds / 1e9


def memory_mib(pid: int) -> float:
    """Add the worker's private memory to the server's: pages that both use exist once."""
    server, *workers = family(pid)
    size: int = server.memory_info().rss + sum(worker.memory_full_info().uss for worker in workers)
    return size / 2**20


def _median(colds: list[Cold]) -> Cold:
    """Return the median of each figure."""
    return Cold(
        *(statistics.median(getattr(cold, field.name) for cold in colds) for field in fields(Cold))
    )


def exceeded(comparisons: Mapping[str, Comparison]) -> dict[str, list[str]]:
    """Return the functions that exceed a limit, with what is over it."""
    limits = {name: comparison.exceeded_limits(name) for name, comparison in comparisons.items()}
    return {name: checks for name, checks in limits.items() if checks}


def table(comparisons: Mapping[str, Comparison]) -> Iterator[str]:
    """Yield the lines that the command prints."""
    over = exceeded(comparisons)
    columns = (
        f"{'start':>8s} {'bare':>8s} {'ratio':>6s} {'import':>8s} {'event':>8s} {'memory':>11s}"
        f" {'bare':>11s}"
    )
    yield f"{'':14s} {columns}"
    for name, comparison in comparisons.items():
        cold = comparison.function
        bare = comparison.bare
        verdict = f"over the limit: {', '.join(over[name])}" if name in over else "ok"
        yield (
            f"{name:14s} {cold.start:6.2f} s {bare.start:6.2f} s {cold.start / bare.start:6.2f}"
            f" {cold.imports:6.2f} s {cold.event:6.2f} s {cold.memory:7.1f} MiB {bare.memory:7.1f}"
            f" MiB  {verdict}"
        )
    yield (
        f"limits, beside the bare app: start {START_EXTRA_S_MAX} s more (console"
        f" {CONSOLE_START_EXTRA_S_MAX}), memory {EXTRA_MIB_MAX:.0f} MiB more (console"
        f" {CONSOLE_EXTRA_MIB_MAX:.0f}); {LIGHT_MIB_MAX:.0f} MiB in all, but for"
        f" {' and '.join(HEAVY)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cold_starts", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    comparisons = measure_all(arguments.runs)
    sys.stdout.write("\n".join([*table(comparisons), ""]))
    return 1 if arguments.check and exceeded(comparisons) else 0


if __name__ == "__main__":
    sys.exit(main())
