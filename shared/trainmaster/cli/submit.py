"""`trainmaster submit`: submit a job file, or a job that gcloud's options describe.

read, apply options ──► check here, all problems at once ──► upload packages ──► topic submit ──► stored, or refused
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import typer

from trainmaster.cli import package_staging
from trainmaster.cli import submit_options as options
from trainmaster.cli.gcloud_flags import Flags, apply_flags
from trainmaster.cli.installation import choose_installation, open_store
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, complain, print_json, say
from trainmaster.cli.wait import exit_status, wait
from trainmaster.core.intake.job_id_template import at_time
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError
from trainmaster.jobspec import InvalidJob, Problem, accept, job_id_from, read_document
from trainmaster.jobspec.formats.extension import CONVERTED_FROM
from trainmaster.jobspec.reading.document_kinds import EXTENSION
from trainmaster.messaging import topics
from trainmaster.ports import Store
from trainmaster.presentation.console_link import console_link
from trainmaster.presentation.job_view import job_view
from trainmaster.settings import settings

STORED_MAX_S: Final = 60.0
"""How long the function submit may take until the job is stored or refused."""
POLL_S: Final = 0.5
LOADS_PER_REJECTION_SCAN: Final = 3
"""How often the job is read between two searches of the rejections. A search reads all rejections, so it is rarer."""
JOB_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")


def submit(
    context: typer.Context,
    job: options.Job,
    config: options.Config = None,
    package_path: options.PackagePath = None,
    packages: options.Packages = None,
    staging_bucket: options.StagingBucket = None,
    module_name: options.ModuleName = None,
    runtime_version: options.RuntimeVersion = None,
    python_version: options.PythonVersion = None,
    job_dir: options.JobDir = None,
    use_chief_in_tf_config: options.UseChief = None,
    region: options.Region = None,
    service_account: options.ServiceAccount = None,
    network: options.Network = None,
    labels: options.Labels = None,
    max_running_time: options.MaxRunningTime = None,
    scale_tier: options.ScaleTier = None,
    master_machine_type: options.MachineType = None,
    master_accelerator: options.Accelerator = None,
    master_image_uri: options.ImageUri = None,
    worker_machine_type: options.MachineType = None,
    worker_count: options.Count = None,
    worker_accelerator: options.Accelerator = None,
    worker_image_uri: options.ImageUri = None,
    parameter_server_machine_type: options.MachineType = None,
    parameter_server_count: options.Count = None,
    parameter_server_accelerator: options.Accelerator = None,
    parameter_server_image_uri: options.ImageUri = None,
    check: options.Check = False,
    wait_for_end: options.Wait = False,
    asynchronous: options.Async = False,
    stream_logs: options.StreamLogs = False,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Submit a training job. Arguments after -- are passed to the program."""
    given = {name: value for name, value in locals().items() if name in Flags.__dataclass_fields__}
    if asynchronous and (stream_logs or wait_for_end):
        raise PermanentError("--async cannot be combined with --stream-logs or --wait")
    name, document = read_job(job, config, region)
    if _list_substitutions(document):
        given["region"] = None  # the conversion of the manifest has used it
    document = apply_flags(document, Flags(**given), context.args)
    set_job_id(document, job, name)
    if check:
        from trainmaster.cli.doctor.command import report_job

        report_job(document, form)
    if package_path or packages:
        choose_installation()
        _stage_packages(document, package_path, packages, staging_bucket)
    job_id = check_document(document)
    store = open_store()
    stored = send(document, job_id, store)
    complain(f"Job [{job_id}] submitted successfully.")
    if wait_for_end or stream_logs:
        _follow(job_id, store, form, stream_logs=stream_logs)
    _print_hints(job_id)
    _print_job(stored, form)


def read_job(job: str, config: Path | None, region: str | None = None) -> tuple[str | None, dict[str, Any]]:
    """Return the job id that the command names, or None, and the content of the job file.

    `job` is a job file, a manifest of Kubeflow or JobSet, or a job id. `region`: where the job of a manifest runs, if
    the manifest does not say so. A manifest is converted. Raises PermanentError if the file cannot be read or
    converted.
    """
    is_file = Path(job).is_file() or job.endswith(JOB_FILE_SUFFIXES)
    if is_file and config:
        raise PermanentError(f"two job files are given: {job} and --config {config}. Give one of them")
    source = Path(job) if is_file else config
    if source is None:
        return job, {}
    try:
        document = dict(read_document(source.read_bytes(), source.name, region))
    except FileNotFoundError:
        raise PermanentError(f"there is no file {source}") from None
    except InvalidJob as invalid:
        problems = "".join(f"\n  {_describe_problem(problem)}" for problem in invalid.problems)
        raise PermanentError(f"{source} cannot be read:{problems}") from None
    return (None if is_file else job), document


