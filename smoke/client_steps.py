"""Steps that look at the installation as its users do: doctor, logs, gcloud, the Python client, and
listings.
"""

from __future__ import annotations

import json
import logging.handlers
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

from google.auth.exceptions import GoogleAuthError
from google.oauth2.credentials import Credentials
from googleapiclient import discovery
from googleapiclient.errors import Error as ClientError

from smoke.fault_steps import PROBE
from smoke.job_steps import LINES_MAX_S
from smoke.world import Output, SkippedError, StepError, World, last_line
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup
from trainmaster.gcp import clients, retries
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.gcp.tools.inspection import GOOGLE
from trainmaster.ports import CallersProjectError, UnknownTokenError

ALL_ZONES: Final = "--zone=-"
UNUSED_API: Final = "notebooks.googleapis.com"
"""An API that infra/ does not enable."""
UNUSED_PERMISSION: Final = "notebooks.instances.list"
"""A permission of that API. The caller has it: it is part of the role Owner."""


def run_doctor(world: World) -> None:
    """Run `trainmaster doctor`. The step fails with all problems that it finds."""
    done = world.run("trainmaster", "doctor", "--region", world.region, "--format", "json")
    try:
        findings: list[dict[str, str]] = json.loads(done.text)
    except ValueError:
        raise StepError(
            f"doctor ended with status {done.status}: {last_line(done.errors)}"
        ) from None
    schemas = [finding["status"] for finding in findings if finding["what"].startswith("schema of")]
    if schemas and set(schemas) == {"ok"}:
        world.saw("schemas", "accept the events")
    problems = [
        f"{finding['what']} ({finding['fix']})"
        for finding in findings
        if finding["status"] == "FIX"
    ]
    # The repair of a finding about a topic says "the schema of TOPIC rejects the events of agents".
    if any("the schema of" in problem for problem in problems):
        world.saw("schemas", "reject the events")
    if problems:
        raise StepError("; ".join(problems))


def look_up_disabled_api(world: World) -> None:
    """Note whether the project's permissions include one of an API that is not enabled.

    Skipped where it is enabled.
    """
    if world.is_local:
        raise SkippedError("the local IAM has no APIs to enable")
    enabled = world.check(
        "gcloud",
        "services",
        "list",
        "--enabled",
        f"--project={world.project}",
        f"--filter=config.name={UNUSED_API}",
        "--format=value(config.name)",
    )
    if enabled.strip():
        raise SkippedError(f"{UNUSED_API} is enabled in this project")
    try:
        access = ProjectAccess(world.project, GOOGLE.cloudresourcemanager, GOOGLE.iam)
        granted = access.granted_permissions(
            clients.caller_token(world.project), [UNUSED_PERMISSION]
        )
    except (UnknownTokenError, CallersProjectError, GoogleAuthError) as error:
        raise StepError(f"testIamPermissions: {error}") from error
    world.saw("disabled_api", "reported" if granted else "not reported")


def read_log_entries(world: World) -> None:
    """Count the entries of one line in all logs, and note the type of its resource."""
    line = f"smoke-line {world.facts['mark']}"
    condition = f'(jsonPayload.message:"{line}" OR textPayload:"{line}")'
    command = ["gcloud", "logging", "read", condition, f"--project={world.project}"]
    options = ["--freshness=6h", "--limit=20", "--format=json"]
    entries: list[dict[str, Any]] = []

    def is_logged() -> bool:
        text = world.check(*command, *options)
        entries[:] = json.loads(text or "[]")
        return bool(entries)

    world.until(is_logged, LINES_MAX_S, f"the line {line!r} is in a log")
    logs = Counter(entry["logName"].rpartition("/")[2] for entry in entries)
    words = ", ".join(f"{count} in {name}" for name, count in sorted(logs.items()))
    world.saw("log_copies", words)
    own = [entry for entry in entries if entry["logName"].endswith("/trainmaster")]
    world.saw("log_resource", own[0]["resource"]["type"] if own else "none")


def call_gcloud(world: World) -> None:
    """List and describe the jobs with gcloud's commands for AI Platform Training and Vertex AI."""
    job_id = world.jobs[PROBE]
    described = world.run(
        "gcloud", "ai-platform", "jobs", "describe", job_id, f"--project={world.project}"
    )
    if described.status:
        world.saw("gcloud_ml", f"refused: {last_line(described.errors)}")
    else:
        shows_state = "SUCCEEDED" in described.text
        world.saw("gcloud_ml", "works" if shows_state else "does not show the job's state")
    listed = world.check(
        "gcloud",
        "ai",
        "custom-jobs",
        "list",
        f"--region={world.region}",
        f"--project={world.project}",
        "--format=value(name)",
    )
    world.report(f"gcloud ai custom-jobs list: {len(listed.split())} jobs")
    if described.status:
        raise StepError(f"gcloud ai-platform jobs describe {job_id}: {last_line(described.errors)}")


def call_python_client(world: World) -> None:
    """Get a job with Google's discovery client, and with the access token that gcloud sends."""
    try:
        token = clients.caller_token(world.project)
        with discovery.build(
            "ml",
            "v1",
            credentials=Credentials(token=token),
            client_options={"api_endpoint": world.api},
            static_discovery=True,
        ) as service:
            job = (
                service.projects()
                .jobs()
                .get(name=f"projects/{world.project}/jobs/{world.jobs[PROBE]}")
                .execute()
            )
    except (ClientError, GoogleAuthError, OSError) as error:
        raise StepError(f"the Python client cannot get the job: {error}") from error
    if job.get("state") != "SUCCEEDED":
        raise StepError(f"the Python client shows the state {job.get('state')}, not SUCCEEDED")


def list_vms_with_field_mask(world: World) -> None:
    """List VMs as `provision` does, which repeats a list without the mask if Google refuses it."""
    lines = logging.handlers.BufferingHandler(10)
    logger = logging.getLogger(retries.__name__)
    logger.addHandler(lines)
    try:
        world.fleet.list_vms("none", (f"{world.region}-a",))
    finally:
        logger.removeHandler(lines)
    world.saw("field_mask", "refused" if lines.buffer else "accepted")


def ask_for_advice(world: World) -> None:
    """Ask once how likely a Spot VM with a GPU can be created, as `provision` does."""
    gpu = Accelerator("nvidia-tesla-t4", 1)
    group = TaskGroup(
        TaskType.WORKER,
        count=1,
        machine_type="n1-standard-4",
        accelerator=gpu,
        purchase=Purchase(Spot()),
    )
    found = world.advisor.advise([(f"{world.region}-a", group)], datetime.now(UTC))
    world.report(f"chance of a Spot VM with a T4: {found or 'Google gives no advice'}")


def list_tpus(world: World) -> None:
    """List TPU nodes and queued resources of all zones in one call each, as the search for orphans
    does.
    """
    for key, kind in (("tpu_nodes", "tpu-vm"), ("tpu_queue", "queued-resources")):
        done = world.run(
            "gcloud", "compute", "tpus", kind, "list", ALL_ZONES, f"--project={world.project}"
        )
        world.saw(key, _answer(done))


def _answer(done: Output) -> str:
    return f"refuses: {last_line(done.errors)}" if done.status else "answers"


def count_dead_letters(world: World) -> None:
    """Count the messages that no function could handle."""
    letters = json.loads(world.check("trainmaster", "dead-letters", "list", "--format", "json"))
    world.saw("dead_letters", len(letters))
