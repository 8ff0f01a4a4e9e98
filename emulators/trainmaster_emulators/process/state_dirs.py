"""Find the state directory of the stack that a command is about.

--state-dir ──► TRAINMASTER_STATE_DIR ──► .state/local here, if a stack runs there
                                     └──► that of the last `trainmaster local up`, if it runs
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from trainmaster_emulators.process.state import is_up

STATE_HOME_VARIABLE: Final = "XDG_STATE_HOME"
"""Folder of programs' state, by default ~/.local/state.

Source: XDG Base Directory Specification.
"""
DEFAULT_STATE_DIR: Final = Path(".state/local")
STATE_DIR_VARIABLE: Final = "TRAINMASTER_STATE_DIR"


def resolve_state_dir(given: Path | None) -> Path:
    """Return the given directory, else the environment's (`trainmaster local env`), else the
    working directory's.
    """
    return (given or Path(os.environ.get(STATE_DIR_VARIABLE) or DEFAULT_STATE_DIR)).absolute()


def find_state_dir(given: Path | None) -> Path:
    """Return the directory as `resolve_state_dir` does, but without a running stack there, that of
    the last `up`.
    """
    folder = resolve_state_dir(given)
    if given or os.environ.get(STATE_DIR_VARIABLE) or is_up(folder):
        return folder
    last = last_state_dir()
    return last if last is not None and is_up(last) else folder


def is_named_by_user(state_dir: Path) -> bool:
    """Return whether the environment or the user's home names this directory.

    The working directory alone may be anyone's.
    """
    return bool(os.environ.get(STATE_DIR_VARIABLE)) or state_dir == last_state_dir()


def last_state_dir() -> Path | None:
    """Return the directory of the last `up`; None: there was none."""
    try:
        return Path(_last_stack_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def remember_state_dir(state_dir: Path) -> None:
    """Let `find_state_dir` find this directory's stack from any folder, while it runs."""
    file = _last_stack_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(state_dir), encoding="utf-8")


def _last_stack_file() -> Path:
    return (
        Path(os.environ.get(STATE_HOME_VARIABLE) or Path.home() / ".local" / "state")
        / "trainmaster"
        / "last-stack"
    )
