"""The program as a whole: help texts, and errors of users as one line and an exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from google.api_core.exceptions import PermissionDenied
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from typer.testing import CliRunner

from tests.integration.cli.conftest import Installation
from tests.support.jobs import a_spec
from trainmaster import settings
from trainmaster.cli import command_table, jobs, main, option_habits
from trainmaster.cli.lazy import LazyCommand
from trainmaster.cli.local_distribution import MISSING, PACKAGE
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.errors import explain

REFUSED = (
    "Google Cloud refused the request: Missing or insufficient permissions. "
    "Run `trainmaster doctor` to see what to repair"
)

RunMain = Callable[..., tuple[object, str]]
RunFailing = Callable[[BaseException], tuple[object, str]]


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(None, name), (*path, name))


COMMANDS = dict(commands(typer.main.get_command(main.app)))


def test_command_and_its_options_have_help_texts() -> None:
    for path, command in COMMANDS.items():
        assert command.help, path
        options = [option for option in command.params if not getattr(option, "hidden", False)]
        assert [option.name for option in options if not option.help] == [], path
        result = CliRunner().invoke(main.app, [*path, "--help"], env={"COLUMNS": "100"})
        assert result.exit_code == 0, path
        assert not re.findall(r"--[a-z-]+…", result.output), (
            f"the name of an option of {path} is cut off"
        )


def test_list_of_commands_names_every_command() -> None:
    result = CliRunner().invoke(main.app, ["--help"], env={"COLUMNS": "100"})
    names = set(re.findall(r"^  ([a-z-]+) ", result.output, re.MULTILINE))
    assert {path[0] for path in COMMANDS if path} <= names


@pytest.mark.parametrize(
    ("group", "table"),
    [((), command_table.COMMANDS), (("jobs",), command_table.JOB_COMMANDS)],
    ids=["all", "jobs"],
)
def test_summaries_of_lists_are_those_of_the_commands(
    group: tuple[str, ...], table: dict[str, LazyCommand]
) -> None:
    helps = {name: COMMANDS[(*group, name)].help.partition("\n\n")[0] for name in table}
    assert {name: command.summary for name, command in table.items()} == {
        name: " ".join(text.split()) for name, text in helps.items()
    }


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("queue", "list"),
        ("ps", "list"),
        ("stop lm_7", "cancel"),
        ("launch task.yaml", "submit"),
        ("jobs submit training lm_7", "submit"),
        ("jobs stream-logs lm_7", "logs --follow"),
        ("describ lm_7", "describe"),
        ("ai-platform jobs stream-logs lm_7", "logs --follow"),
        ("ai custom-jobs create", "submit"),
        ("sky jobs queue", "list"),
        ("gcloud ai custom-jobs", "list"),
        ("cost-report", "cost"),
        ("squeue", "list"),
    ],
)
def test_word_of_another_tool_and_mistyped_word_are_answered(words: str, meant: str) -> None:
    result = CliRunner().invoke(main.app, words.split())
    assert result.exit_code == 2
    assert f"Did you mean `trainmaster {meant}`?" in result.output


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("list -n 5", "--limit"),
        ("list -o json", "--format json"),
        ("why lm_7 --json", "--format json"),
        ("logs lm_7 --tail 5", "| tail -n NUMBER"),
        ("cancel lm_7 --yes", "leave it out"),
        ("list --filter state=RUNNING", "--state, --label or --user"),
        ("why lm_7 --replica worker-0", "an argument without a name, REPLICA"),
        ("describe --job-id lm_7", "an argument without a name, JOB"),
        ("logs --job lm_7", "an argument without a name, JOB"),
        ("cancel --job lm_7", "an argument without a name, JOB"),
        ("submit --gpus 8", "--master-machine-type a2-highgpu-1g"),
        ("submit --num-nodes 2", "--worker-count 1"),
        ("submit --dry-run job.yaml", "--check"),
        ("submit --env A=1", "trainmaster: {env:"),
        ("submit -f job.yaml", "as the first argument"),
    ],
)
def test_option_of_another_tool_is_answered_with_what_says_the_same(words: str, meant: str) -> None:
    result = CliRunner().invoke(main.app, words.split())
    assert result.exit_code == 2
    option = next(word for word in words.split() if word.startswith("-"))
    assert f"No such option: {option}. Here: " in result.output
    assert meant in result.output


def test_unknown_option_is_answered_with_its_neighbours_only() -> None:
    result = CliRunner().invoke(main.app, ["list", "--all"])
    assert result.exit_code == 2
    assert "No such option: --all (Possible options: --label)" in result.output
    assert "Here:" not in result.output


def test_options_of_other_tools_name_options_that_exist() -> None:
    submit = {name for parameter in COMMANDS[("submit",)].params for name in parameter.opts}
    named = [meaning.split()[0] for meaning in option_habits.HintingSubmit.meanings.values()]
    assert {word.rstrip(",;") for word in named if word.startswith("--")} <= submit
    taken = {name for names in option_habits.HintingSubmit.meanings for name in names}
    assert not taken & submit


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("submit FOLDER", "--folder FOLDER -- COMMAND"),
        ("submit FOLDER -- torchrun train.py", "--folder FOLDER -- torchrun train.py"),
        ("submit FOLDER/train.py -- --lr 0.1", "--folder FOLDER -- python train.py --lr 0.1"),
        ("submit FOLDER/Makefile", "--folder FOLDER -- COMMAND"),
        ("submit FOLDER/Dockerfile", "--folder FOLDER -- COMMAND"),
        ("submit FOLDER/requirements.txt", "--folder FOLDER -- COMMAND"),
        ("submit FOLDER/pyproject.toml -- torchrun a.py", "--folder FOLDER -- torchrun a.py"),
    ],
)
def test_folder_or_program_in_place_of_a_job_file_names_the_command_that_runs_it(
    words: str, command: str, tmp_path: Path, run_main: RunMain
) -> None:
    status, error = run_main(*words.replace("FOLDER", str(tmp_path)).split())
    assert status == 1
    assert f"`trainmaster submit {command.replace('FOLDER', str(tmp_path))}` runs it" in error


def test_reason_is_explained_in_any_case_and_a_wrong_one_names_the_nearest(
    run_main: RunMain, capsys: pytest.CaptureFixture[str]
) -> None:
    result = CliRunner().invoke(main.app, ["why", "--reason", "Same-Failure-Again"])
    assert result.output.startswith("same_failure_again: ")
    as_json = CliRunner().invoke(
        main.app, ["why", "--reason", "same_failure_again", "--format", "json"]
    )
    assert json.loads(as_json.output)["rules"] == [8]
    status, error = run_main("why", "--reason", "STALL")
    assert (status, error) == (
        1,
        "trainmaster: --reason: 'STALL' is not a reason of decisions; did you mean stalled?\n",
    )


def test_help_groups_the_commands_by_what_they_are_for() -> None:
    lines = CliRunner().invoke(main.app, ["--help"], env={"COLUMNS": "100"}).output.splitlines()
    headings = [line.removesuffix(":") for line in lines if re.fullmatch(r"[A-Z]\w+:", line)]
    _options, *sections = headings
    assert sections == [str(section) for section in command_table.SECTIONS]


def test_words_of_other_tools_lead_to_commands_that_exist() -> None:
    """`HABITS`: word of another tool → command or option of ours, such as `logs --follow`."""
    words = {habit.split()[0] for habit in command_table.HABITS.values()}
    commands = {word for word in words if not word.startswith("--")}
    assert commands <= command_table.COMMANDS.keys()


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


IMPORTED: dict[str, set[str]] = {
    "": set(),
    "why": JOB_FILES - FORMATS,
    "submit": JOB_FILES,
    "jobs": JOB_FILES - FORMATS | {"trainmaster.cost"},
    "console": {"importlib.metadata", "pydantic"},
}
"""Command → what its help imports."""
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


@pytest.fixture
def run_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunMain:
    """Runs the console script, and returns its exit status and standard error."""

    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["trainmaster", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main.run()
        return exit_info.value.code, capsys.readouterr().err

    return run


@pytest.fixture
def run_failing(run_main: RunMain, monkeypatch: pytest.MonkeyPatch) -> RunFailing:
    """Runs the console script with a command that raises this error."""

    def run(error: BaseException) -> tuple[object, str]:
        def fail() -> None:
            raise error

        monkeypatch.setattr(jobs, "open_store", fail)
        return run_main("jobs", "list")

    return run


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermanentError("no job x"), "no job x"),
        (TemporaryError("Firestore does not answer"), "Firestore does not answer"),
        (
            DefaultCredentialsError("…"),
            (
                "no credentials for Google Cloud were found: log in with `gcloud auth"
                " application-default login`"
            ),
        ),
        (
            RefreshError("…"),
            (
                "your credentials for Google Cloud have expired: log in with `gcloud auth"
                " application-default login`"
            ),
        ),
        (
            PermissionDenied("Missing or insufficient permissions."),
            REFUSED,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_expected_error_is_one_line_and_status_1(
    run_failing: RunFailing, error: Exception, message: str
) -> None:
    assert run_failing(error) == (1, f"trainmaster: {message}\n")


def test_error_caused_by_missing_credentials_explains_how_to_log_in(
    run_failing: RunFailing,
) -> None:
    error = TemporaryError("credentials: …")
    error.__cause__ = DefaultCredentialsError("…")
    assert "gcloud auth application-default login" in run_failing(error)[1]


def test_interrupt_has_status_130(run_failing: RunFailing) -> None:
    assert run_failing(KeyboardInterrupt()) == (130, "")


def test_invalid_setting_is_named(run_failing: RunFailing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_LIMITS", "many")
    with pytest.raises(ValueError, match="limits") as invalid:
        settings.read_settings()
    assert run_failing(invalid.value) == (
        1,
        (
            "trainmaster: TRAINMASTER_LIMITS: 'many' is not RESOURCE=NUMBER, once each, such as"
            " vcpus=450\n"
        ),
    )


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


def test_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["trainmaster", "jobs", "list"])
    monkeypatch.setattr(jobs, "open_store", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main.run()
    assert explain(ZeroDivisionError()) is None


class Absent:
    """Finds no module of the other distribution."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == PACKAGE:
            raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)


