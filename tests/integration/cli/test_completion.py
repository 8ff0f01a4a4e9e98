"""Completion of commands and options in the shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainmaster.cli import main


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
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(first_line)
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
