"""docs/settings.md agrees with shared/trainmaster/settings.py, and a function with a wrong setting does not start."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra import stage
from tests.infra import settings_table
from tests.infra.conftest import Plan
from trainmaster.settings import PREFIX, Settings

WRONG = {
    "project": "x",
    "agent": "gs://b/agent.zip",
    "algorithms": "gs://b/algorithms.whl",
    "gcsfuse": "gs://b/gcsfuse",
    "tpu": "perhaps",
    "addressing": "by-post",
    "account_networks": "finance",
    "allowed_resources": "everything",
    "serial_port_logging": "sometimes",
    "metrics": "sometimes",
    "ssh": "for some",
    "regions": "us-central1-a",
    "boot_images": "debian-12=mine",
    "notifications": "now and then",
    "limits": "many",
    "jobs_per_minute": "-1",
    "messages_per_minute": "1.5",
    "requests_per_minute": "some",
    "ml_unit_price": "cheap",
    "console_address": "http://console.example.com",
    "console_audience": "trainmaster-console",
    "console_acts": "sometimes",
    "operation_wait_s": "1000",
}
"""A wrong value for each setting that has any. The others accept any text."""


def test_page_has_the_table_of_all_settings() -> None:
    """If it fails, replace the table by the output of `python -m tests.infra.settings_table`."""
    page = settings_table.PAGE.read_text(encoding="utf-8")
    assert page.partition(settings_table.BEGIN)[2].partition(settings_table.END)[0] == settings_table.table()


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_environment_variables_in_infra_are_settings(plan: Plan) -> None:
    for function in plan.of("google_cloudfunctions2_function").values():
        variables = function["service_config"][0]["environment_variables"]
        ours = {name for name in variables if name.startswith(PREFIX)}
        assert ours <= {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
        assert ours <= settings_table.set_by_infra()


def test_wrong_values_cover_every_setting_except_free_text() -> None:
    free = {name for name, field in Settings.model_fields.items() if field.annotation is str and not field.metadata}
    assert set(WRONG) == set(Settings.model_fields) - free


def start(archive: Path, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Import main.py, which is the first thing that functions-framework does."""
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
def test_wrong_setting_stops_the_start_and_is_named(name: str, archives: dict[str, Path], tmp_path: Path) -> None:
    variables = {f"{PREFIX}PROJECT": "my-project", f"{PREFIX}{name.upper()}": WRONG[name]}
    done = start(archives["sweep"], tmp_path, variables)
    assert done.returncode == 1
    assert name in done.stderr


def test_function_without_a_project_does_not_start(archives: dict[str, Path], tmp_path: Path) -> None:
    done = start(archives["api"], tmp_path, {})
    assert done.returncode == 1
    assert "project" in done.stderr
    assert start(archives["api"], tmp_path, {f"{PREFIX}PROJECT": "my-project"}).returncode == 0


def test_main_module_reads_the_settings() -> None:
    assert "settings()" in stage.MAIN
