"""Run the commands of a page as they are printed, in one shell, as a user does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.stack import clean_environment
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process.state_dirs import STATE_DIR_VARIABLE

_BLOCK: Final = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
_CONTINUED: Final = re.compile(r" *\\\n *")
INTERRUPTED: Final = "Ctrl-C"
"""A comment with this word says that the user ends the command."""
"""Names in commands that a user replaces by those of a project on Google Cloud."""
PLACEHOLDER: Final = re.compile(r"\b(?:PROJECT|BUCKET|JOB)\b")
COMMAND_MAX_S: Final = 900.0
"""How long a command may take."""
SHOWN_MAX_S: Final = 180.0
"""How long the last command of a block may have to be repeated until it prints what is shown."""


class Block(NamedTuple):
    """A block of a page: `sh` runs; without a language it is what the `sh` before it prints."""

    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        lines = _CONTINUED.sub(" ", self.text).splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]

    @property
    def needs_google_cloud(self) -> bool:
        return bool(PLACEHOLDER.search(self.text))


def blocks_of(page: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page.read_text(encoding="utf-8"))]


@dataclass
class Shell:
    """A user's shell: each command sees the folder and the variables of those before it."""

    home: Path
    """Its home. The state of the stack is beside it."""
    folder: Path = ROOT
    _variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self._variables = clean_environment() | {
            "HOME": str(self.home),
            STATE_DIR_VARIABLE: str(self.home.parent / "state"),
        }

    def run(self, command: str, until: str = "") -> str:
        """Return what the command prints. `until`: interrupt it once it has printed this."""
        after = self.home.parent / "after"
        script = f"{command}\nstatus=$?\n(pwd; env -0) >{after}\nexit $status"
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                if until:
                    return _interrupt(process, until)
                output, _ = process.communicate(timeout=COMMAND_MAX_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{command}: status {process.returncode}\n{output}"
        folder, _, variables = after.read_text(encoding="utf-8").partition("\n")
        self.folder = Path(folder)
        pairs = (item.partition("=") for item in variables.split("\0") if item)
        self._variables = {name: value for name, _, value in pairs}
        return output

    def run_block(self, block: Block, shown: str = "", until: str = "epoch") -> None:
        """Run the commands of a block, until the last one has printed the lines that are shown."""
        output = ""
        for command in block.commands:
            output += self.run(command, until if INTERRUPTED in command else "")
        deadline = time.monotonic() + SHOWN_MAX_S
        while missing(shown, output) and time.monotonic() < deadline:
            time.sleep(2)
            output += self.run(block.commands[-1], until if INTERRUPTED in block.text else "")
        assert missing(shown, output) == [], output


def missing(shown: str, output: str) -> list[str]:
    """Return the shown lines that no line of the output has, whatever their numbers are."""
    printed = _without_numbers(output)
    return [line for line in shown.splitlines() if line and _without_numbers(line) not in printed]


def _without_numbers(text: str) -> str:
    """Return the text with 0 for each number, and without the kinds of replicas and alignment."""
    text = re.sub(r"\b(?:chief|master|worker)\b", "replica", text)
    return re.sub(r" +", " ", re.sub(r"\d+", "0", text)).rstrip()


def _interrupt(process: subprocess.Popen[str], until: str) -> str:
    """Send Ctrl-C once the text is printed, and return all that was printed."""
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if until in line and process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            break
    lines += process.stdout.read().splitlines(keepends=True)
    assert any(until in line for line in lines), "".join(lines)
    return "".join(lines)
