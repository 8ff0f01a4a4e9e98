"""`jobs describe --goodput`: what ml_goodput_measurement computes from the program's steps.

ml_goodput_measurement is a library of Google. Its recorder writes to Cloud Logging from the machine
of rank 0. Its calculator is used as it is, and gets the entries from here: with the user's own
endpoint, and with the end of the job if the program recorded none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.cli.installation import require_package
from trainmaster.core.events import Event, VmReady
from trainmaster.core.model.job import Job, public_id
from trainmaster.errors import PermanentError
from trainmaster.presentation.durations import HOUR_S

VMS_MAX: Final = 100
"""Machines of rank 0 in one filter, the latest ones.

Source: Cloud Logging accepts filters of 20,000 characters.
"""

Entry = Mapping[str, Any]
ReadPage = Callable[..., tuple[Sequence[Entry], str]]
"""(filter, page token, newest_first) → (entries, token of the next page or empty)."""


@dataclass(frozen=True, slots=True)
class RecordedGoodput:
    """The use of the time from the first recorded start until the job's end, or until now."""

    elapsed_s: float
    productive: float
    """Productive share of `elapsed_s`, from 0 to 1. The other shares have the same range."""
    unproductive: Mapping[str, float]
    """Class of the library, in lower case → share, if it is not zero."""
    last_step: int

    @property
    def words(self) -> str:
        """One line: `81 % of 1.23 h productive until step 400; program_startup 12 %`."""
        hours = f"{self.elapsed_s / HOUR_S:.2f} h"
        parts = [f"{_percent(self.productive)} of {hours} productive until step {self.last_step}"]
        parts += [f"{name} {_percent(share)}" for name, share in self.unproductive.items()]
        return "; ".join(parts)

    def view(self) -> dict[str, Any]:
        """Return the fields of `--format json`."""
        return {
            "elapsedSeconds": round(self.elapsed_s, 3),
            "productive": round(self.productive, 4),
            "unproductive": {name: round(share, 4) for name, share in self.unproductive.items()},
            "lastStep": self.last_step,
        }


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def read_recorded_goodput(
    job: Job, events: Iterable[Event], read_page: ReadPage
) -> RecordedGoodput:
    """Return what the library computes.

    Raises PermanentError if it is missing, or if there is nothing to compute.
    """
    require_package("ml_goodput_measurement", "goodput")
    newest, _ = read_page(_steps_filter(job, events), newest_first=True)
    if not newest:
        raise PermanentError(
            f"no steps that ml_goodput_measurement records were found for {job.job_id}"
        )
    log = newest[0]["logName"]
    name = newest[0]["jsonPayload"]["job_name"]
    condition = (
        f'logName="{log}" AND jsonPayload.job_name="{name}" AND'
        f' timestamp>="{job.created_at.isoformat()}"'
    )
    payloads = list(_payloads(condition, read_page))
    if job.ended_at is not None and not any("job_end_time" in payload for payload in payloads):
        payloads.append({"job_name": name, "job_end_time": job.ended_at.timestamp()})
    try:
        return _calculate(name, log.rpartition("/")[2], payloads)
    except ValueError as error:  # of the library: the entries lack something
        raise PermanentError(
            f"ml_goodput_measurement cannot compute the goodput of {job.job_id}: {error}"
        ) from error


def _steps_filter(job: Job, events: Iterable[Event]) -> str:
    """Return the filter of this job's steps: from its machines of rank 0, or under its own id."""
    started = (event.subject for event in events if isinstance(event, VmReady))
    vms = dict.fromkeys(
        subject.vm.instance_id for subject in started if subject.replica_id == job.plan.primary
    )
    names = " OR ".join(f'"{vm}"' for vm in list(vms)[-VMS_MAX:])
    of_vm = f"resource.labels.instance_id=({names}) OR " if names else ""
    since = job.created_at.isoformat()
    own = f'jsonPayload.job_name="{public_id(job.job_id)}"'
    return f'jsonPayload.step_start_time:* AND ({of_vm}{own}) AND timestamp>="{since}"'


def _payloads(condition: str, read_page: ReadPage) -> Iterator[Entry]:
    token = ""
    while True:
        page, token = read_page(condition, token)
        yield from (entry["jsonPayload"] for entry in page)
        if not token:
            return


class _Entries:
    """Cloud Logging, as the calculator calls it."""

    job_start_time = None

    def __init__(self, payloads: Sequence[Entry]) -> None:
        self._payloads = payloads

    def read_cloud_logging_entries(
        self, *_: object, **__: object
    ) -> tuple[Sequence[Entry], tuple[None, None]]:
        return self._payloads, (None, None)


def _calculate(name: str, log: str, payloads: Sequence[Entry]) -> RecordedGoodput:
    """Return what the library's calculator computes from the entries. It counts in percent."""
    from ml_goodput_measurement.src.goodput import GoodputCalculator

    with tempfile.TemporaryDirectory(prefix="trainmaster-goodput-") as folder:
        calculator = GoodputCalculator(name, log, cloud_logger=_Entries(payloads), cache_dir=folder)
        productive, classes, last_step = calculator.get_job_goodput(include_badput_breakdown=True)
        elapsed_s = calculator.get_job_goodput_details()["total_elapsed_time"]
    percents: dict[str, float] = {}
    own_percents: dict[str, float] = {}
    for kind, value in classes.items():
        if isinstance(value, dict):  # classes that the program defines itself
            own_percents |= value
        else:
            percents[kind.name.lower()] = value
    percents |= own_percents
    shares = {name: percent / 100 for name, percent in percents.items() if percent}
    return RecordedGoodput(elapsed_s, productive / 100, shares, int(last_step))
