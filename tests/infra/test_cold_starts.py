"""What a cold start may bring with it (docs/decisions/0018-cold-starts.md); `make bench-cold` has the exact figures."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra import stage
from infra.bench_cold import BARE, HEAVY, Cold, misses, table

LIGHT = [name for name in stage.FUNCTIONS if name not in HEAVY]
FORBIDDEN = ("google.cloud.compute", "google.cloud.tpu", "google.cloud.storage", "google.cloud.firestore", "grpc")
MODULES_MAX = 2.0
"""Times a bare app's: 1.5 to 1.8 when this was written, 2.6 with the client libraries."""
CPU_MAX = 4.0
"""Times a bare app's, where the goal is 2.5: two programs that run beside others."""

LOAD = """
import json, sys, time
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path = [".", *(path for path in sys.path if "site-packages" in path or "lib" in path)]
from functions_framework import create_app
bare = len(sys.modules), time.process_time()
create_app(sys.argv[1], "main.py", "http")
print(json.dumps({"modules": sorted(sys.modules), "bare": bare[0], "bare_cpu": bare[1], "cpu": time.process_time()}))
"""


@dataclass(frozen=True)
class Loaded:
    """`bare`: how many modules functions-framework had brought by itself, and the CPU seconds it took."""

    modules: list[str]
    bare: int
    bare_cpu: float
    cpu: float


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cold")
    for function, archive in stage.stage(folder / "stage").items():
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder / function)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    return folder


def load(folder: Path, function: str) -> Loaded:
    """As functions-framework loads it, from its own archive, in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, function],
        cwd=folder,
        env={"TRAINMASTER_PROJECT": "my-project"},
        capture_output=True,
        text=True,
        check=True,
    )
    return Loaded(**json.loads(done.stdout))


@pytest.mark.parametrize("function", LIGHT)
def test_a_light_function_loads_no_client_library_and_little_else(function: str, folders: Path) -> None:
    loaded = load(folders / function, function)
    assert not [name for name in loaded.modules if name.startswith(FORBIDDEN)]
    assert len(loaded.modules) <= MODULES_MAX * loaded.bare
    assert "pydantic" in loaded.modules, "what every function needs is there when its first event comes"


def test_what_touches_machines_would_not_pass(folders: Path) -> None:
    loaded = load(folders / "provision", "provision")
    assert [name for name in loaded.modules if name.startswith(FORBIDDEN)]
    assert len(loaded.modules) > MODULES_MAX * loaded.bare


def test_loading_a_light_function_takes_no_more_than_a_few_times_a_bare_app(folders: Path) -> None:
    found = [load(folders / "replica_exit", "replica_exit") for _ in range(3)]
    assert min(each.cpu for each in found) <= CPU_MAX * min(each.bare_cpu for each in found)


BARE_COLD = Cold(start=0.2, imports=0.1, event=0.0, memory=40.0)


@pytest.mark.parametrize(
    ("cold", "missed"),
    [
        (Cold(0.5, 0.4, 0.1, 80.0), []),
        (Cold(0.51, 0.2, 0.1, 60.0), ["submit"]),
        (Cold(0.4, 0.2, 0.1, 80.1), ["submit"]),
    ],
)
def test_the_goal_is_one_of_time_and_of_memory_and_light_functions_alone_have_it(cold: Cold, missed: list[str]) -> None:
    found = {BARE: BARE_COLD, "submit": cold, "provision": Cold(9.0, 9.0, 1.0, 900.0)}
    assert misses(found) == missed
    lines = {line.partition(" ")[0]: line for line in table(found)}
    assert lines["submit"].endswith("missed" if missed else "met")
    assert lines["provision"].endswith("MiB")
