"""Limits of a cold start (docs/decisions/0026-google-clients.md).

`make bench-cold` measures the exact figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.cold_starts import CLIENTS, MORE, Cold, Comparison, exceeded, table
from infra import stage
from tests.infra.conftest import extract

MODULES_EXTRA_MAX = 100
"""Modules that a function may load beside functions-framework, its client libraries and their
transports.
"""

LOAD = """
import importlib, json, os, sys
libraries = json.loads(sys.argv[1])
sys.path = [".", *(path for path in sys.path if "site-packages" in path or "lib" in path)]
from functions_framework import create_app
for name in ("google.cloud.firestore", "google.pubsub_v1.services.publisher", "pydantic"):
    importlib.import_module(name)
for name in (*sys.argv[2:], *libraries):
    child = os.fork()
    if not child:
        if name in libraries:
            for library in libraries[name]:
                importlib.import_module(library)
        else:
            os.chdir(name)
            create_app(name, "main.py", "http")
        print(json.dumps([name, sorted(sys.modules)]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
"""Load each function, and the client libraries of some, in a fork of its own.

What all functions need is imported before.
"""
LIBRARIES = {
    f"libraries of {function}": [*CLIENTS, *MORE.get(function, ()), "pydantic.root_model"]
    for function in ("replica_exit", "api", "upload")
}
RESTRICTED = {
    "google.cloud.compute": {"provision"},
    "google.cloud.tpu": set(),  # `provision` imports it when TRAINMASTER_TPU is set
    "google.cloud.storage": {"upload"},
    "google.cloud.scheduler": set(),
    "google.cloud.logging": set(),  # imported when the first line of a job's log is written
    "optuna": {"tune"},
}
"""Libraries and the functions that may load them at their start."""


@pytest.fixture(scope="module")
def loaded(
    archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """Load each function as functions-framework does, from its own archive alone; return its
    modules.
    """
    folder = tmp_path_factory.mktemp("cold")
    for function, archive in archives.items():
        extract(archive, folder / function)
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, json.dumps(LIBRARIES), *archives],
        cwd=folder,
        env={"TRAINMASTER_PROJECT": "my-project"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_function_loads_only_the_client_libraries_that_it_uses(
    loaded: dict[str, list[str]],
) -> None:
    for function in stage.FUNCTIONS:
        modules = loaded[function]
        restricted = {
            name for name in RESTRICTED if any(module.startswith(name) for module in modules)
        }
        assert restricted == {name for name, users in RESTRICTED.items() if function in users}, (
            function
        )
        assert {f"functions.{function}", "trainmaster.gcp.firestore.store"} <= set(modules), (
            function
        )


def test_function_loads_few_modules_beside_its_client_libraries(
    loaded: dict[str, list[str]],
) -> None:
    for name in LIBRARIES:
        function = name.removeprefix("libraries of ")
        assert len(loaded[function]) <= len(loaded[name]) + MODULES_EXTRA_MAX, function


@dataclass(frozen=True)
class Case:
    function: Cold
    exceeded: list[str]


BARE = Cold(start=0.5, imports=0.4, event=0.0, memory=100.0)


@pytest.mark.parametrize(
    "case",
    [
        Case(Cold(start=0.65, imports=0.5, event=0.1, memory=140.0), exceeded=[]),
        Case(Cold(start=0.66, imports=0.5, event=0.1, memory=140.0), ["start"]),
        Case(Cold(start=0.5, imports=0.4, event=0.1, memory=140.5), ["memory beside the bare app"]),
        Case(
            Cold(start=0.5, imports=0.4, event=0.1, memory=160.5),
            ["memory beside the bare app", "memory"],
        ),
    ],
    ids=lambda case: ", ".join(case.exceeded) or "nothing",
)
def test_each_limit_of_a_cold_start_is_checked(case: Case) -> None:
    comparisons = {"submit": Comparison(case.function, BARE)}
    assert exceeded(comparisons) == ({"submit": case.exceeded} if case.exceeded else {})
    (line,) = [line for line in table(comparisons) if line.startswith("submit")]
    assert line.endswith("over the limit: " + ", ".join(case.exceeded) if case.exceeded else "ok")


def test_console_has_limits_of_its_own() -> None:
    assert (
        exceeded(
            {"console": Comparison(Cold(start=0.75, imports=0.5, event=0.1, memory=150.0), BARE)}
        )
        == {}
    )
    over = Comparison(Cold(start=0.76, imports=0.5, event=0.1, memory=150.5), BARE)
    assert exceeded({"console": over}) == {"console": ["start", "memory beside the bare app"]}


def test_limit_of_total_memory_is_for_light_functions_only() -> None:
    heavy = Comparison(
        Cold(start=0.5, imports=0.4, event=0.1, memory=230.0),
        Cold(start=0.5, imports=0.4, event=0.0, memory=200.0),
    )
    assert exceeded({"provision": heavy}) == {}
    assert exceeded({"submit": heavy}) == {"submit": ["memory"]}
