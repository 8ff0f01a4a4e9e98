"""Questions to git about a folder that may be a stranger's repository.

The repository's configuration may name programs: a file system monitor, or a program that fetches
objects which the repository lacks. The commands that are used here run none of the others.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

NO_PROGRAMS: Final = {
    # No way to fetch is permitted. Source: "GIT_ALLOW_PROTOCOL" of git(1).
    "GIT_ALLOW_PROTOCOL": "none",
    # Releases before 2.45 do not know it. Source: "GIT_NO_LAZY_FETCH" of git(1).
    "GIT_NO_LAZY_FETCH": "1",
}


def git_output(folder: Path, *arguments: str, known: bytes = b"", timeout_s: float) -> bytes:
    """Return what git prints in the folder; empty if it is not installed, or takes too long.

    `known`: its input. An error of git prints nothing there.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "GIT_DIR"}
    try:
        result = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", *arguments],
            cwd=folder,
            input=known,
            capture_output=True,
            check=False,
            timeout=timeout_s,
            env=inherited | NO_PROGRAMS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return result.stdout
