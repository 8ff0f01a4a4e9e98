"""The commands of README, of the tutorial and for a task of SkyPilot work as they are printed, in a
shell with a new home.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.printed_page import Block, Shell, blocks_of
from trainmaster_emulators.checkout import ROOT

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
FROM_TORCHRUN = ROOT / "docs" / "from-torchrun.md"
TASK = """
name: sums
num_nodes: 2
resources: {infra: gcp/us-central1, cpus: 4+}
envs: {EPOCHS: "2"}
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=$SKYPILOT_NODE_RANK train.py --epochs $EPOCHS
"""
"""A task of SkyPilot whose command needs a shell."""
PROGRAM = """
import sys
from torch import distributed
distributed.init_process_group("gloo")
print(f"rank {distributed.get_rank()} of {distributed.get_world_size()}: {sys.argv[-1]} epochs")
distributed.destroy_process_group()
"""
STACK = "trainmaster local up"
DOWN = "trainmaster local down"
FILES = {"python": "train.py", "yaml": "job.yaml"}
"""Language of a block → the file that the tutorial's reader makes of it."""

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.timeout(2400),
    pytest.mark.heavy(
        fact=(
            "each command of README, of the tutorial and for a task of SkyPilot works as it is"
            " printed, from a new home"
        ),
        quick="`unit/docs/test_tutorial.py`, `infra/test_commands.py`",
    ),
]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    subprocess.run(
        [
            ROOT / ".venv" / "bin" / "trainmaster",
            *DOWN.split()[1:],
            "--state-dir",
            tmp_path / "state",
        ],
        check=False,
        capture_output=True,
    )


def shown_after(blocks: list[Block]) -> list[tuple[Block, str]]:
    """Return each block of commands with the output that the page shows for it."""
    shown = [
        (block, "" if following.language else following.text)
        for block, following in pairwise([*blocks, Block("end", text="")])
    ]
    return [(block, text) for block, text in shown if block.language == "sh"]


def test_commands_of_the_tutorial_print_what_it_shows(shell: Shell, tmp_path: Path) -> None:
    blocks = blocks_of(TUTORIAL)
    folder = tmp_path / "waves"
    folder.mkdir()
    for language, name in FILES.items():
        text = next(block.text for block in blocks if block.language == language)
        (folder / name).write_text(text, encoding="utf-8")
    ran = [item for item in shown_after(blocks) if not item[0].needs_google_cloud]
    assert DOWN in ran[-1][0].text
    for block, shown in ran:
        shell.run_block(block, shown)
        if STACK in block.text:
            shell.folder = tmp_path  # "The rest works from any folder."


def test_commands_of_the_readme_work(shell: Shell, tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(README) if block.language == "sh"]
    own, *others = [block for block in blocks if not block.needs_google_cloud]
    assert "--folder ." in own.text
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.py").write_text("import torch\nprint(torch.ones(2).sum())\n")
    for block in others:
        if DOWN in block.text:  # its jobs end with the stack, so the first line runs before it
            shell.folder, checkout = tmp_path / "own", shell.folder
            shell.run_block(own)
            shell.folder = checkout
        shell.run_block(block)
    assert DOWN in others[-1].text


def test_commands_for_a_task_of_skypilot_run_it(shell: Shell, tmp_path: Path) -> None:
    (convert,) = (block for block in blocks_of(FROM_TORCHRUN) if "convert task.yaml" in block.text)
    up = next(block for block in blocks_of(README) if STACK in block.text)
    commands = [command.partition("  #")[0].strip() for command in up.commands]
    for command in commands[: commands.index('eval "$(trainmaster local env)"') + 1]:
        shell.run(command)
    shell.folder = tmp_path / "sums"
    shell.folder.mkdir()
    (shell.folder / "task.yaml").write_text(TASK, encoding="utf-8")
    (shell.folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    output = "".join(map(shell.run, convert.commands))
    job_id = output.partition("Job [")[2].partition("]")[0]
    shell.run(f"trainmaster wait {job_id}")
    log = shell.run(f"trainmaster logs {job_id} --program")
    for rank in (0, 1):
        assert f" rank {rank} of 2: 2 epochs\n" in log