def _list_substitutions(document: dict[str, Any]) -> bool:
    """Print what the conversion of a manifest replaced. Return whether the job file was converted from one."""
    extension = document.get(EXTENSION)
    converted = extension.get(CONVERTED_FROM) if isinstance(extension, dict) else None
    if not isinstance(converted, dict) or "jobSpec" not in document:
        return False
    complain(f"converted {converted.get('manifest')}")
    for item in converted.get("substitutions", ()):
        complain(f"  {item['field']}: {item['requested']} -> {item['replacement']}. {item['reason']}")
    return True


def check_document(document: dict[str, Any]) -> str:
    """Return the job's id. Raises PermanentError with every problem of the job file."""
    try:
        spec = accept(document, default_job_id=None)
    except InvalidJob as invalid:
        problems = "".join(f"\n  {_describe_problem(problem)}" for problem in invalid.problems)
        raise PermanentError(f"the job is not valid, and was not submitted:{problems}") from None
    if spec.job_id is None:
        raise ValueError("an accepted spec without a default has a job id")
    return spec.job_id


def _describe_problem(problem: Problem) -> str:
    end = "" if problem.problem.endswith("?") else "."
    return f"{problem.field}: {problem.problem}{end} Example: {problem.example}"


def send(document: dict[str, Any], job_id: str, store: Store, sleep: Callable[[float], None] = time.sleep) -> Job:
    """Publish the job, and return it once it is stored. Raises PermanentError if it is refused, or never stored."""
    from trainmaster.wiring.core_services import bus

    source = f"cli:{uuid.uuid4().hex}"
    bus().publish(topics.SUBMIT, json.dumps(document).encode(), {"source": source})
    deadline = time.monotonic() + STORED_MAX_S
    while time.monotonic() < deadline:
        for _ in range(LOADS_PER_REJECTION_SCAN):
            loaded = store.load(job_id)
            if loaded and loaded.state.job.submission == source:
                return loaded.state.job
            sleep(POLL_S)
        if problems := [rejection.problems for rejection in store.rejections() if rejection.source == source]:
            raise PermanentError("the job was refused: " + " ".join(problems[0]))
    raise PermanentError(
        f"the job was published as {source}, but not stored within {STORED_MAX_S:.0f} s. "
        "Check that the function submit is deployed: `trainmaster doctor`"
    )


def _stage_packages(
    document: dict[str, Any], package_path: Path | None, packages: str | None, staging_bucket: str | None
) -> None:
    """Upload the packages, and put their URIs into the job."""
    from trainmaster.wiring.objects import objects

    training = document.get("training_input", document.get("trainingInput"))
    if training is None:
        raise PermanentError(
            "--package-path and --packages work with AI Platform's format only; this job file is in Vertex AI's"
        )
    names = [name for name in (packages or "").split(",") if name]
    folder = package_staging.folder_for(document["jobId"], staging_bucket, training.get("jobDir"), settings().bucket)
    training["packageUris"] = package_staging.stage(names, package_path, folder, objects())


def set_job_id(document: dict[str, Any], job_file: str, job_id: str | None = None) -> None:
    """Set the document's job id to `job_id`, else keep its own, else derive one from the file's name and the time.

    `{time:FORMAT}` in an id is replaced by the current time. An id that is not text is left to `accept`, which refuses
    it.
    """
    now = datetime.now(UTC)
    named = job_id or document.pop("job_id", None) or document.get("jobId")
    named = named or job_id_from(job_file, now.strftime("%Y%m%d_%H%M%S"))
    document["jobId"] = at_time(named, now) if isinstance(named, str) else named


def _follow(job_id: str, store: Store, form: Format, *, stream_logs: bool) -> None:
    """Wait until the job has ended, and exit with its status."""
    if stream_logs:
        from trainmaster.cli.logs import logs

        logs(job_id, follow=True, form=form)
    ended = wait(job_id, store)
    _print_job(ended.job, form)
    raise typer.Exit(exit_status(ended))


def _print_hints(job_id: str) -> None:
    """Print the same hints as `gcloud ai-platform jobs submit training`."""
    complain("Your job is still active. You may view the status of your job with the command")
    complain(f"\n  $ trainmaster jobs describe {job_id}\n\nor continue streaming the logs with the command")
    complain(f"\n  $ trainmaster logs {job_id} --follow\n")
    if link := console_link(settings().console_address, job_id):
        complain(f"View the job in the console: {link}\n")


def _print_job(job: Job, form: Format) -> None:
    view = job_view(job, project=settings().project)
    if link := console_link(settings().console_address, job.job_id):
        view[EXTENSION]["console"] = link
    if form is Format.JSON:
        print_json(view)
        return
    for name in ("jobId", "state", "startTime", "endTime", "errorMessage"):
        if name in view:
            say(f"{name}: {view[name]}")
