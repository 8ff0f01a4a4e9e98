"""`trainmaster submit`: submit a job file, or a job that gcloud's options describe.

read the job file, apply options ──► upload packages ──► check here, all problems at once
  ──► Pub/Sub topic `submit` ──► its function stores the job, or a rejection with the problems
"""

from __future__ import annotations

import json
import re
import shlex
import time
import uuid
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NoReturn

import typer

from trainmaster.cli import submit_options as options
from trainmaster.cli.gcloud_command import with_flags
from trainmaster.cli.gcloud_flags import apply_flags
from trainmaster.cli.gcloud_values import parse_list
from trainmaster.cli.installation import (
    choose_installation,
    open_store,
    use_installation,
    user_name,
)
from trainmaster.cli.job_files import check_document, read_job, with_job_name
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, complain, print_json, say
from trainmaster.client import package_staging
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import (
    field_at,
    listed_substitutions,
    with_default_region,
    with_field,
)
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.messaging import topics
from trainmaster.ports import Objects, Store
from trainmaster.ports.store_values import SUBMISSION_MAX
from trainmaster.presentation.job_view import console_link, job_view
from trainmaster.program_files.findings import ProgramFinding
from trainmaster.settings import settings
from trainmaster.wiring.folder_checks import (
    check_folder,
    checked_words,
    refuse_folder,
    with_chosen_runtime,
)
from trainmaster.wiring.folders import list_folder_files, read_requirements, with_folder
from trainmaster.wiring.installation import BUCKET, REGION, known_variables
from trainmaster.wiring.staged_objects import STAGED_BUCKET, StagedObjects

_FILE_OF_A_PROGRAM: Final = re.compile(
    r"(GNU)?[Mm]akefile|Dockerfile(\..+)?|requirements.*\.txt|pyproject\.toml|setup\.cfg"
)
"""Names of files that stand in the folder of a program, and are no job files."""

POLL_S: Final = 0.5
"""Time between two reads of the job."""
LOADS_PER_REJECTION_SCAN: Final = 3
"""How often the job is read between two searches of the rejections.

A search reads all rejections, so it is rarer.
"""
_CREDENTIALS: Final = re.compile(r"//[^/@\s]+@")
"""User and password in an address."""


@with_flags
def submit(
    context: typer.Context,
    job: options.Job = None,
    config: options.Config = None,
    package_path: options.PackagePath = None,
    packages: options.Packages = None,
    folder: options.Folder = None,
    staging_bucket: options.StagingBucket = None,
    project: options.Project = None,
    check: options.Check = False,
    wait_for_end: options.Wait = False,
    asynchronous: options.Async = False,
    stream_logs: options.StreamLogs = False,
    form: OutputFormat = Format.TABLE,
    **flags: Any,
) -> None:
    """Submit a training job: a folder, a package or a job file. After -- comes the command to run
    in the folder, or the program's arguments.
    """
    _refuse_options(asynchronous=asynchronous, waits=stream_logs or wait_for_end)
    if project:
        use_installation(project)
    region = flags["region"] or known_variables().get(REGION)
    has_other_source = bool(config or folder or package_path or packages)
    if job and not has_other_source:
        _refuse_program(job, context.args)
    source = job or str(config or "")
    title = flags["display_name"] or (folder.resolve().name if folder else "")
    name: str | None = None
    document: dict[str, Any] = {}
    is_described_by_options = not source and title != ""
    if is_described_by_options:
        source = title  # the job's id is made from it
    else:
        name, document = read_job(source, config if job else None, region)
    if _is_converted(document):
        flags["region"] = None  # the conversion of the manifest has used it
    document = with_job_name(apply_flags(document, flags, context.args), source, name)
    document = with_default_region(document, region)
    staged = StagedObjects() if check else None  # in memory: --check uploads nothing
    findings: list[ProgramFinding] = []  # with --check, they are reported below with all others
    checked = ""
    if package_path or packages:
        document = _stage_packages(document, package_path, packages, staging_bucket, staged)
    if folder:
        document, folder_problems = _with_checked_folder(document, folder)
        _refuse_or_warn([] if check else folder_problems)
        findings += folder_problems
        checked = checked_words(document, folder)
        target, bucket = _storage(staged)
        document = with_folder(document, folder, staging_bucket or bucket, target)
        complain(
            f"each VM gets a copy of {folder}: {list_folder_files(folder).describe()};"
            " requirements.txt:"
            f" {_CREDENTIALS.sub('//', ', '.join(read_requirements(folder))) or 'none'}"
        )
    if check:
        _report_check(document, findings, checked, staged, form)
    job_id = check_document(document)
    store = open_store()
    refuse_used_id(job_id, store)
    stored = send(document, job_id, store)
    complain(f"Job [{job_id}] submitted successfully.")
    for note in stored.plan.origin.substitutions:
        complain(f"  {note.text}")
    _warn_of_joined_arguments(stored)
    if wait_for_end or stream_logs:
        _follow(job_id, store, form, stream_logs=stream_logs)
    _print_hints(job_id)
    _print_job(stored, form)


