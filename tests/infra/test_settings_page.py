"""Every setting is described and set as infra/ says, and a function with a wrong setting does not
start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from infra import stage
from tests.infra.conftest import Plan, extract
from tests.support.pages.settings import set_by_infra
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


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_environment_variables_in_infra_are_settings(plan: Plan) -> None:
    for function in plan.of("google_cloudfunctions2_function").values():
        variables = function["service_config"][0]["environment_variables"]
        ours = {name for name in variables if name.startswith(PREFIX)}
        assert ours <= {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
        assert ours <= set_by_infra()


def test_wrong_values_cover_every_setting_except_free_text() -> None:
    free = {
        name
        for name, field in Settings.model_fields.items()
        if field.annotation is str and not field.metadata
    }
    assert set(WRONG) == set(Settings.model_fields) - free


START_WITH_EACH = """
import importlib, json, os, sys, traceback
for name, value in json.loads(sys.argv[1]):
    before = dict(os.environ)
    os.environ[name] = value
    if not value:
        del os.environ[name]
    try:
        importlib.import_module("main")
    except Exception:
        print(json.dumps([f"{name}={value}", traceback.format_exc()]))
    os.environ.clear()
    os.environ.update(before)
    sys.modules.pop("main", None)
"""
"""Import main.py, as functions-framework does first, once with each variable; print those with
which it fails.
"""


def test_each_wrong_setting_and_a_missing_project_stop_the_start_and_are_named(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    """With right settings, each function starts: test_cold_starts.py."""
    project = f"{PREFIX}PROJECT"
    wrong = [*((f"{PREFIX}{name.upper()}", value) for name, value in WRONG.items()), (project, "")]
    extract(archives["sweep"], tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", START_WITH_EACH, json.dumps(wrong)],
        cwd=tmp_path,
        env={
            project: "my-project",
            "PATH": os.environ["PATH"],
            "PYTHONSAFEPATH": "",
            "PYTHONPATH": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    failures = dict(json.loads(line) for line in done.stdout.splitlines())
    assert [*failures] == [f"{name}={value}" for name, value in wrong], done.stderr
    for variable, text in failures.items():
        assert variable.removeprefix(PREFIX).partition("=")[0].lower() in text, variable


def test_main_module_reads_the_settings() -> None:
    assert "settings()" in stage.MAIN
