"""What CONTRIBUTING says about extensions is true: each takes two files of the product at most.

For each kind of extension there are a patch, and a program that shows that it works. A test applies
the patch to a copy of the product. If a patch no longer fits, make the same change by hand in your
tree, write `git diff -U2` of it into the patch, and take the change back.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
EXTENSIONS: Final = sorted(path.stem for path in HERE.glob("*.patch"))
FILES_MAX: Final = 2
LINES_MAX: Final = 80
COPIED: Final = ("shared/trainmaster", "emulators/trainmaster_emulators", "infra/webhook")
ROWS: Final = {
    "launcher": "a launcher",
    "machine": "a machine type or GPU",
    "notifier": "a notifier",
    "preflight": "a check of the preflight",
    "purchase": "a way to buy capacity",
}
"""Extension → first column of its row in CONTRIBUTING."""


def patch_of(name: str) -> str:
    return (HERE / f"{name}.patch").read_text(encoding="utf-8")


def run_program(name: str, tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the program that shows an extension on the product in `tree`."""
    folders = [tree / "shared", tree / "emulators", tree / "infra" / "webhook", ROOT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, str(HERE / "programs" / f"{name}.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product, which has none of the extensions."""
    tree = tmp_path_factory.mktemp("product")
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tree / folder)  # with what Python has compiled
    return tree


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension_takes_two_files_and_works(name: str, product: Path, tmp_path: Path) -> None:
    assert run_program(name, product).returncode != 0, "the product has it already"
    patch = ("patch", "--strip=1", "--batch", "--no-backup-if-mismatch", f"--directory={product}")
    changes = patch_of(name)
    subprocess.run(patch, input=changes, text=True, check=True, capture_output=True)
    try:
        shown = run_program(name, product)
        assert shown.returncode == 0, shown.stderr
    finally:
        undo = (*patch, "--reverse")
        subprocess.run(undo, input=changes, text=True, check=True, capture_output=True)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension_is_small(name: str) -> None:
    changes = patch_of(name)
    files = re.findall(r"^\+\+\+ b/(\S+)$", changes, re.MULTILINE)
    added = re.findall(r"^\+(?!\+\+ )", changes, re.MULTILINE)
    assert len(files) <= FILES_MAX, files
    assert len(added) <= LINES_MAX


@pytest.mark.parametrize("name", EXTENSIONS)
def test_contributing_names_the_files_of_the_extension(name: str) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {ROWS[name]} |"))
    for file in re.findall(r"^\+\+\+ b/(\S+)$", patch_of(name), re.MULTILINE):
        assert Path(file).name in row, file
