"""The summary of `trainmaster local run` shows a program's text as it is."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.support.jobs import a_job
from trainmaster.core.model.job import JobState
from trainmaster_local.cli.example_summary import Phases, print_summary
from trainmaster_local.cli.job_monitor import Report
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore

HOSTILE = "[/x] [bold]y \x1b[2J\x1b]0;owned\x07"


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.SUCCEEDED])
def test_text_of_a_program_is_neither_markup_nor_an_escape_sequence(state: JobState) -> None:
    objects = MemoryObjects()
    job = replace(a_job(), state=state, error_message=HOSTILE if state is JobState.FAILED else None)
    objects.write(
        f"{job.plan.program.job_dir}/metrics.json",
        json.dumps({HOSTILE: 0.5}).encode(),
        content_type="",
    )
    storage = SimpleNamespace(log="/stack/logs/storage.log")
    running = SimpleNamespace(
        objects=objects, store=MemoryStore(), state=SimpleNamespace(services={"storage": storage})
    )
    out = io.StringIO()
    report = Report(Console(file=out, width=200))
    phases = Phases()
    phases.begin("training")
    print_summary(job, running, report, phases, 0)  # type: ignore[arg-type]
    assert "[/x] [bold]y \ufffd[2J\ufffd]0;owned\ufffd" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_line_of_a_program_sends_no_escape_sequence() -> None:
    out = io.StringIO()
    Report(Console(file=out, width=200)).line("worker 0", HOSTILE)
    assert "[/x] [bold]y \ufffd[2J\ufffd]0;owned\ufffd" in out.getvalue()
