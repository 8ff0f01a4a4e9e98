"""`trainmaster schedule`: a job again and again, at times of cron's, by Cloud Scheduler.

Each firing publishes the job file to the topic submit; a `{time:FORMAT}` in its jobId becomes the time of the message
(`shared.flows.submit`), so that a message that is delivered twice is one job.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.installation import choose
from cli.output import print_json, say
from cli.submit import checked, read
from shared.core.intake.job_id_template import at_time, is_template
from shared.errors import PermanentError
from shared.messaging import topics
from shared.settings import settings


def schedule(
    name: Annotated[str, typer.Argument(help="Of the schedule; an existing one is replaced.", metavar="NAME")],
    job_file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="A job file.")],
    cron: Annotated[str, typer.Option(help="When, as cron writes it: '0 3 * * *'.")],
    location: Annotated[str, typer.Option(help="Region of the schedule.")] = "us-central1",
    time_zone: Annotated[str, typer.Option(help="Of --cron; times in job ids are UTC.")] = "Etc/UTC",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the Cloud Scheduler job and write nothing.")
    ] = False,
) -> None:
    """Submit a job file at certain times. Its jobId holds the time: nightly_{time:%Y%m%d_%H%M}."""
    from shared.gcp.scheduler import CloudScheduler, scheduler_job

    choose()
    document = template(job_file)
    parent = f"projects/{settings().project}/locations/{location}"
    body = scheduler_job(parent, name, cron, time_zone, topics.SUBMIT, json.dumps(document).encode())
    if dry_run:
        print_json(body)
        return
    if os.environ.get("PUBSUB_EMULATOR_HOST"):
        raise PermanentError(
            "the local stack has no Cloud Scheduler; --dry-run shows what would be written to Google's"
        )
    is_new = CloudScheduler().put(body)
    say(f"{'created' if is_new else 'replaced'} {body['name']}: {cron} ({time_zone})")


def template(job_file: Path) -> dict[str, object]:
    """The job file, checked as it would be submitted now. Raises PermanentError with what is wrong with it."""
    _, document = read(str(job_file), None)
    job_id = str(document.pop("job_id", None) or document.get("jobId") or f"{job_file.stem}_{{time:%Y%m%d_%H%M}}")
    if not is_template(job_id):
        example = f"{job_id}_{{time:%Y%m%d_%H%M}}"
        raise PermanentError(f"jobId {job_id!r} would be taken after the first time: give it a time, such as {example}")
    checked({**document, "jobId": at_time(job_id, datetime.now(UTC))})
    return {**document, "jobId": job_id}
