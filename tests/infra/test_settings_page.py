"""docs/settings.md agrees with shared/trainmaster/settings.py, and a function with a wrong setting does not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from infra import stage
from tests.infra import settings_table
from tests.infra.conftest import Plan, extract
from trainmaster.settings import PREFIX, Settings

WRONG = {
    "project": "x",
    "installation": "my-team",
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


START_WITH_EACH = """
import importlib, json, os, sys, traceback
for name, value in json.loads(sys.argv[1]).items():
    before = dict(os.environ)
    os.environ[name] = value
    try:
        importlib.import_module("main")
    except Exception:
        print(json.dumps([name, traceback.format_exc()]))
    os.environ.clear()
    os.environ.update(before)
    sys.modules.pop("main", None)
"""
"""Import main.py once with each variable; print those with which it fails."""


def start(archive: Path, folder: Path, program: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run a program that imports main.py, which is the first thing that functions-framework does."""
    extract(archive, folder)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={**variables, "PATH": os.environ["PATH"], "PYTHONSAFEPATH": "", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.returncode, done.stdout, done.stderr


def test_each_wrong_setting_stops_the_start_and_is_named(archives: dict[str, Path], tmp_path: Path) -> None:
    wrong = {f"{PREFIX}{name.upper()}": value for name, value in WRONG.items()}
    project = {f"{PREFIX}PROJECT": "my-project"}
    _, output, errors = start(archives["sweep"], tmp_path, START_WITH_EACH, json.dumps(wrong), **project)
    failures = dict(json.loads(line) for line in output.splitlines())
    assert failures.keys() == wrong.keys(), errors
    assert [name for name, text in failures.items() if name.removeprefix(PREFIX).lower() not in text] == []


def test_function_without_a_project_does_not_start(archives: dict[str, Path], tmp_path: Path) -> None:
    status, _, errors = start(archives["sweep"], tmp_path, "import main")
    assert status == 1
    assert "project" in errors
    status, _, errors = start(archives["sweep"], tmp_path, "import main", **{f"{PREFIX}PROJECT": "my-project"})
    assert status == 0, errors


def test_main_module_reads_the_settings() -> None:
    assert "settings()" in stage.MAIN
