"""Help texts, and the answers to words and options that the program does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.integration.cli.conftest import RunMain
from trainmaster.cli import command_table, main, option_habits
from trainmaster.cli.lazy import LazyCommand


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
        ("wait lm_7 --timeout 5m", "`timeout 10m` before the command"),
        ("top lm_7 --interval 5", "`top` and `wait` update themselves"),
        ("cost --since 7d", "--limit, which counts the newest jobs"),
        ("jobs list --since 7d", "--limit, which counts the newest jobs"),
        ("logs lm_7 --rank 3", "--task-name worker-0"),
        ("submit --max-cost 5", "trainmaster: {maxCost: 25 USD}"),
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


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("list --state runing", "'runing' is not one of 'queued', 'preparing', 'running', "),
        ("list --state runing", "'cancelled'; did you mean running?"),
        ("list --limit 0", "must be at least 1, not 0"),
        ("cost --limit 5000", "must be at most 1000, not 5000"),
        ("list --limit all", "must be a whole number, such as 10, not 'all'"),
        ("submit --worker-count two", "must be a whole number, such as 10, not 'two'"),
        ("submit --worker-count -2", "must be at least 0, not -2"),
        ("console --port abc", "must be a whole number, such as 10, not 'abc'"),
        ("local slow fast", "must be a number, such as 1.5, not 'fast'"),
        ("local stockout us-central1", "'us-central1' is not a zone, such as us-central1-"),
        ("local unreachable mars", "'mars' is not a zone, such as "),
        ("local quota us-central1-a", "'us-central1-a' is not a region, such as us-central1"),
        ("why lm_7 --format yaml", "'yaml' is not one of 'table', 'json'"),
        ("list lm_7", "`trainmaster list` takes no argument; `trainmaster describe lm_7` shows"),
        ("jobs list lm_7", "`trainmaster jobs list` takes no argument; `trainmaster describe lm_7"),
        ("logs lm_7 worker-0", "Here: --task-name worker-0"),
        ("top lm_7 worker-0", "`trainmaster top` takes only JOB"),
        ("why lm_7 worker-0 chief-0", "`trainmaster why` takes only JOB and REPLICA"),
        ("submit --folder . python -m task", "belongs after --, with its options"),
    ],
)
def test_wrong_value_or_argument_is_answered_with_what_is_valid(words: str, answer: str) -> None:
    result = CliRunner().invoke(main.app, words.split())
    assert result.exit_code == 2
    assert answer in result.output
    assert "Value error" not in result.output


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


@pytest.mark.parametrize("group", ["schedule", "prices", "dead-letters", "jobs", "local"])
def test_help_of_a_group_has_no_options_that_only_the_program_has(group: str) -> None:
    result = CliRunner().invoke(main.app, [group, "--help"])
    assert result.exit_code == 0
    assert "completion" not in result.stdout
