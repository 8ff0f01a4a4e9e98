"""A trial's metric from TensorFlow's summary event files, for a program that reports it in no other way.

    event files below --job-dir ── newest files ──► event_file_reader.py, with the image's TensorBoard ──► metric

It is read only if the VM's Python has TensorBoard, and only when the program has completed: reading takes seconds,
which would delay the restart of a failed program.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shared.agent.metric.event_file_reader import NO_TENSORBOARD
from shared.agent.program.program import Program
from shared.agent.reporting.serial_console import Console
from shared.agent.setup.cancellable_runner import CancellableRunner
from shared.agent.setup.setup_errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shared.agent.control.workspace import Workspace
    from shared.agent.setup.cloud_storage import StorageReader, StoredObject

EVENT_FILE_MARK = "tfevents"  # in the name of an event file. Source: TensorBoard, io_wrapper.IsSummaryEventsFile
FILES_MAX = 50  # there is one file for each incarnation and writer
BYTES_MAX = 512 << 20  # of all files: images make them large, and the exit report waits for the download
READ_S = 60.0
ARCHIVE = Path(__file__).parents[3]  # the agent's archive, from which the reader is imported


class SummaryMetric:
    def __init__(self, storage: StorageReader, workspace: Workspace) -> None:
        self._storage = storage
        self._workspace = workspace
        self._folder = workspace.work / "summaries"
        self._runner = CancellableRunner()

    def read_last(self, tag: str, job_dir: str) -> str:
        """Return the record that event_file_reader.py printed; empty if there is none."""
        try:
            files = self._download(job_dir)
            return self._read(tag, files) if files else ""
        except (SetupError, OSError) as error:
            self._workspace.log(f"Summary events cannot be read: {error}.")
            return ""
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def cancel(self) -> None:
        """Stop reading. May be called from any thread."""
        self._runner.cancel()

    def _download(self, job_dir: str) -> list[str]:
        event_files = [stored for stored in self._storage.list_below(job_dir) if EVENT_FILE_MARK in stored.name]
        newest = select_newest(event_files)
        if len(newest) < len(event_files):
            self._workspace.log(f"Reading only the newest {len(newest)} of {len(event_files)} files of summary events.")
        paths = [self._folder / str(position) / stored.name for position, stored in enumerate(newest)]
        for stored, path in zip(newest, paths):
            self._storage.download(stored.uri, path)
        return [str(path) for path in paths]

    def _read(self, tag: str, files: Sequence[str]) -> str:
        self._workspace.log(f"Reading {tag} from {len(files)} files of summary events.")
        reader_exit = self._runner.run(functools.partial(self._start, tag, files))
        if reader_exit.exit_status == NO_TENSORBOARD:
            self._workspace.log("Summary events cannot be read: this VM's Python has no TensorBoard.")
        elif reader_exit.exit_status != 0:
            problem = f"the reader ended with {reader_exit.how}: {reader_exit.error}"
            self._workspace.log(f"Summary events cannot be read: {problem}.")
        return reader_exit.tail

    def _start(self, tag: str, files: Sequence[str]) -> Program:
        command = [sys.executable, "-m", "shared.agent.metric.event_file_reader", tag, *files]
        inherited = {name: value for name, value in self._workspace.environ.items() if name != "PYTHONNOUSERSITE"}
        path = os.pathsep.join([str(ARCHIVE), *filter(None, [inherited.get("PYTHONPATH")])])
        silent = replace(self._workspace, console=Console(os.open(os.devnull, os.O_WRONLY)))
        program = Program(command, silent, env={**inherited, "PYTHONPATH": path}, cwd=self._folder)
        limit = threading.Timer(READ_S, program.kill)
        limit.daemon = True
        limit.start()
        return program


def select_newest(stored: Iterable[StoredObject]) -> list[StoredObject]:
    """Return the newest files, the last one first, as many as `FILES_MAX` and `BYTES_MAX` allow."""
    newest = sorted(stored, key=lambda file: file.updated, reverse=True)[:FILES_MAX]
    sizes = itertools.accumulate(file.size for file in newest)
    return [file for file, size in zip(newest, sizes) if size <= BYTES_MAX]
