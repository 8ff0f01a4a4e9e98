"""`trainmaster schedule`: submit a job file again and again, with Cloud Scheduler.

Each firing publishes the job file to the topic `submit`. A `{time:FORMAT}` in its jobId becomes the publish time of the
message (`shared.flows.submit`), so that a message that is delivered twice creates one job.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.installation import choose_installation
from cli.output import print_json, say
from cli.submit import check_document, read_job
from shared.core.intake.job_id_template import at_time, is_template
from shared.errors import PermanentError
from shared.messaging import topics
from shared.settings import settings


def schedule(
    name: Annotated[
        str, typer.Argument(help="Name of the schedule. Replaces an existing schedule of that name.", metavar="NAME")
    ],
    job_file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="Job file.")],
    cron: Annotated[str, typer.Option(help="When to submit, as a cron expression: '0 3 * * *'.")],
    location: Annotated[str, typer.Option(help="Region of the schedule.")] = "us-central1",
    time_zone: Annotated[str, typer.Option(help="Time zone of --cron. Times in job ids are UTC.")] = "Etc/UTC",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the Cloud Scheduler job instead of creating it.")
    ] = False,
) -> None:
    """Submit a job file at fixed times. Its jobId contains the time: nightly_{time:%Y%m%d_%H%M}."""
    from shared.gcp.scheduler import CloudScheduler, scheduler_job

    choose_installation()
    document = read_template(job_file)
    parent = f"projects/{settings().project}/locations/{location}"
    body = scheduler_job(parent, name, cron, time_zone, topics.SUBMIT, json.dumps(document).encode())
    if dry_run:
        print_json(body)
        return
    if os.environ.get("PUBSUB_EMULATOR_HOST"):
        raise PermanentError("the local stack has no Cloud Scheduler. --dry-run prints the Cloud Scheduler job")
    is_new = CloudScheduler().put(body)
    say(f"{'created' if is_new else 'replaced'} {body['name']}: {cron} ({time_zone})")


def read_template(job_file: Path) -> dict[str, object]:
    """Read the job file, and check it as if it were submitted now. Raises PermanentError with every problem."""
    _, document = read_job(str(job_file), None)
    job_id = str(document.pop("job_id", None) or document.get("jobId") or f"{job_file.stem}_{{time:%Y%m%d_%H%M}}")
    if not is_template(job_id):
        example = f"{job_id}_{{time:%Y%m%d_%H%M}}"
        raise PermanentError(f"jobId: {job_id!r} can be used only once. Add the time to it, for example {example}")
    check_document({**document, "jobId": at_time(job_id, datetime.now(UTC))})
    return {**document, "jobId": job_id}
