"""`trainmaster submit`: a job file, or a job made of gcloud's flags, becomes a job.

read, overlay ──► checked here, every problem at once ──► packages staged ──► topic submit ──► stored, or refused
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli import package_staging
from cli.gcloud_flags import Flags, overlaid
from cli.jobs import Form, open_store
from cli.output import Format, complain, print_json, say
from cli.wait import exit_status, wait
from shared.core.intake.job_id_template import at_time
from shared.core.model.job import Job
from shared.errors import PermanentError
from shared.jobspec import InvalidJob, Problem, accept, job_id_from, parse_document
from shared.messaging import topics
from shared.ports import Store
from shared.presentation.job_view import job_view
from shared.settings import settings

STORED_S: Final = 60.0
POLL_S: Final = 0.5
LOOKS: Final = 3
"""For the job, before the refusals are looked through: those are all that there ever were."""
SUFFIXES: Final = (".yaml", ".yml", ".json")

MACHINE: Final = "Compute Engine's name, or the service's own."
ACCELERATOR: Final = "type=nvidia-tesla-t4,count=1."
IMAGE: Final = "A container instead of packages."
COUNT: Final = "How many."

Text = str | None

_program = partial(typer.Option, rich_help_panel="The program")
_place = partial(typer.Option, rich_help_panel="Where and for whom")
_machines = partial(typer.Option, rich_help_panel="Machines")


def submit(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="A job file, or an id for a job made of the flags.", metavar="FILE|JOB")],
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="A job file below the flags.")
    ] = None,
    package_path: Annotated[
        Path | None, _program(exists=True, file_okay=False, metavar="DIR", help="Folder of the trainer, packaged here.")
    ] = None,
    packages: Annotated[Text, _program(metavar="LIST", help="More packages: files and gs://, with commas.")] = None,
    staging_bucket: Annotated[Text, _program(metavar="BUCKET", help="Where packages go.")] = None,
    module_name: Annotated[Text, _program(metavar="MODULE", help="What runs: python -m MODULE.")] = None,
    runtime_version: Annotated[
        Text, _program(metavar="VERSION", help="What is installed: 2.21, pytorch-2.13 ….")
    ] = None,
    python_version: Annotated[Text, _program(metavar="VERSION", help="The runtime's own, whatever is said.")] = None,
    job_dir: Annotated[Text, _program(metavar="URI", help="gs:// folder of the job's output.")] = None,
    use_chief_in_tf_config: Annotated[
        bool | None, _program(help="Of containers: the primary is `chief` in TF_CONFIG, not `master`.")
    ] = None,
    region: Annotated[Text, _place(metavar="REGION", help="Where its machines are.")] = None,
    service_account: Annotated[Text, _place(metavar="EMAIL", help="Who its machines run as.")] = None,
    network: Annotated[Text, _place(metavar="NETWORK", help="projects/NUMBER/global/networks/NAME.")] = None,
    labels: Annotated[Text, _place(metavar="LABELS", help="KEY=VALUE, with commas.")] = None,
    max_running_time: Annotated[Text, _place(metavar="TIME", help="Then it is cancelled: 7200s.")] = None,
    scale_tier: Annotated[
        Text, _machines(metavar="TIER", help="basic, standard-1, premium-1, basic-gpu, basic-tpu, custom.")
    ] = None,
    master_machine_type: Annotated[Text, _machines(metavar="TYPE", help=MACHINE)] = None,
    master_accelerator: Annotated[Text, _machines(metavar="GPU", help=ACCELERATOR)] = None,
    master_image_uri: Annotated[Text, _machines(metavar="IMAGE", help=IMAGE)] = None,
    worker_machine_type: Annotated[Text, _machines(metavar="TYPE", help=MACHINE)] = None,
    worker_count: Annotated[int | None, _machines(min=0, metavar="N", help=COUNT)] = None,
    worker_accelerator: Annotated[Text, _machines(metavar="GPU", help=ACCELERATOR)] = None,
    worker_image_uri: Annotated[Text, _machines(metavar="IMAGE", help=IMAGE)] = None,
    parameter_server_machine_type: Annotated[Text, _machines(metavar="TYPE", help=MACHINE)] = None,
    parameter_server_count: Annotated[int | None, _machines(min=0, metavar="N", help=COUNT)] = None,
    parameter_server_accelerator: Annotated[Text, _machines(metavar="GPU", help=ACCELERATOR)] = None,
    parameter_server_image_uri: Annotated[Text, _machines(metavar="IMAGE", help=IMAGE)] = None,
    follow: Annotated[bool, typer.Option("--wait", help="Until it has ended; exit status 1 unless SUCCEEDED.")] = False,
    asynchronous: Annotated[bool, typer.Option("--async", hidden=True, help="As gcloud: what happens anyway.")] = False,
    stream_logs: Annotated[bool, typer.Option("--stream-logs", help="As --wait, with its log.")] = False,
    form: Form = Format.TABLE,
) -> None:
    """Submit a training job. What stands after -- are the program's arguments."""
    options = {name: value for name, value in locals().items() if name in Flags.__dataclass_fields__}  # by their names
    if asynchronous and (stream_logs or follow):
        raise PermanentError("--async and --stream-logs or --wait: one of them")
    name, document = read(job, config)
    document = overlaid(document, Flags(**options), context.args)
    store = open_store()
    document["jobId"] = _at_now(name or document.pop("job_id", None) or document.get("jobId") or _id_of(job))
    if package_path or packages:
        _stage(document, package_path, packages, staging_bucket)
    job_id = checked(document)
    stored = send(document, job_id, store)
    complain(f"Job [{job_id}] submitted successfully.")
    if stream_logs:
        from cli.logs import logs

        logs(job_id, follow=True, form=form)
    if follow or stream_logs:
        ended = wait(job_id, store)
        _show(ended.job, form)
        raise typer.Exit(exit_status(ended))
    complain("Your job is still active. You may view the status of your job with the command")
    complain(f"\n  $ trainmaster jobs describe {job_id}\n\nor continue streaming the logs with the command")
    complain(f"\n  $ trainmaster logs {job_id} --follow\n")
    _show(stored, form)