def _report_check(
    document: dict[str, Any],
    findings: Sequence[ProgramFinding],
    checked: str,
    staged: Objects | None,
    form: Format,
) -> NoReturn:
    """Print what was found about the program (`checked`: in what), and then about the job."""
    from trainmaster.cli.doctor.command import job_findings, outcome_of_job, report
    from trainmaster.cli.doctor.file_checks import folder_findings

    results = chain(folder_findings(findings, checked), job_findings(document, staged))
    report(results, form, outcome_of_job)


def _refuse_program(job: str, command: Sequence[str]) -> None:
    """Raise PermanentError for a folder, or a file of a program, in place of a job file."""
    path = Path(job)
    folder, program = path.parent, shlex.join(command) or "COMMAND"
    if path.is_dir():
        kind, folder = "a folder", path
    elif path.suffix == ".py":
        kind, program = "a program", shlex.join(["python", path.name, *command])
    elif _FILE_OF_A_PROGRAM.fullmatch(path.name):
        kind = "a file of a program"
    else:
        return
    raise PermanentError(
        f"{job} is {kind}, and no job file: `trainmaster submit --folder {folder} -- {program}`"
        " runs it"
    )


def _is_converted(document: dict[str, Any]) -> bool:
    """Return whether the job file was converted from a manifest, and print from which."""
    converted = listed_substitutions(document)
    if not converted or "jobSpec" not in document:
        return False
    complain(f"converted {converted.get('manifest')}")
    return True


def _refuse_options(*, asynchronous: bool, waits: bool) -> None:
    if asynchronous and waits:
        raise PermanentError("--async cannot be combined with --stream-logs or --wait")


def _check_local_packages(
    document: dict[str, Any],
    package_path: Path | None,
    packages: str | None,
    staging_bucket: str | None,
) -> None:
    """Warn of what may fail in the local packages. Raises PermanentError, before they are uploaded,
    if the program must fail.

    Packages that are in Cloud Storage already are judged by the function submit, or by `--check`.
    """
    from trainmaster.cli.doctor.findings import Status
    from trainmaster.cli.doctor.program_checks import check_staged_programs

    staged = StagedObjects()
    with_packages = _stage_packages(document, package_path, packages, staging_bucket, staged)
    try:
        plan = accept(with_packages, default_job_id=None).plan
    except InvalidJob:
        return  # `check_document` names every problem
    found = list(check_staged_programs(plan, staged))
    refused = [
        f"{finding.what}: {finding.fix}" for finding in found if finding.status is Status.FIX
    ]
    if refused:
        raise PermanentError(f"the job was not submitted: {'; '.join(refused)}")
    for finding in found:
        if finding.status is Status.LIMIT:
            complain(f"warning: {finding.what}: {finding.fix}")


def _warn_of_joined_arguments(job: Job) -> None:
    from trainmaster.cli.doctor.program_checks import joined_argument_words, joined_arguments

    for argument in joined_arguments(job.plan):
        complain(f"  warning: {joined_argument_words(argument)}")


def _with_checked_folder(
    document: dict[str, Any], folder: Path
) -> tuple[dict[str, Any], list[ProgramFinding]]:
    """Return the job with the runtime that the folder asks for, and what is wrong with the
    program.
    """
    document, chosen = with_chosen_runtime(document, folder)
    if chosen:
        complain(chosen)
    return document, check_folder(document, folder)


def _refuse_or_warn(findings: Sequence[ProgramFinding]) -> None:
    """Print what may fail. Raises PermanentError if the program must fail."""
    refuse_folder(findings)
    for finding in findings:
        complain(f"warning: {finding}")


def refuse_used_id(job_id: str, store: Store) -> None:
    """Raise PermanentError if a job has this id.

    The function submit checks it again.
    """
    used = store.load(job_id)
    if used is not None:
        raise PermanentError(
            f"the job was refused: A job with this id already exists. {job_id} is"
            f" {used.state.job.state}. Example: jobId: {job_id}_{{time}}"
        )


