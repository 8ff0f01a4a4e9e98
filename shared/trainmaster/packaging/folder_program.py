"""What a VM runs for a job whose program is a folder: it copies the folder to the working
directory, and becomes the job's command.

It is a part of the folder's wheel, and needs nothing but the standard library. The command keeps
the process, and with it signals, output and exit status.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

INTERPRETERS = {".py": sys.executable, ".sh": "bash"}
COMMAND_NOT_FOUND = 127
"""Exit status by which shells report it."""


def main(command: list[str]) -> None:
    folder = Path(__file__).parent / "files"
    compiled = shutil.ignore_patterns("__pycache__")
    # Other files of the working directory stay.
    shutil.copytree(folder, ".", dirs_exist_ok=True, ignore=compiled)
    own_programs = str(Path(sys.executable).parent)
    other_programs = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{own_programs}{os.pathsep}{other_programs}"
    interpreter = INTERPRETERS.get(Path(command[0]).suffix)
    if command[0] in ("python", "python3"):
        command = [sys.executable, *command[1:]]
    elif interpreter is not None:
        command = [interpreter, *command]
    try:
        os.execvp(command[0], command)  # noqa: S606 - without a shell, on purpose
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        sys.exit(COMMAND_NOT_FOUND)


if __name__ == "__main__":
    main(sys.argv[1:])