@pytest.mark.parametrize("command", ["local up", "simulate job.yaml", "advise digits_1"])
def test_command_of_the_other_distribution_says_how_to_get_it(
    run_main: RunMain, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    assert run_main(*command.split()) == (1, f"trainmaster: {MISSING}\n")


def test_describe_prints_text_or_json(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CORE_ACCOUNT", "anna@example.com")
    job = {
        "jobId": "digits_1",
        "labels": {"team": "vision", "stage": "a"},
        **a_spec(runtimeVersion="2.11"),
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert installation.run("submit", str(tmp_path / "job.json")).exit_code == 0
    lines = installation.run("jobs", "describe", "digits_1").stdout.splitlines()
    assert lines[0] == "jobId: digits_1"
    assert {"state: QUEUED", "labels: stage=a, team=vision"} <= set(lines)
    assert "submitted: by trainmaster submit, by anna@example.com (unverified)" in lines
    assert "used so far: 0.00 machine-hours, 0.00 ML units" in lines
    assert not [line for line in lines if "{" in line], "a value is printed as a dictionary"
    view = json.loads(installation.run("jobs", "describe", "digits_1", "--format=json").stdout)
    assert view["trainmaster"]["usage"] == {"machineHours": 0.0, "mlUnits": 0.0}
    assert (
        view["trainmaster"]["submitted"]
        == "by trainmaster submit, by anna@example.com (unverified)"
    )
    assert installation.run("why", "digits_1").stdout.startswith(
        "digits_1 was submitted by trainmaster submit, by anna@example.com (unverified).\n"
    )


def test_unknown_job_is_one_error_line(installation: Installation, run_main: RunMain) -> None:
    error = "trainmaster: there is no job missing_1. `trainmaster list` shows all jobs\n"
    assert run_main("jobs", "describe", "missing_1") == (1, error)


def test_version_option_prints_the_version() -> None:
    assert CliRunner().invoke(main.app, ["--version"]).stdout.startswith("trainmaster ")


@pytest.mark.parametrize("group", ["schedule", "prices", "dead-letters", "jobs", "local"])
def test_help_of_a_group_has_no_options_that_only_the_program_has(group: str) -> None:
    result = CliRunner().invoke(main.app, [group, "--help"])
    assert result.exit_code == 0
    assert "completion" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "first_line"),
    [
        (["--show-completion", "bash"], "_trainmaster_completion() {"),
        (["--show-completion", "zsh"], "#compdef trainmaster"),
        (["--show-completion=zsh"], "#compdef trainmaster"),
        (["--show-completion", "/usr/bin/fish"], "complete --command trainmaster"),
        (["--show-completion", "pwsh"], "Import-Module PSReadLine"),
    ],
    ids=" ".join,
)
def test_completion_is_shown_for_the_shell_that_is_named(
    arguments: list[str], first_line: str
) -> None:
    result = CliRunner().invoke(main.app, arguments, prog_name="trainmaster")
    assert (result.exit_code, result.stdout.startswith(first_line)) == (0, True), result.output
    assert "_TRAINMASTER_COMPLETE=" in result.stdout or "$Env:_TRAINMASTER" in result.stdout


def test_completion_is_installed_for_the_shell_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = ["--install-completion", "zsh"]
    result = CliRunner().invoke(main.app, arguments, prog_name="trainmaster")
    assert result.exit_code == 0, result.output
    (script,) = tmp_path.rglob("_trainmaster")
    assert script.read_text().startswith("#compdef trainmaster")


def test_installed_completion_of_zsh_answers_the_first_tab(tmp_path: Path) -> None:
    """zsh calls the script as a function whose name is that of its file."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed: apt-get install --no-install-recommends zsh")
    env = {**os.environ, "HOME": str(tmp_path)}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    program = Path(sys.executable).with_name("trainmaster")
    subprocess.run([program, "--install-completion", "zsh"], env=env, check=True, timeout=60)
    first_tab = """
    fpath+=$HOME/.zfunc; autoload -Uz compinit _trainmaster
    compinit -u; _arguments() { print -r -- $@ }; _describe() { print -r -- ${(P)2} }
    words=(trainmaster sch); CURRENT=2; _trainmaster
    """
    shown = subprocess.run(
        ["zsh", "-f", "-c", first_tab],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "schedule" in shown.stdout, shown


@pytest.mark.parametrize("words", [["tcsh"], ["zsh", "bash"], [""]])
def test_shell_without_completion_is_refused_with_those_that_have_it(words: list[str]) -> None:
    result = CliRunner().invoke(main.app, ["--show-completion", *words], prog_name="trainmaster")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "bash, zsh, fish, powershell, pwsh" in result.stderr


def test_shell_completion_offers_commands_and_options() -> None:
    for words, expected in (
        ("trainmaster sch", "schedule"),
        ("trainmaster submit --worker-co", "--worker-count"),
    ):
        env = {**os.environ, "_TRAINMASTER_COMPLETE": "complete_bash", "COMP_WORDS": words}
        env["COMP_CWORD"] = str(words.count(" "))
        result = CliRunner().invoke(main.app, [], prog_name="trainmaster", env=env)
        assert result.stdout.split() == [expected]
