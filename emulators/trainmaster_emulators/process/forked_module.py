"""Run a Python module in a fork of this process: it need not start an interpreter, nor import what
is imported here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from trainmaster_emulators.process import exec_with_parent

STANDARD_STREAMS = {0, 1, 2}


def run(argv: list[str], environment: Mapping[str, str], kept: int, parent: int) -> NoReturn:
    """Run `python -P -m MODULE ARG…` in the child process of a Popen, as its `preexec_fn`, and end
    the process.

    The module has a function `main`, which returns the exit status. `kept`: a descriptor that it
    inherits. The parent sees that the pipe of its Popen closes, and takes it for a successful exec.
    """
    status = 1
    try:
        exec_with_parent.end_with_parent(signal.SIGKILL, parent)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        descriptors = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
        for descriptor in descriptors - {*STANDARD_STREAMS, kept}:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed
                os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        module = argv.index("-m") + 1
        sys.argv = argv[module:]
        status = importlib.import_module(argv[module]).main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - what the interpreter would do at the end of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
