"""`trainmaster schedule`: submit a job file again and again, with Cloud Scheduler.

Each firing publishes the job file to the topic `submit`. A `{time:FORMAT}` in its jobId becomes the publish time of the
message (`shared.flows.submit`), so that a message that is delivered twice creates one job.

The submitter of a message is not known, so such a job cannot name a service account or another resource. With
`--submit-as`, the schedule calls the API as that account instead, and the time is that of the schedule.
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
from shared.core.intake.named_resources import AllowedResources
from shared.errors import PermanentError
from shared.flows.intake import check_allowed
from shared.jobspec import InvalidJob, accept
from shared.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
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
    submit_as: Annotated[
        str | None,
        typer.Option(
            help="Service account that submits the job through the API. A job that names a service account, network, "
            "image, reservation, KMS key or secret needs one.",
            metavar="ACCOUNT",
        ),
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="Address of the function api, for --submit-as.", metavar="URL")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the Cloud Scheduler job instead of creating it.")
    ] = False,
) -> None:
    """Submit a job file at fixed times. Its jobId contains the time: nightly_{time:%Y%m%d_%H%M}."""
    from shared.gcp.scheduler import CloudScheduler, api_call, publication, scheduler_job

    choose_installation()
    if (submit_as is None) is not (api is None):
        raise PermanentError("--submit-as and --api belong together: give both or neither")
    project = settings().project
    document = read_template(job_file, is_published=submit_as is None)
    data = json.dumps(document).encode()
    if submit_as and api:
        target = api_call(project, api, submit_as, data)
    else:
        target = publication(project, name, topics.SUBMIT, data)
    body = scheduler_job(f"projects/{project}/locations/{location}", name, cron, time_zone, target)
    if dry_run:
        print_json(body)
        return
    if os.environ.get("PUBSUB_EMULATOR_HOST"):
        raise PermanentError("the local stack has no Cloud Scheduler. --dry-run prints the Cloud Scheduler job")
    is_new = CloudScheduler().put(body)
    say(f"{'created' if is_new else 'replaced'} {body['name']}: {cron} ({time_zone})")


def read_template(job_file: Path, *, is_published: bool) -> dict[str, object]:
    """Read the job file, and check it as if it were submitted now. Raises PermanentError with every problem."""
    _, document = read_job(str(job_file), None)
    job_id = str(document.pop("job_id", None) or document.get("jobId") or f"{job_file.stem}_{{time:%Y%m%d_%H%M}}")
    if not is_template(job_id):
        example = f"{job_id}_{{time:%Y%m%d_%H%M}}"
        raise PermanentError(f"jobId: {job_id!r} can be used only once. Add the time to it, for example {example}")
    submitted = {**document, "jobId": at_time(job_id, datetime.now(UTC))}
    check_document(submitted)
    if is_published:
        _check_resources(submitted)
    elif detect_kind(submitted) is not AI_PLATFORM:
        raise PermanentError("--submit-as is for job files with trainingInput: Vertex AI numbers the jobs of its API")
    return {**document, "jobId": job_id}


def _check_resources(document: dict[str, object]) -> None:
    """Raise PermanentError for resources that a published job may not name."""
    values = settings()
    try:
        check_allowed(accept(document, default_job_id=None), AllowedResources(values.project, values.allowed_resources))
    except InvalidJob as invalid:
        problems = "".join(f"\n  {problem.field}: {problem.problem}" for problem in invalid.problems)
        raise PermanentError(
            f"the schedule would publish a job whose submitter is not known. Let an account submit it through the API, "
            f"with --submit-as ACCOUNT --api URL:{problems}"
        ) from None
