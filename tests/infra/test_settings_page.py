"""docs/settings.md is what shared/settings.py says, and a wrong setting stops the start of a function."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra import stage
from shared.settings import PREFIX, Settings
from tests.infra import settings_table
from tests.infra.conftest import Plan

WRONG = {
    "project": "x",
    "tpu": "perhaps",
    "addressing": "by-post",
    "limits": "many",
    "jobs_per_minute": "-1",
    "requests_per_minute": "some",
    "ml_unit_price": "cheap",
    "operation_wait_s": "1000",
}
"""Of each that may be wrong; the others take any text."""


def test_the_table_is_the_one_that_the_code_says() -> None:
    """`python -m tests.infra.settings_table` prints the one to put there."""
    page = settings_table.PAGE.read_text(encoding="utf-8")
    assert page.partition(settings_table.BEGIN)[2].partition(settings_table.END)[0] == settings_table.table()


def test_each_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_what_infra_sets_is_a_setting_and_is_read(plan: Plan) -> None:
    for function in plan.of("google_cloudfunctions2_function").values():
        said = function["service_config"][0]["environment_variables"]
        ours = {name for name in said if name.startswith(PREFIX)}
        assert ours <= {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
        assert ours <= settings_table.set_by_infra()


def test_every_setting_that_can_be_wrong_is_tried() -> None:
    """Text without bounds is never wrong."""
    free = {name for name, field in Settings.model_fields.items() if field.annotation is str and not field.metadata}
    assert set(WRONG) == set(Settings.model_fields) - free


def start(archive: Path, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What functions-framework does first: it imports main.py."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return subprocess.run(
        [sys.executable, "-c", "import main"],
        cwd=folder,
        env={**variables, "PATH": os.environ["PATH"], "PYTHONSAFEPATH": "", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_stops_the_start_with_its_name(name: str, archives: dict[str, Path], tmp_path: Path) -> None:
    variables = {f"{PREFIX}PROJECT": "my-project", f"{PREFIX}{name.upper()}": WRONG[name]}
    done = start(archives["sweep"], tmp_path, variables)
    assert done.returncode == 1
    assert name in done.stderr


def test_no_function_starts_without_a_project(archives: dict[str, Path], tmp_path: Path) -> None:
    done = start(archives["api"], tmp_path, {})
    assert done.returncode == 1
    assert "project" in done.stderr
    assert start(archives["api"], tmp_path, {f"{PREFIX}PROJECT": "my-project"}).returncode == 0


def test_every_functions_start_looks_at_its_settings() -> None:
    assert "settings()" in stage.MAIN