def send(
    document: dict[str, Any], job_id: str, store: Store, sleep: Callable[[float], None] = time.sleep
) -> Job:
    """Publish the job, and return it once it is stored.

    Raises PermanentError if it is refused, or not stored in time.
    """
    from trainmaster.wiring.core_services import bus

    # Tells this submission from another one of the same id.
    source = f"cli:{uuid.uuid4().hex}/{user_name()}"
    bus().publish(topics.SUBMIT, json.dumps(document).encode(), {"source": source})
    stored_max_s = SUBMISSION_MAX.total_seconds()
    deadline = time.monotonic() + stored_max_s
    while time.monotonic() < deadline:
        for _ in range(LOADS_PER_REJECTION_SCAN):
            loaded = store.load(job_id)
            if loaded and loaded.state.job.submission == source:
                return loaded.state.job
            sleep(POLL_S)
        refused = store.rejections(limit=1, source=source)
        if refused:
            problems = refused[0].problems
            separator = " " if len(problems) == 1 else "\n  "
            raise PermanentError(separator.join(("the job was refused:", *problems)))
    raise PermanentError(
        f"the job was published as {source}, but not stored within {stored_max_s:.0f} s. "
        "Check that the function submit is deployed: `trainmaster doctor`"
    )


def _stage_packages(
    document: dict[str, Any],
    package_path: Path | None,
    packages: str | None,
    staging_bucket: str | None,
    staged: Objects | None,
) -> dict[str, Any]:
    """Build and upload the packages, and return the job with their URIs.

    With `staged`, they are stored there instead, which needs no installation. The URIs are those of
    an upload, but their generation (Cloud Storage's version of an object) is not real: it marks
    objects that are not looked up.
    """
    kind = detect_kind(document)
    if kind is not AI_PLATFORM:
        raise PermanentError(
            "--package-path and --packages work with AI Platform's format only; this job file is a"
            f" {kind.title}"
        )
    if staged is None:
        _check_local_packages(document, package_path, packages, staging_bucket)
    job_dir = field_at(document, ("trainingInput", "jobDir"))
    target, bucket = _storage(staged)
    folder = package_staging.folder_for(document["jobId"], staging_bucket, job_dir, bucket)
    local = parse_list(packages or "")
    uris = package_staging.stage(
        local, package_path, folder, target, lambda text: complain(f"each VM gets {text}")
    )
    if package_path and not (package_path.resolve().parent / "setup.py").is_file():
        modules = package_staging.list_modules(package_path)
        complain(f"the package {package_path} has {modules.describe()}")
    return with_field(document, ("trainingInput", "packageUris"), uris)


def _storage(staged: Objects | None) -> tuple[Objects, str]:
    """Return where packages are uploaded to, and the name of the bucket.

    `--check`, which passes `staged`, needs no installation.
    """
    if staged:
        return staged, known_variables().get(BUCKET, STAGED_BUCKET)
    from trainmaster.wiring.objects import objects

    choose_installation()
    return objects(), settings().bucket


def _follow(job_id: str, store: Store, form: Format, *, stream_logs: bool) -> None:
    """Wait until the job has ended, and exit with its status."""
    from trainmaster.cli.wait import ProgressReader, exit_status, wait

    if stream_logs:
        from trainmaster.cli.logs import logs

        logs(job_id, follow=True, form=form)
    ended = wait(job_id, store, progress=ProgressReader().words)
    _print_job(ended.job, form)
    raise typer.Exit(exit_status(ended))


def _print_hints(job_id: str) -> None:
    """Print the same hints as `gcloud ai-platform jobs submit training`."""
    complain("Your job is still active. You may view the status of your job with the command")
    complain(
        f"\n  $ trainmaster describe {job_id}\n\nor continue streaming the logs with the command"
    )
    complain(f"\n  $ trainmaster logs {job_id} --follow\n")
    link = console_link(settings().console_address, job_id)
    if link:
        complain(f"View the job in the console: {link}\n")


def _print_job(job: Job, form: Format) -> None:
    view = job_view(job, project=settings().log_project)
    link = console_link(settings().console_address, job.job_id)
    if link:
        view[EXTENSION]["console"] = link
    if form is Format.JSON:
        print_json(view)
        return
    for name in ("jobId", "state", "startTime", "endTime", "errorMessage"):
        if name in view:
            say(f"{name}: {view[name]}")
