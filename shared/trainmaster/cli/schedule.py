"""`trainmaster schedule …`: submit a job file at fixed times, with Cloud Scheduler.

Each run of the schedule publishes the job file to the topic `submit`. A `{time:FORMAT}` in its
jobId becomes the publish time of the message (`trainmaster.flows.submit`), so that a message that
is delivered twice creates one job.

The submitter of a message is not known, so such a job cannot name a service account or another
resource. With `--submit-as`, the schedule calls the API as that account instead, and the time is
that of the schedule.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from zoneinfo import available_timezones

import typer

from trainmaster.cli.init import API_ADDRESS
from trainmaster.cli.installation import choose_installation, user_name
from trainmaster.cli.job_files import check_document, read_job
from trainmaster.cli.options import DEFAULT_REGION, OutputFormat, given
from trainmaster.cli.output import Format, print_json, print_result, say
from trainmaster.cli.schedule_runs import check_job_ids, describe_run, submission_of
from trainmaster.core.intake.document_fields import with_versions
from trainmaster.core.intake.job_id_template import at_time, is_template
from trainmaster.core.intake.named_resources import AllowedResources
from trainmaster.core.model.installation import name_in_installation
from trainmaster.errors import PermanentError
from trainmaster.flows.job_creation.intake import check_allowed
from trainmaster.flows.job_creation.package_versions import with_generations
from trainmaster.flows.submit import FORBIDDEN, OVERLAP
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.google_resources import EMAIL
from trainmaster.jobspec.job_document import job_id_of, with_id_from_file, with_time_in_job_id
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.messaging import topics
from trainmaster.setting_formats import REGION_NAME
from trainmaster.settings import settings
from trainmaster.wiring.installation import API

if TYPE_CHECKING:
    from trainmaster.gcp.tools.scheduler import CloudScheduler

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,480}")
"""Source: Cloud Scheduler's rule for names. 20 of its 500 characters are for the installation."""


app = typer.Typer(
    help="Submit job files at fixed times, with Cloud Scheduler.",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="Name of the schedule.", metavar="NAME")]
Location = Annotated[str, typer.Option(metavar="REGION", help="Region of the schedule.")]


@app.command()
def create(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the schedule. Replaces an existing schedule of that name.", metavar="NAME"
        ),
    ],
    job_file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="Job file.")
    ],
    cron: Annotated[
        str,
        typer.Option(
            callback=given,
            metavar="CRON",
            help="When to submit, as a cron expression: '0 3 * * *'.",
        ),
    ],
    location: Location = DEFAULT_REGION,
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Time zone of --cron. Times in job ids are UTC.")
    ] = "Etc/UTC",
    submit_as: Annotated[
        str | None,
        typer.Option(
            help=(
                "Service account that submits the job through the API. A job that names a service"
                " account, network, "
                "image, reservation, KMS key or secret needs one."
            ),
            metavar="ACCOUNT",
        ),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option(
            help=f"Address of the function api, for --submit-as. [default: ${API}, if it is set]",
            metavar="URL",
        ),
    ] = None,
    follow_packages: Annotated[
        bool,
        typer.Option(
            "--follow-packages",
            help=(
                "Install what is stored under the packages' names at each run, instead of what is"
                " stored now."
            ),
        ),
    ] = False,
    no_overlap: Annotated[
        bool,
        typer.Option(
            "--no-overlap",
            help=(
                "Leave a run out while the job of an earlier run has not ended. Not with"
                " --submit-as."
            ),
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the Cloud Scheduler job instead of creating it."),
    ] = False,
) -> None:
    """Submit a job file at fixed times. Its jobId contains the time: nightly_{time:%Y%m%d_%H%M}."""
    from trainmaster.gcp.tools.scheduler import api_call, publication, scheduler_job

    choose_installation()
    if api is None and submit_as:
        api = os.environ.get(API) or None
    _check_options(submit_as, api, time_zone, no_overlap=no_overlap)
    project = settings().project
    document = read_template(job_file, is_published=submit_as is None)
    check_job_ids(job_id_of(document) or "", cron, time_zone, datetime.now(UTC))
    if not follow_packages:
        document = with_stored_packages(document)
    data = json.dumps(document).encode()
    if submit_as and api:
        target = api_call(project, api, submit_as, data)
    else:
        attributes = {"source": f"schedule:{name}/{user_name()}"}
        if no_overlap:
            attributes[OVERLAP] = FORBIDDEN
        target = publication(project, attributes, name_in_installation(topics.SUBMIT), data)
    body = scheduler_job(_parent(location), _own_name(name), cron, time_zone, target)
    if dry_run:
        print_json(body)
        return
    with closing(_scheduler()) as scheduler:
        is_new = scheduler.put(body)
    say(f"{'created' if is_new else 'replaced'} {body['name']}: {cron} ({time_zone})")


