"""The examples of built-in algorithms: their job files name the data that the script writes."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from tests.integration.algorithms.conftest import ROOT
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.algorithms import ALGORITHMS
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_local.cli.example_stack import RunningStack
from trainmaster_local.cli.example_upload import upload
from trainmaster_local.cli.job_monitor import Report
from trainmaster_local.memory.objects import MemoryObjects

pytestmark = pytest.mark.slow

JOB_FILES = sorted(ROOT.glob("examples/algorithm_*/job.yaml"))


def test_every_algorithm_has_an_example() -> None:
    assert {path.parent.name for path in JOB_FILES} == {f"algorithm_{name}" for name in ALGORITHMS}


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_job_file_runs_its_algorithm_on_the_data_that_the_script_writes(
    path: Path, data: Path
) -> None:
    plan = accept(parse_document(path.read_bytes(), path.name), default_job_id="example_1").plan
    written = [
        f"gs://trainmaster-local/data/{file.relative_to(data).as_posix()}"
        for file in (data / path.parent.name).rglob("*.csv")
    ]
    patterns = [
        argument.partition("=")[2] for argument in plan.program.args if "_data_path=" in argument
    ]

    assert plan.origin.algorithm is not None
    assert f"algorithm_{plan.origin.algorithm.name}" == path.parent.name
    assert written
    assert all(any(fnmatch.fnmatch(uri, pattern) for pattern in patterns) for uri in written)
    assert all(fnmatch.filter(written, pattern) for pattern in patterns)


def test_local_run_uploads_the_data_and_the_job_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # without gsutil, it uses the Objects port
    objects = MemoryObjects()
    on = SimpleNamespace(objects=objects, state=SimpleNamespace(config=StackConfig()))
    upload("algorithm_boosted_trees", cast("RunningStack", on), Report(Console(quiet=True)))

    for uri in ("data/algorithm_boosted_trees/wine.csv", "jobs/algorithm_boosted_trees.yaml"):
        assert objects.read(f"gs://trainmaster-local/{uri}", max_bytes=1 << 20)
