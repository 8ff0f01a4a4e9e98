"""`make bench-cold`: what a cold start of each staged function costs, beside a bare functions-framework app.

    start    the process as Cloud Functions starts it, until it answers: what a user waits for
    import   the part of it that the function's own imports are: loading it, in an interpreter that does nothing else
    event    from there until its first event is answered (cold_events.py)
    memory   of its processes together, when the first event is answered

All in seconds of CPU, which other programs on the machine change little, and on an idle machine are the time; each the
median of several, taken in turns. A light function is one that knows of no machines and brings no library of its own.
The goal is docs/decisions/0018-cold-starts.md's; `--check` fails where a light function misses it.
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

from infra.cold_events import Request, World, world
from infra.stage import FUNCTIONS, stage

BARE: Final = "a bare app"
HEAVY: Final = ("provision", "tune")
"""Compute Engine's and Cloud TPU's clients; a library of optimisation."""
TIMES_MAX: Final = 2.5
MEMORY_MIB_MAX: Final = 80.0
HEALTH: Final = "/robots.txt"
"""functions-framework itself answers it as soon as the function is loaded."""

_BARE_APP: Final = """
import functions_framework

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
    """CPU seconds, and MiB."""

    start: float
    imports: float
    event: float
    memory: float


def measure(folder: Path, target: str, request: Request, variables: Mapping[str, str]) -> Cold:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    imports = _import(folder, target, environment)
    with _started(folder, target, environment) as (pid, port):
        started = _cpu_s(pid)
        status = _ask(port, *request)
        if status not in (200, 204):
            raise SystemExit(f"{target} answers its first event with {status}")
        return Cold(started, imports, _cpu_s(pid) - started, _mib(pid))


def measure_all(runs: int) -> dict[str, Cold]:
    found: dict[str, list[Cold]] = {}
    with tempfile.TemporaryDirectory() as name, world(Path(name)) as beside:
        folder = Path(name)
        _unpack(folder)
        for nth in range(runs):
            found.setdefault(BARE, []).append(measure(folder / "bare", "bare", ("GET", "/", {}, b""), {}))
            for function in sorted(FUNCTIONS, key=lambda each: each != "submit"):
                found.setdefault(function, []).append(_measured(folder, function, beside, f"job_{nth}"))
    return {name: _median(each) for name, each in found.items()}


def _measured(folder: Path, function: str, beside: World, job_id: str) -> Cold:
    return measure(folder / function, function, beside.first(function, job_id), beside.variables)


def _unpack(folder: Path) -> None:
    """With bytecode beside the sources, as a buildpack leaves them."""
    (folder / "bare").mkdir()
    (folder / "bare" / "main.py").write_text(_BARE_APP, encoding="utf-8")
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
def _started(folder: Path, target: str, environment: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """Its pid and port, once it answers."""
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
                _ask(port, "GET", HEALTH, {}, b"")
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{target} does not start") from None
                time.sleep(0.01)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def _ask(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


def _processes(pid: int) -> Iterator[int]:
    """The server and its worker."""
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        yield from _processes(int(child))


def _cpu_s(pid: int) -> float:
    """Source: proc(5): nanoseconds on a CPU, of each thread."""
    threads = (path for each in _processes(pid) for path in Path(f"/proc/{each}/task").iterdir())
    return sum(int((path / "schedstat").read_text(encoding="ascii").split()[0]) for path in threads) / 1e9


def _mib(pid: int) -> float:
    """All of the server's, and what its worker has for itself: pages that both have are there once."""
    server, *workers = (Path(f"/proc/{each}/smaps_rollup").read_text(encoding="ascii") for each in _processes(pid))
    kib = _kib(server, "Rss") + sum(_kib(each, "Private_Dirty") + _kib(each, "Private_Clean") for each in workers)
    return kib / 1024


def _kib(said: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", said, re.MULTILINE)
    return int(match[1]) if match else 0


def _median(found: list[Cold]) -> Cold:
    return Cold(*(statistics.median(getattr(each, field.name) for each in found) for field in fields(Cold)))


def misses(found: Mapping[str, Cold]) -> list[str]:
    """The light functions that take more than the goal."""
    bare = found[BARE]
    return [
        name
        for name, each in found.items()
        if name != BARE and name not in HEAVY and (each.start > TIMES_MAX * bare.start or each.memory > MEMORY_MIB_MAX)
    ]


def table(found: Mapping[str, Cold]) -> Iterator[str]:
    bare = found[BARE]
    missed = misses(found)
    yield f"{'CPU':14s} {'start':>8s} {'x bare':>7s} {'import':>8s} {'x bare':>7s} {'event':>8s} {'memory':>11s}"
    for name, each in found.items():
        goal = "" if name == BARE or name in HEAVY else "missed" if name in missed else "met"
        yield (
            f"{name:14s} {each.start:6.2f} s {each.start / bare.start:7.1f} {each.imports:6.2f} s "
            f"{each.imports / bare.imports:7.1f} {each.event:6.2f} s {each.memory:7.1f} MiB  {goal}".rstrip()
        )
    yield f"goal of a light function: start at most {TIMES_MAX} x bare, memory at most {MEMORY_MIB_MAX:.0f} MiB"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.bench_cold", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    found = measure_all(asked.runs)
    sys.stdout.write("\n".join([*table(found), ""]))
    return 1 if asked.check and misses(found) else 0


if __name__ == "__main__":
    sys.exit(main())