def read(job: str, config: Path | None) -> tuple[str | None, dict[str, Any]]:
    """The id the command names, if it does, and the job file's content."""
    given = Path(job)
    is_file = given.is_file() or job.endswith(SUFFIXES)
    if is_file and config:
        raise PermanentError(f"two job files: {job} and --config {config}")
    source = given if is_file else config
    if source is None:
        return job, {}
    try:
        document = dict(parse_document(source.read_bytes(), source.name))
    except FileNotFoundError:
        raise PermanentError(f"there is no file {source}") from None
    except InvalidJob as invalid:
        raise PermanentError(f"{source}: {invalid}") from None
    return (None if is_file else job), document


def checked(document: dict[str, Any]) -> str:
    """The job's id. Raises PermanentError with every problem: nothing is submitted then."""
    try:
        spec = accept(document, default_job_id=None)
    except InvalidJob as invalid:
        said = "".join(f"\n  {each.field}: {_sentence(each)} Right: {each.example}" for each in invalid.problems)
        raise PermanentError(f"nothing was submitted:{said}") from None
    if spec.job_id is None:
        raise ValueError("an accepted spec without a default has a job id")
    return spec.job_id


def _sentence(problem: Problem) -> str:
    return problem.problem if problem.problem.endswith("?") else f"{problem.problem}."


def send(document: dict[str, Any], job_id: str, store: Store, sleep: Callable[[float], None] = time.sleep) -> Job:
    """The stored job. Raises PermanentError where it was refused, with the reasons."""
    from shared.wiring.core_services import bus

    source = f"cli:{uuid.uuid4().hex}"
    bus().publish(topics.SUBMIT, json.dumps(document).encode(), {"source": source})
    deadline = time.monotonic() + STORED_S
    while time.monotonic() < deadline:
        for _ in range(LOOKS):
            loaded = store.load(job_id)
            if loaded and loaded.state.job.submission == source:
                return loaded.state.job
            sleep(POLL_S)
        if problems := [each.problems for each in store.rejections() if each.source == source]:
            raise PermanentError("refused: " + " ".join(problems[0]))
    raise PermanentError(f"submitted as {source}, and nobody took it within {STORED_S:.0f} s: is function submit up?")


def _stage(document: dict[str, Any], package_path: Path | None, packages: Text, staging_bucket: Text) -> None:
    from shared.wiring.objects import objects

    training = document.get("training_input", document.get("trainingInput"))
    if training is None:
        raise PermanentError(
            "--package-path and --packages are of AI Platform's format, the job file is of Vertex AI's"
        )
    asked = [each for each in (packages or "").split(",") if each]
    folder = package_staging.folder_for(document["jobId"], staging_bucket, training.get("jobDir"), settings().bucket)
    training["packageUris"] = package_staging.stage(asked, package_path, folder, objects())


def _at_now(job_id: object) -> object:
    """A `{time:FORMAT}` in it is this moment. What is no text is for the check to refuse."""
    return at_time(job_id, datetime.now(UTC)) if isinstance(job_id, str) else job_id


def _id_of(job: str) -> str:
    return job_id_from(job, datetime.now(UTC).strftime("%Y%m%d_%H%M%S"))


def _show(job: Job, form: Format) -> None:
    if form is Format.JSON:
        print_json(job_view(job, project=settings().project))
        return
    view = job_view(job, project=settings().project)
    for name in ("jobId", "state", "startTime", "endTime", "errorMessage"):
        if name in view:
            say(f"{name}: {view[name]}")
