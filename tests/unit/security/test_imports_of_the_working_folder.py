"""No command of ours imports modules of the folder that the user works in, which may be a cloned
repository: `python -m` and `python -c` would look there first.

The agent is left out: it runs the user's own program, in that program's folder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ("shared", "emulators")
INTERPRETERS = ("sys.executable", "python")
"""Expressions, by their source: `python` is a variable. The literal "python" is left out, because
commands of jobs begin with it.
"""


def commands_of_python() -> Iterator[tuple[str, set[str]]]:
    """Yield the place and the words of each list that begins with an interpreter, and has -m
    or -c.
    """
    files = [file for name in SOURCES for file in (ROOT / name).glob("trainmaster*/**/*.py")]
    for path in files:
        if path.is_relative_to(ROOT / "shared/trainmaster/agent"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.List) or not node.elts:
                continue
            words = [ast.unparse(word) for word in node.elts]
            if words[0] in INTERPRETERS and {"'-m'", "'-c'"} & set(words):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", set(words)


def test_commands_of_python_do_not_look_for_modules_in_the_working_folder() -> None:
    """Python's options -P and -I leave the working folder out."""
    commands = list(commands_of_python())
    assert len(commands) > 8, "the search finds the commands"
    assert [place for place, words in commands if not {"'-P'", "'-I'"} & words] == []
