"""What a VM runs for a folder: copies it to the working directory, and becomes the command.

Part of the folder's wheel.

It needs nothing but the standard library. The command keeps the process, and with it signals,
output and exit status.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

INTERPRETERS = {".py": sys.executable, ".sh": "bash"}


def main(command: list[str]) -> None:
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        Path(__file__).parent / "files", ".", dirs_exist_ok=True, ignore=compiled
    )  # other files stay
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    if command[0] in ("python", "python3"):
        command = [sys.executable, *command[1:]]
    elif interpreter := INTERPRETERS.get(Path(command[0]).suffix):
        command = [interpreter, *command]
    try:
        os.execvp(command[0], command)  # noqa: S606 - without a shell, on purpose
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)  # noqa: T201 - the job's log
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
