"""The unmodified calculator of ml_goodput_measurement on what its recorder writes, and our own
goodput beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, a_job, at, ready
from trainmaster.cli.recorded_goodput import read_recorded_goodput
from trainmaster.core.model.job import Job, JobState
from trainmaster.errors import PermanentError

if TYPE_CHECKING:
    from ml_goodput_measurement.src.goodput import GoodputRecorder

LOG = "projects/p/logs/goodput"
STEP_S = 10.0


class Log:
    """Cloud Logging: what recorders write, and pages of it."""

    def __init__(self) -> None:
        self.payloads: list[Mapping[str, Any]] = []
        self.filters: list[str] = []

    def write_cloud_logging_entry(self, entry: Mapping[str, Any]) -> None:
        self.payloads.append(entry)

    def page(
        self, condition: str, token: str = "", *, newest_first: bool = False
    ) -> tuple[Sequence[Any], str]:
        self.filters.append(condition)
        if newest_first:
            steps = [payload for payload in self.payloads if "step_start_time" in payload]
            return [{"logName": LOG, "jsonPayload": payload} for payload in reversed(steps)], ""
        start, size = int(token or 0), 7
        page = [
            {"logName": LOG, "jsonPayload": payload}
            for payload in self.payloads[start : start + size]
        ]
        return page, str(start + size) if start + size < len(self.payloads) else ""


def record_start(recorder: GoodputRecorder, now: datetime) -> None:
    recorder.record_job_start_time(now)
    recorder.record_tpu_init_start_time(now)
    recorder.record_tpu_init_end_time(now)
    recorder.record_training_preparation_start_time(now)
    recorder.record_training_preparation_end_time(now)
    recorder.record_data_loading_start_time(now)
    recorder.record_data_loading_end_time(now)


def history(log: Log, random: Random) -> tuple[Job, float]:
    """Record a job with losses; return it, and the share of its time in which steps were taken that
    count.
    """
    # It imports scientific libraries, which takes a few seconds.
    from ml_goodput_measurement.src.goodput import GoodputRecorder

    recorder = GoodputRecorder("run", "goodput", logging_enabled=True, cloud_logger=log)
    now, done, steps = at(0), 0, random.randint(60, 120)
    for _ in range(random.randint(0, 3)):
        record_start(recorder, now)
        # The library notices an interruption by a step that is repeated.
        taken = 10 * random.randint(1, 3) + random.randint(2, 9)
        for step in range(done, done + taken):
            recorder.record_step_start_time(step, now)
            now += timedelta(seconds=STEP_S)
        done += taken - taken % 10  # the newest checkpoint
        now += timedelta(seconds=random.randint(30, 300))  # until the next incarnation
    record_start(recorder, now)
    for step in range(done, max(steps, done + 20) + 1):
        recorder.record_step_start_time(step, now)
        now += timedelta(seconds=STEP_S)
    last = now - timedelta(seconds=STEP_S)  # the library does not know how long the last step took
    job = a_job(JobState.SUCCEEDED, ended_at=last)
    return job, max(steps, done + 20) * STEP_S / (last - at(0)).total_seconds()


@pytest.mark.parametrize("seed", range(8))
def test_share_of_productive_time_equals_the_steps_that_count(seed: int) -> None:
    log = Log()
    job, productive = history(log, Random(seed))  # noqa: S311
    recorded = read_recorded_goodput(job, (), log.page)
    assert recorded.productive == pytest.approx(productive, abs=0.01)
    assert recorded.elapsed_s == pytest.approx(
        (job.ended_at - at(0)).total_seconds() if job.ended_at else 0
    )
    assert recorded.productive + sum(recorded.unproductive.values()) == pytest.approx(1, abs=0.02)
    assert f"{recorded.productive:.0%}".replace("%", " %") in recorded.words
    assert recorded.view()["lastStep"] == recorded.last_step > 0


def test_only_steps_of_the_machines_of_rank_0_and_of_the_jobs_own_id_are_read() -> None:
    log = Log()
    job, _ = history(log, Random(1))  # noqa: S311
    read_recorded_goodput(job, (ready(CHIEF), ready(WORKER_0)), log.page)
    vm = ready(CHIEF).subject.vm.instance_id
    since = 'timestamp>="2026-11-21T03:00:00+00:00"'
    assert log.filters[0] == (
        f'jsonPayload.step_start_time:* AND (resource.labels.instance_id=("{vm}") OR '
        f'jsonPayload.job_name="digits_1") AND {since}'
    )
    assert set(log.filters[1:]) == {f'logName="{LOG}" AND jsonPayload.job_name="run" AND {since}'}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        PermanentError, match="no steps that ml_goodput_measurement records were found for digits_1"
    ):
        read_recorded_goodput(a_job(), (), Log().page)
    log = Log()
    log.payloads.append({"job_name": "run", "step_start_time": 1.0, "step_count": 0})
    with pytest.raises(
        PermanentError, match="cannot compute the goodput of digits_1: Total job time is zero"
    ):
        read_recorded_goodput(a_job(), (), log.page)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PermanentError, match=r"pipx install --force '\.\[goodput\]'"):
        read_recorded_goodput(a_job(), (), log.page)
