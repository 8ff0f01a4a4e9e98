"""What a command imports: a command starts quickly because it imports only what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = (
    "flask",
    "google.api_core",
    "grpc",
    "importlib.metadata",
    "pydantic",
    "requests",
    "rich",
    "trainmaster.api",
    "trainmaster.console",
    "trainmaster.cost",
    "trainmaster.flows",
    "trainmaster.jobspec.formats",
    "trainmaster_local.simulator",
    "trainmaster_emulators",
)
"""Modules that take long to import, and packages of ours that import them."""
FORMATS = {"trainmaster.jobspec.formats"}
JOB_FILES = {"importlib.metadata", "pydantic", *FORMATS}
"""Modules that read job files."""

IMPORTED: dict[str, set[str]] = {
    "": set(),
    "why": JOB_FILES - FORMATS,
    "submit": JOB_FILES,
    "jobs": JOB_FILES - FORMATS | {"trainmaster.cost"},
    "console": {"importlib.metadata", "pydantic"},
}
"""Command → the modules of `HEAVY` that its help imports."""
SHOW_HELPS = """
import contextlib, io, json, os, sys
from trainmaster.cli.main import app
for command in sys.argv[1:]:
    if not os.fork():
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
            app([*command.split(), "--help"])
        print(json.dumps([command, "Usage" in output.getvalue(), [*sys.modules]]), flush=True)
        os._exit(0)
    os.wait()
"""


def test_command_imports_only_what_it_needs() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SHOW_HELPS, *IMPORTED], capture_output=True, text=True, check=True
    )
    imported = {}
    for command, is_shown, modules in map(json.loads, result.stdout.splitlines()):
        assert is_shown, result.stderr
        imported[command] = {
            name for name in HEAVY if any(f"{module}.".startswith(f"{name}.") for module in modules)
        }
    assert imported == IMPORTED


WRONG_FILE = """
import sys
from trainmaster.__main__ import main
sys.argv = ["trainmaster", "submit", "--check", sys.argv[1]]
try:
    main()
finally:
    print(*sys.modules, sep="\\n")
"""


def test_check_of_a_wrong_file_imports_no_client_of_google(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("jobId: digits_1\ntrainingInput: {region: us-central1, scaleTier: LARGE}\n")
    result = subprocess.run(
        [sys.executable, "-c", WRONG_FILE, str(job)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stderr
    assert "scaleTier" in result.stdout
    imported = set(result.stdout.split())
    assert "trainmaster.jobspec.accept" in imported
    assert imported.isdisjoint({"google.api_core", "google.auth", "grpc", "werkzeug"})


def test_check_of_a_job_imports_neither_the_other_checks_nor_pubsub() -> None:
    program = (
        "import sys, trainmaster.cli.submit, trainmaster.cli.doctor.inspecting, "
        "trainmaster.cli.doctor.job_checks; print(*sys.modules, sep='\\n')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(result.stdout.split())
    assert "trainmaster.cli.doctor.job_checks" in imported
    assert imported.isdisjoint(
        {"trainmaster.cli.doctor.checks", "google.pubsub_v1", "trainmaster.cli.wait"}
    )


def test_command_that_only_reads_imports_no_client_of_pubsub() -> None:
    program = (
        "import sys; from trainmaster.wiring.core_services import store; store();"
        " print(*sys.modules, sep='\\n')"
    )
    environment = {
        **os.environ,
        "TRAINMASTER_PROJECT": "my-project",
        "FIRESTORE_EMULATOR_HOST": "127.0.0.1:9",
    }
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(result.stdout.split())
    assert "google.cloud.firestore" in imported
    assert "google.pubsub_v1" not in imported