def _check_options(
    submit_as: str | None, api: str | None, time_zone: str, *, no_overlap: bool
) -> None:
    """Raise PermanentError for options of `create` that are wrong or contradict each other."""
    if (submit_as is None) is not (api is None):
        raise PermanentError("--submit-as and --api belong together: give both or neither")
    if api is not None and not API_ADDRESS.fullmatch(api):
        raise PermanentError(
            f"--api: {api!r} is not an address. Example: --api https://api-x-uc.a.run.app"
        )
    if submit_as is not None and not EMAIL.fullmatch(submit_as):
        raise PermanentError(
            f"--submit-as: must be the e-mail address of a service account, not {submit_as!r}"
        )
    known_time_zones = available_timezones()  # none on a machine without such data
    if known_time_zones and time_zone not in known_time_zones:
        raise PermanentError(
            f"--time-zone: {time_zone!r} is not a time zone. Example: --time-zone Europe/Berlin"
        )
    if no_overlap and submit_as is not None:
        raise PermanentError(
            "--no-overlap: the API does not know the earlier runs of a schedule. Leave --submit-as"
            " out, or set a maxRunningTime that is shorter than the time between two runs"
        )


@app.command("list")
def list_schedules(location: Location = DEFAULT_REGION, form: OutputFormat = Format.TABLE) -> None:
    """List the schedules of a region: those that submit jobs, and any others."""
    choose_installation()
    beginning = f"/jobs/{_own_prefix()}"
    parent = _parent(location)
    with closing(_scheduler()) as scheduler:
        schedules = [
            {**job, "result": _result(job)}
            for job in scheduler.list_jobs(parent)
            if beginning in job["name"]
        ]
    print_result(
        form,
        schedules,
        ["name", "cron", "time_zone", "state", "next", "last", "result"],
        [
            [
                job["name"].rpartition(beginning)[2],
                job.get("schedule", ""),
                job.get("timeZone", ""),
                job.get("state", ""),
                job.get("scheduleTime", "") if job.get("state") == "ENABLED" else "",
                job.get("lastAttemptTime", ""),
                job["result"],
            ]
            for job in schedules
        ],
    )


def _result(job: dict[str, Any]) -> str:
    """Return the job of a schedule's last run, or why there is none; empty before the first run.

    `job`: the schedule, which Cloud Scheduler calls a job.
    """
    if "lastAttemptTime" not in job:
        return ""
    status = job.get("status") or {}
    if not status.get("code"):
        from trainmaster.wiring.core_services import store

        return describe_run(job, datetime.fromisoformat(job["lastAttemptTime"]), store())
    return f"error {status['code']}: {status.get('message', '')}".rstrip(": ")


@app.command()
def run(name: Name, location: Location = DEFAULT_REGION) -> None:
    """Submit the job file now, once. The schedule does not change."""
    choose_installation()
    path = f"{_parent(location)}/jobs/{_own_name(name)}"
    with closing(_scheduler()) as scheduler:
        schedule = scheduler.get(path)
        _refuse_used_id(schedule)
        scheduler.act("run", path)
    say(f"{name}: started. `trainmaster schedule list` shows its job")


@app.command()
def pause(name: Name, location: Location = DEFAULT_REGION) -> None:
    """Submit nothing until the schedule is resumed. The times that pass meanwhile are left out."""
    _act("pause", name, location, "paused")


@app.command()
def resume(name: Name, location: Location = DEFAULT_REGION) -> None:
    """Continue a paused schedule with its next time."""
    _act("resume", name, location, "resumed")


@app.command()
def delete(name: Name, location: Location = DEFAULT_REGION) -> None:
    """Delete a schedule. Jobs that it has submitted continue."""
    _act("delete", name, location, "deleted")


def _act(verb: Literal["pause", "resume", "delete"], name: str, location: str, done: str) -> None:
    """Change a schedule, and print `done`, such as "paused", after its name."""
    choose_installation()
    path = f"{_parent(location)}/jobs/{_own_name(name)}"
    with closing(_scheduler()) as scheduler:
        scheduler.act(verb, path)
    say(f"{name}: {done}")


