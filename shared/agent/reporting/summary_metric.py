"""A trial's metric out of TensorFlow's summary event files, for a program that reports it in no other way.

    event files below --job-dir ── the newest are downloaded ──► event_files.py, on the image's TensorBoard ──► metric

Only where the VM's Python has TensorBoard, and only when the program has completed: it takes seconds, which a replica
that is to be started again does not have.
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

from shared.agent.program.program import Program
from shared.agent.reporting.event_files import NO_READER
from shared.agent.reporting.serial_console import Console
from shared.agent.setup.failure import SetupError
from shared.agent.setup.setup_processes import Children

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shared.agent.control.workspace import Place
    from shared.agent.setup.cloud_storage import Objects, Stored

MARK = "tfevents"  # in an event file's name. Source: TensorBoard, io_wrapper.IsSummaryEventsFile
FILES_MAX = 50  # of each incarnation and each writer there is one
BYTES_MAX = 512 << 20  # of all of them: images make them large, and the exit waits for the download
READ_S = 60.0
OURS = Path(__file__).parents[3]  # what the reader is imported from: the agent's archive


class Summaries:
    def __init__(self, objects: Objects, place: Place) -> None:
        self._objects = objects
        self._place = place
        self._folder = place.work / "summaries"
        self._children = Children()

    def last(self, tag: str, job_dir: str) -> str:
        """What event_files.py printed; empty where there is nothing to be had."""
        try:
            files = self._download(job_dir)
            return self._read(tag, files) if files else ""
        except (SetupError, OSError) as error:
            self._place.say(f"Summary events cannot be read: {error}.")
            return ""
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def cancel(self) -> None:
        """Ends the reading, from another thread."""
        self._children.cancel()

    def _download(self, job_dir: str) -> list[str]:
        stored = [each for each in self._objects.below(job_dir) if MARK in each.name]
        chosen = newest(stored)
        if len(chosen) < len(stored):
            self._place.say(f"Of {len(stored)} files of summary events, the newest {len(chosen)} are looked at.")
        files = [self._folder / str(position) / each.name for position, each in enumerate(chosen)]
        for each, file in zip(chosen, files):
            self._objects.fetch(each.uri, file)
        return [str(file) for file in files]

    def _read(self, tag: str, files: Sequence[str]) -> str:
        self._place.say(f"Reading {tag} from {len(files)} files of summary events.")
        ended = self._children.run(functools.partial(self._start, tag, files))
        if ended.exit_status == NO_READER:
            self._place.say("Summary events cannot be read: this VM's Python has no TensorBoard.")
        elif ended.exit_status != 0:
            self._place.say(f"Summary events cannot be read: the reader ended with {ended.how}: {ended.error}.")
        return ended.tail

    def _start(self, tag: str, files: Sequence[str]) -> Program:
        command = [sys.executable, "-m", "shared.agent.reporting.event_files", tag, *files]
        vms_own = {name: value for name, value in self._place.environ.items() if name != "PYTHONNOUSERSITE"}
        path = os.pathsep.join([str(OURS), *filter(None, [vms_own.get("PYTHONPATH")])])
        find_startup_timeouts = replace(self._place, console=Console(os.open(os.devnull, os.O_WRONLY)))
        program = Program(command, find_startup_timeouts, env={**vms_own, "PYTHONPATH": path}, cwd=self._folder)
        limit = threading.Timer(READ_S, program.kill)
        limit.daemon = True
        limit.start()
        return program


def newest(stored: Iterable[Stored]) -> list[Stored]:
    """As many as may be downloaded, the last one first."""
    found = sorted(stored, key=lambda each: each.updated, reverse=True)[:FILES_MAX]
    sizes = itertools.accumulate(each.size for each in found)
    return [each for each, size in zip(found, sizes) if size <= BYTES_MAX]
