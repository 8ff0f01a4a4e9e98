"""`trainmaster tensorboard JOB…`: TensorBoard on the event files of jobs, on this machine only."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trainmaster.cli.installation import choose_installation, open_store, require_package
from trainmaster.cli.job_output import find_job
from trainmaster.cli.options import complete_job_id
from trainmaster.cli.output import complain, say
from trainmaster.cli.tensorboard.log_folders import LogFolder, folder_of_job, folder_of_option
from trainmaster.errors import PermanentError, TemporaryError

if TYPE_CHECKING:
    from trainmaster.cli.tensorboard.mirror import Mirror, Storage

LOOPBACK: Final = "127.0.0.1"
RELOAD_S: Final = 5
"""Time between two readings of the local files by TensorBoard."""
SHOWN_MAX: Final = 10
"""Folders that are listed at the start."""
END_S: Final = 5.0
"""Seconds that TensorBoard, and an update of the copy, may take to end."""


def tensorboard(
    job_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="Ids of the jobs.", autocompletion=complete_job_id),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Port of this machine; 0: any free one."
        ),
    ] = 6006,
    logdir: Annotated[
        list[str] | None,
        typer.Option(
            help="Another folder with event files; may be repeated.",
            metavar="[NAME=]gs://BUCKET/FOLDER",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            min=1, metavar="SECONDS", help="Seconds between two searches for new event files."
        ),
    ] = 30.0,
) -> None:
    """Start TensorBoard on the event files of jobs. Each job is a run, and so is each trial of a
    tuning job.
    """
    require_package("tensorboard", "tensorboard")
    from trainmaster.cli.tensorboard.mirror import Mirror

    folders = _folders(job_ids or [], logdir or [])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    with tempfile.TemporaryDirectory(prefix="trainmaster-tensorboard-") as root:
        mirror = Mirror(Path(root), _storage(), folders)
        mirror.update()
        _announce(mirror)
        raise typer.Exit(_serve(mirror, port, interval))


def _folders(job_ids: list[str], options: list[str]) -> tuple[LogFolder, ...]:
    """Return the folders of jobs and options.

    Raises PermanentError if there is none, or two have one name.
    """
    folders = [folder_of_option(option) for option in options]
    if job_ids or not folders:
        store = open_store()
        if not job_ids:
            raise PermanentError(
                "name a job (`trainmaster list` shows all jobs), or a folder: --logdir gs://…"
            )
        folders = [*(folder_of_job(find_job(store, job_id).job) for job_id in job_ids), *folders]
    else:
        choose_installation()
    names = Counter(folder.name for folder in folders)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise PermanentError(
            f"two folders have the name {repeated[0]}: give one another name, --logdir NAME=gs://…"
        )
    return tuple(folders)


def _storage() -> Storage:
    from trainmaster.gcp import clients
    from trainmaster.gcp.tools.event_files import EventFiles

    return EventFiles(clients.storage_client())


def _announce(mirror: Mirror) -> None:
    for folder in mirror.folders[:SHOWN_MAX]:
        say(f"{folder.name}: {folder.uri}")
    if len(mirror.folders) > SHOWN_MAX:
        say(f"and {len(mirror.folders) - SHOWN_MAX} more")
    if not mirror.files:
        complain(
            "There are no event files yet. TensorBoard shows them soon after a program has written"
            " them."
        )


def _serve(mirror: Mirror, port: int, interval_s: float) -> int:
    """Run TensorBoard until it ends or the user interrupts it, and return its exit status."""
    options = [f"--logdir={mirror.root}", f"--host={LOOPBACK}", f"--port={port}"]
    options.append(f"--reload_interval={RELOAD_S}")
    # The data server does not notice files that are replaced, and its speed is not needed for local
    # files.
    options.append("--load_fast=false")
    ended = threading.Event()
    updates = threading.Thread(target=_keep_current, args=(mirror, interval_s, ended), daemon=True)
    process = subprocess.Popen([sys.executable, "-P", "-m", "tensorboard.main", *options])
    updates.start()
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        ended.set()
        _end(process)
        updates.join(END_S)


def _keep_current(mirror: Mirror, interval_s: float, ended: threading.Event) -> None:
    while not ended.wait(interval_s):
        try:
            mirror.update()
        except (TemporaryError, PermanentError) as error:
            complain(f"the event files cannot be read, trying again: {error}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
