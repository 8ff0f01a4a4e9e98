"""Run one program with the agent's `GcsMount`, in a mount namespace of its own; print how its exit
is reported.

Usage: gcs_driver.py FOLDER GCSFUSE PROGRAM. `GCSFUSE` is what the installation stores as gcsfuse;
empty: nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from trainmaster.agent.program.program import Program
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup import gcs_mount
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.setup_errors import SetupError
from trainmaster.agent.workspace import Workspace


def main(folder: Path, gcsfuse: bytes, source: str) -> None:
    point, work = folder / "gcs", folder / "work"
    work.mkdir()
    gcs_mount.UPLOAD_S = 3.0
    uri = f"gs://stage/tools/{hashlib.sha256(gcsfuse).hexdigest()}/gcsfuse"

    def find(_: str) -> str | None:
        return uri if gcsfuse else None

    def download(_: str, into: Path) -> None:
        into.write_bytes(gcsfuse)

    workspace = Workspace(work, {**os.environ, "WORK": str(work)}, Console(sys.stderr.fileno()))
    metadata, storage = (
        cast(Any, SimpleNamespace(find=find)),
        cast(Any, SimpleNamespace(download=download)),
    )
    config = cast(Any, SimpleNamespace(gcs=bool(gcsfuse), container=None))
    mount = gcs_mount.GcsMount(config, workspace, metadata, storage, CancellableRunner(), point)
    try:
        mount.mount()
    except SetupError as error:
        print(json.dumps(asdict(error.failure)))
        return
    environ = {**os.environ, "GCS": str(point)}
    program = Program([sys.executable, "-c", source], workspace, env=environ, cwd=work)
    mount.on_death(lambda: program.end(0.2))
    container = mount.container_option()
    print(json.dumps({"container": container, **asdict(mount.settle(program.wait()))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes(), sys.argv[3])
