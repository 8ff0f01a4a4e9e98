"""`make bench-cold`: what a cold start of each staged function costs, beside a bare functions-framework app.

Each is started in an interpreter of its own from its own archive, as functions-framework starts it: seconds until it
could answer, the CPU's part of them, which other programs on the machine change little, and the memory of the process
then. The median of several starts. `--check` fails where a light function (one that knows of no machines) takes more
than so many times a bare one's CPU, or so much memory: docs/decisions/0018-cold-starts.md says why so many.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stage import FUNCTIONS, stage

MACHINES: Final = "provision"
BARE: Final = "a bare app"
TIMES_MAX: Final = 5.0
MEMORY_MIB_MAX: Final = 90.0

_BARE_APP: Final = """
import functions_framework

@functions_framework.http
def bare(request):
    return "", 204
"""
_START: Final = """
import json, resource, sys, time
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path = [sys.argv[1], *(path for path in sys.path if "site-packages" in path or "lib" in path)]
began, began_cpu = time.perf_counter(), time.process_time()
from functions_framework import create_app
create_app(sys.argv[2], sys.argv[1] + "/main.py", "http")
took = time.perf_counter() - began, time.process_time() - began_cpu
print(json.dumps([*took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


@dataclass(frozen=True, slots=True)
class Start:
    seconds: float
    cpu_s: float
    mib: float


def measure(folder: Path, target: str, runs: int) -> Start:
    environment = {"PATH": "/usr/bin:/bin", "TRAINMASTER_PROJECT": "my-project"}
    found = []
    for _ in range(runs):
        command = [sys.executable, "-I", "-c", _START, str(folder), target]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{target} does not start:\n{done.stderr}")
        found.append(Start(*json.loads(done.stdout.splitlines()[-1])))
    return Start(
        statistics.median(each.seconds for each in found),
        statistics.median(each.cpu_s for each in found),
        statistics.median(each.mib for each in found),
    )


def measure_all(runs: int) -> dict[str, Start]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bare").mkdir()
        (folder / "bare" / "main.py").write_text(_BARE_APP, encoding="utf-8")
        found = {BARE: measure(folder / "bare", "bare", runs)}
        for function, archive in stage(folder / "stage").items():
            with zipfile.ZipFile(archive) as file:
                file.extractall(folder / function)
            found[function] = measure(folder / function, function, runs)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python infra/bench_cold.py", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    found = measure_all(asked.runs)
    bare = found[BARE]
    for name, start in found.items():
        times = start.cpu_s / bare.cpu_s
        sys.stdout.write(
            f"{name:14s} {start.seconds:6.2f} s  {start.cpu_s:6.2f} s CPU  {times:4.1f} x  {start.mib:6.1f} MiB\n"
        )
    heavy = [
        name
        for name in FUNCTIONS
        if name != MACHINES and (found[name].cpu_s > TIMES_MAX * bare.cpu_s or found[name].mib > MEMORY_MIB_MAX)
    ]
    if heavy:
        sys.stdout.write(f"more than {TIMES_MAX} x or {MEMORY_MIB_MAX:.0f} MiB: {', '.join(heavy)}\n")
    return 1 if asked.check and heavy else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
