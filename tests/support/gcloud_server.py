"""Run the real gcloud in forks of one process that has loaded it, because loading it takes over a
second of CPU.

gcloud's own start script runs this file with gcloud's interpreter: `gcloud_server.py
.../lib/gcloud.py`. Each line of the standard input is a command in JSON: arguments, environment,
folder, and the files of both outputs. The answer is a line with its exit status. The server then
imports what the command has imported, for the next ones.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any, NoReturn

IMPORTED_BEFORE = (
    "googlecloudsdk.api_lib.",
    "googlecloudsdk.command_lib.",
    "googlecloudsdk.generated_clients.",
)
"""Packages that do nothing when they are imported."""


def main() -> None:
    """Load gcloud, and run each command of the standard input in a fork."""
    library = Path(sys.argv[1]).parent
    sys.path[:0] = [str(library / "third_party"), str(library)]  # the order of lib/gcloud.py
    gcloud = importlib.import_module("googlecloudsdk.gcloud_main")
    loaded = gcloud.CreateCLI([])
    for name in ("googlecloudsdk.core.credentials.transports", "googlecloudsdk.api_lib.util.apis"):
        importlib.import_module(name)
    importlib.import_module(
        "googlecloudsdk.core.configurations.named_configs"
    ).ActivePropertiesFile.Invalidate()
    gc.disable()  # a collection in a fork would copy the memory of all that is loaded
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            _run(json.loads(line), gcloud, loaded, writer)
        os.close(writer)
        with os.fdopen(reader) as file:
            imported = file.read().split()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
        for name in imported:
            importlib.import_module(name)


def _run(command: dict[str, Any], gcloud: Any, loaded: Any, writer: int) -> NoReturn:
    """Run one command in this process, and end the process as the interpreter would.

    Write what it has imported.
    """
    before = set(sys.modules)
    status = 1
    try:
        os.environ.clear()
        os.environ.update(command["environment"])
        time.tzset()
        os.chdir(command["folder"])
        for descriptor, file in enumerate((os.devnull, *command["outputs"])):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), descriptor)
        # Its requests have the same id only if gcloud repeats them.
        transport: Any = importlib.import_module("googlecloudsdk.core.transport")
        transport.INVOCATION_ID = uuid.uuid4().hex
        sys.argv = ["gcloud", *command["arguments"]]
        status = gcloud.main(loaded) or 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - what the interpreter would do at the end of a process
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        imported = (
            name for name in sys.modules if name.startswith(IMPORTED_BEFORE) and name not in before
        )
        os.write(writer, " ".join(imported).encode())
        os._exit(status)


if __name__ == "__main__":
    main()
