"""`make bench-cold`: what a cold start of each staged function costs, beside a bare app with the same client libraries.

    start    the process as Cloud Functions starts it, until it answers: what a user waits for
    import   the part of it in which the function is loaded, measured in an interpreter that does nothing else
    event    from there until its first event is answered (cold_events.py)
    memory   of its processes together, when the first event has been answered

A bare app is a functions-framework app of three lines that imports the client libraries of its function and nothing
else. Times are seconds of CPU, which other programs on the machine change little. Each figure is the median of several
runs, which take turns. The limits are those of docs/decisions/0026-google-clients.md; `--check` fails if one is
exceeded.
"""

from __future__ import annotations

import argparse
import http.client
import re
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

from infra.cold_events import Request, world
from infra.stage import FUNCTIONS, stage

CLIENTS: Final = ("google.cloud.firestore", "google.pubsub_v1.services.publisher", "google.cloud.logging")
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
START_RATIO_MAX: Final = 1.15
CONSOLE_START_RATIO_MAX: Final = 2.5
"""A person waits for it once. It imports templates, the job format and prices, which no other function needs."""
EXTRA_MIB_MAX: Final = 40.0
LIGHT_MIB_MAX: Final = 160.0
HEALTH: Final = "/robots.txt"
"""functions-framework itself answers it, as soon as the function is loaded."""

_BARE_APP: Final = """
import functions_framework
{imports}

@functions_framework.http
def bare(request):
    return "", 204
"""
_IMPORT: Final = """
import sys, time
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path = [sys.argv[1], *(path for path in sys.path if "site-packages" in path or "lib" in path)]
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
        checks = {
            "start": self.function.start <= _start_ratio_max(name) * self.bare.start,
            "memory beside the bare app": self.function.memory <= self.bare.memory + EXTRA_MIB_MAX,
            "memory": name in HEAVY or self.function.memory <= LIGHT_MIB_MAX,
        }
        return [check for check, is_kept in checks.items() if not is_kept]


def _start_ratio_max(name: str) -> float:
    return CONSOLE_START_RATIO_MAX if name == "console" else START_RATIO_MAX


def measure(folder: Path, target: str, request: Request, variables: Mapping[str, str]) -> Cold:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    imports = _import(folder, target, environment)
    with started(folder, target, environment) as (pid, port):
        start = _cpu_s(pid)
        status = send(port, *request)
        if status not in (200, 204):
            raise SystemExit(f"{target} answers its first event with {status}")
        return Cold(start, imports, _cpu_s(pid) - start, memory_mib(pid))


def measure_all(runs: int) -> dict[str, Comparison]:
    bare: dict[str, list[Cold]] = {}
    functions: dict[str, list[Cold]] = {}
    with tempfile.TemporaryDirectory() as name, world(Path(name)) as cloud:
        folder = Path(name)
        _unpack(folder)
        for run in range(runs):
            for libraries in {_libraries(function) for function in FUNCTIONS}:
                app = folder / _bare_name(libraries)
                bare.setdefault(app.name, []).append(measure(app, "bare", ("GET", "/", {}, b""), {}))
            for function in sorted(FUNCTIONS, key=lambda name: name != "submit"):
                request = cloud.first_request(function, f"job_{run}")
                cold = measure(folder / function, function, request, cloud.variables)
                functions.setdefault(function, []).append(cold)
    return {
        name: Comparison(_median(colds), _median(bare[_bare_name(_libraries(name))]))
        for name, colds in functions.items()
    }


def _libraries(function: str) -> tuple[str, ...]:
    return (*CLIENTS, *MORE.get(function, ()))


def _bare_name(libraries: tuple[str, ...]) -> str:
    return "-".join(("bare", *libraries[len(CLIENTS) :]))


def _unpack(folder: Path) -> None:
    """Unpack all archives, with bytecode beside the sources, as a buildpack leaves them."""
    for libraries in {_libraries(function) for function in FUNCTIONS}:
        app = folder / _bare_name(libraries)
        app.mkdir()
        imports = "\n".join(f"import {library}" for library in libraries)
        (app / "main.py").write_text(_BARE_APP.format(imports=imports), encoding="utf-8")
    for function, archive in stage(folder / "stage").items():
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder / function)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)


def _import(folder: Path, target: str, environment: Mapping[str, str]) -> float:
    command = [sys.executable, "-I", "-c", _IMPORT, str(folder), target]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{target} does not start:\n{done.stderr}")
    return float(done.stdout)


@contextmanager
def started(folder: Path, target: str, environment: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """Yield its process id and port when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-I", "-m", "functions_framework", "--target", target, "--source", "main.py"]
    process = subprocess.Popen(
        [*command, "--signature-type", "http", "--host", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                send(port, "GET", HEALTH, {}, b"")
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{target} does not start") from None
                time.sleep(0.01)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def send(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


def _processes(pid: int) -> Iterator[int]:
    """Yield the ids of the server and its worker."""
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        yield from _processes(int(child))


def _cpu_s(pid: int) -> float:
    """Source: proc(5): nanoseconds on a CPU, for each thread."""
    threads = (path for process in _processes(pid) for path in Path(f"/proc/{process}/task").iterdir())
    return sum(int((path / "schedstat").read_text(encoding="ascii").split()[0]) for path in threads) / 1e9


def memory_mib(pid: int) -> float:
    """Add the worker's private memory to the server's: pages that both use exist once."""
    server, *workers = (
        Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii") for process in _processes(pid)
    )
    kib = _kib(server, "Rss") + sum(_kib(worker, "Private_Dirty") + _kib(worker, "Private_Clean") for worker in workers)
    return kib / 1024


def _kib(rollup: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", rollup, re.MULTILINE)
    return int(match[1]) if match else 0


def _median(colds: list[Cold]) -> Cold:
    return Cold(*(statistics.median(getattr(cold, field.name) for cold in colds) for field in fields(Cold)))


def exceeded(comparisons: Mapping[str, Comparison]) -> dict[str, list[str]]:
    """Return the functions that exceed a limit, with what is over it."""
    limits = {name: comparison.exceeded_limits(name) for name, comparison in comparisons.items()}
    return {name: checks for name, checks in limits.items() if checks}


def table(comparisons: Mapping[str, Comparison]) -> Iterator[str]:
    over = exceeded(comparisons)
    columns = f"{'start':>8s} {'bare':>8s} {'ratio':>6s} {'import':>8s} {'event':>8s} {'memory':>11s} {'bare':>11s}"
    yield f"{'':14s} {columns}"
    for name, comparison in comparisons.items():
        cold, bare = comparison.function, comparison.bare
        verdict = f"over the limit: {', '.join(over[name])}" if name in over else "ok"
        yield (
            f"{name:14s} {cold.start:6.2f} s {bare.start:6.2f} s {cold.start / bare.start:6.2f} {cold.imports:6.2f} s "
            f"{cold.event:6.2f} s {cold.memory:7.1f} MiB {bare.memory:7.1f} MiB  {verdict}"
        )
    yield (
        f"limits: start {START_RATIO_MAX} x the bare app's, memory {EXTRA_MIB_MAX:.0f} MiB more than the bare app's; "
        f"{LIGHT_MIB_MAX:.0f} MiB in all, but for {' and '.join(HEAVY)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.bench_cold", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    comparisons = measure_all(arguments.runs)
    sys.stdout.write("\n".join([*table(comparisons), ""]))
    return 1 if arguments.check and exceeded(comparisons) else 0


if __name__ == "__main__":
    sys.exit(main())