def _refuse_used_id(schedule: dict[str, Any]) -> None:
    """Raise PermanentError if a run that starts now would have the id of an earlier job."""
    from trainmaster.wiring.core_services import store

    submission = submission_of(schedule)
    job_id = at_time(submission.template, datetime.now(UTC)) if submission else ""
    loaded = store().load(job_id) if job_id else None
    if loaded is not None:
        raise PermanentError(
            f"a run now would make no job: {job_id} was created at"
            f" {loaded.state.job.created_at:%Y-%m-%d %H:%M:%S}, and ids are never used again. Its"
            " jobId contains the time: wait until that changes"
        )


def _scheduler() -> CloudScheduler:
    from trainmaster.gcp.tools.scheduler import CloudScheduler

    endpoint = settings().scheduler_endpoint
    if os.environ.get("PUBSUB_EMULATOR_HOST") and not endpoint:
        raise PermanentError(
            "this local stack has no Cloud Scheduler: start it with functions, or use --dry-run"
        )
    return CloudScheduler(endpoint)


def _own_name(name: str) -> str:
    """Return the schedule's name in the project, which several installations may share.

    Raises PermanentError.
    """
    if not _NAME.fullmatch(name):
        raise PermanentError(
            f"NAME: must have at most 480 letters, digits, _ and -, not {name!r}. Example: nightly"
        )
    return f"{_own_prefix()}{name}"


def _own_prefix() -> str:
    """Return the beginning of the names of this installation's schedules: `tmstaging-`; empty for
    an installation without a name.
    """
    return name_in_installation("-").removeprefix("-")


def _parent(location: str) -> str:
    """Return the name of the region in Cloud Scheduler's API. Raises PermanentError."""
    if not REGION_NAME.fullmatch(location):
        raise PermanentError(
            f"--location: must be a region, not {location!r}. Example: --location {DEFAULT_REGION}"
        )
    return f"projects/{settings().project}/locations/{location}"


def read_template(job_file: Path, *, is_published: bool) -> dict[str, object]:
    """Read the job file, and check it as if it were submitted now.

    Raises PermanentError with every problem.
    """
    _, content = read_job(str(job_file), config=None)
    document = with_id_from_file(content, job_file.name, "%Y%m%d_%H%M")
    job_id = job_id_of(document) or ""
    if job_id and not is_template(job_id):
        example = f"{job_id}_{{time:%Y%m%d_%H%M}}"
        raise PermanentError(
            f"jobId: {job_id!r} can be used only once. Add the time to it, for example {example}"
        )
    submitted = with_time_in_job_id(document, datetime.now(UTC))
    check_document(submitted)
    if is_published:
        _check_resources(submitted)
    elif detect_kind(submitted) is not AI_PLATFORM:
        raise PermanentError(
            "--submit-as needs a job file with trainingInput. In Vertex AI's format, the API"
            " numbers the jobs, so that a repeated call would create another job"
        )
    return document


def with_stored_packages(document: dict[str, object]) -> dict[str, object]:
    """Return the document with the current generations of packages that jobs may replace.

    Those are all packages outside the folder `packages` of the installation's bucket. Raises
    PermanentError for a package that does not exist or that the user may not read.
    """
    spec = accept(with_time_in_job_id(document, datetime.now(UTC)), default_job_id=None)
    own_packages = f"gs://{settings().bucket}/packages/"
    without_generation = [uri for uri, pinned in spec.plan.versions.items() if pinned == uri]
    if all(uri.startswith(own_packages) for uri in without_generation):
        return document
    from trainmaster.wiring.objects import objects

    try:
        versions = with_generations(spec, objects).plan.versions
    except InvalidJob as invalid:
        raise PermanentError(
            f"{invalid}\nWith --follow-packages, packages are looked up at each run only"
        ) from None
    moving = {uri: pinned for uri, pinned in versions.items() if not uri.startswith(own_packages)}
    pinned_document: dict[str, object] = with_versions(document, moving)
    return pinned_document


def _check_resources(document: dict[str, object]) -> None:
    """Raise PermanentError for resources that a published job may not name."""
    values = settings()
    try:
        check_allowed(
            accept(document, default_job_id=None),
            AllowedResources(values.project, values.allowed_resources),
        )
    except InvalidJob as invalid:
        problems = "".join(
            f"\n  {problem.field}: {problem.problem}" for problem in invalid.problems
        )
        raise PermanentError(
            "the schedule would publish a job whose submitter is not known. Let an account submit"
            f" it through the API, with --submit-as ACCOUNT --api URL:{problems}"
        ) from None
