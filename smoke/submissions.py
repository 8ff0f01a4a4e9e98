"""The jobs that the steps submit, and the waits for them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Final

import yaml

from smoke.world import StepError, World
from trainmaster.client import package_staging
from trainmaster.core.model.job import JobState

ROOT: Final = Path(__file__).parents[1]
PROBE: Final = Path(__file__).parent / "program" / "probe"
DIGITS: Final = ROOT / "examples" / "digits"
MACHINE: Final = "n1-standard-2"
RUNTIME: Final = "scikit-learn-1.9"
"""A runtime whose framework is quickly installed: the probe uses none."""
STORED_MAX_S: Final = 180.0
"""Longest time from the upload of a job file until the job is stored."""
RUNNING_MAX_S: Final = 1_200.0
"""Longest time from there until the job is RUNNING."""
JOB_MAX_S: Final = 1_800.0
"""Longest time until the job has ended."""
GONE_MAX_S: Final = 420.0
"""Longest time from its end until its VMs are deleted."""
NEWEST_JOBS: Final = 20
"""How many of the newest jobs are searched for that of an uploaded file."""
PROBLEMS_BYTES_MAX: Final = 1 << 16
"""How much is read of the file that says why a job file was refused."""


def _stage_probe(world: World) -> list[str]:
    """Upload the package of the probe, and return the `packageUris` of a job that runs it."""
    return package_staging.stage(
        packages=[],
        package_path=PROBE,
        folder=f"gs://{world.bucket}/packages/smoke",
        objects=world.objects,
    )


def digits_job(world: World) -> dict[str, Any]:
    """Return the example's job file for this installation, on VMs that are not preempted."""
    document: dict[str, Any] = yaml.safe_load((DIGITS / "job.yaml").read_text(encoding="utf-8"))
    document.pop("trainmaster", None)
    spec = document["trainingInput"]
    spec["packageUris"] = package_staging.stage(
        packages=[],
        package_path=DIGITS / "trainer",
        folder=f"gs://{world.bucket}/packages/digits",
        objects=world.objects,
    )
    spec["jobDir"] = f"gs://{world.bucket}/smoke/digits"
    spec["region"] = world.region
    return document


def probe_job(world: World, mark: str) -> dict[str, Any]:
    """Return a job of three VMs that runs until the object `finish` is written to its probe
    folder.
    """
    spec = {
        "scaleTier": "CUSTOM",
        "masterType": MACHINE,
        "workerType": MACHINE,
        "workerCount": 2,
        "packageUris": _stage_probe(world),
        "pythonModule": "probe.task",
        "args": ["--mark", mark],
        "jobDir": probe_folder(world, mark),
        "region": world.region,
        "runtimeVersion": RUNTIME,
    }
    return {"trainingInput": spec}


def gang_job(world: World, mark: str) -> dict[str, Any]:
    """Return a synchronous job of two Spot VMs that runs until the object `finish` is written to
    its probe folder.

    It is asked to save by SIGUSR1, because SIGTERM also ends programs that should not save.
    """
    spec = {
        "scaleTier": "CUSTOM",
        "masterType": MACHINE,
        "workerType": MACHINE,
        "workerCount": 1,
        "packageUris": _stage_probe(world),
        "pythonModule": "probe.gang",
        "jobDir": probe_folder(world, mark),
        "region": world.region,
        "runtimeVersion": RUNTIME,
    }
    return {"trainingInput": spec, "trainmaster": {"spot": "all", "checkpointSignal": "SIGUSR1"}}


def container_job(world: World) -> dict[str, Any]:
    """Return a job of one Spot VM that prints a line in a container."""
    spec = {
        "scaleTier": "CUSTOM",
        "masterType": MACHINE,
        "masterConfig": {
            "imageUri": world.container_image,
            "containerCommand": ["sh", "-c", "echo smoke-fact container ran"],
        },
        "region": world.region,
    }
    return {"trainingInput": spec, "trainmaster": {"spot": "all"}}


def gcs_job(world: World, mark: str) -> dict[str, Any]:
    """Return a job of one VM that writes the mark to a file below /gcs."""
    folder = probe_folder(world, mark).replace("gs://", "/gcs/", 1)
    return {"trainingInput": _saving_spec(world, f"{folder}/saved", mark, world.region)}


def kept_job(world: World, mark: str, keep: str) -> dict[str, Any]:
    """Return a job of one VM that takes kept machines, and keeps its own for so long."""
    spec = _saving_spec(world, "saved/mark", mark, world.region)
    return {"trainingInput": spec, "trainmaster": {"keepMachines": keep}}


def region_job(world: World, mark: str, region: str) -> dict[str, Any]:
    """Return a job of one Spot VM in a region."""
    spec = _saving_spec(world, "saved/mark", mark, region)
    return {"trainingInput": spec, "trainmaster": {"spot": "all"}}


def _saving_spec(world: World, file: str, mark: str, region: str) -> dict[str, Any]:
    """Return the `trainingInput` of a job of one VM that writes the mark to a file and ends."""
    return {
        "scaleTier": "CUSTOM",
        "masterType": MACHINE,
        "packageUris": _stage_probe(world),
        "pythonModule": "probe.save",
        "args": [file, mark],
        "region": region,
        "runtimeVersion": RUNTIME,
    }


def probe_folder(world: World, mark: str) -> str:
    """Return the folder in which the steps and the probe leave objects for each other."""
    return f"gs://{world.bucket}/smoke/{mark}"


def new_mark() -> str:
    """Return a random word that identifies this run."""
    return f"smoke{secrets.token_hex(4)}"


def submit_by_upload(world: World, document: dict[str, Any], name: str) -> str:
    """Upload a job file with gcloud, as a user does, and return the id of its job."""
    path = world.packages / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    uri = f"gs://{world.bucket}/jobs/{name}-{secrets.token_hex(4)}.yaml"
    world.check("gcloud", "storage", "cp", str(path), uri)
    job_ids: list[str] = []

    def is_stored() -> bool:
        job_ids.extend(
            job.job_id
            for job in world.store.recent_jobs(NEWEST_JOBS)
            if job.submission.startswith(f"{uri}#")
        )
        if job_ids:
            return True
        problems = world.objects.read(f"{uri}.error.json", max_bytes=PROBLEMS_BYTES_MAX)
        if problems:
            raise StepError(f"the job file {uri} was refused: {problems.decode()}")
        return False

    world.until(is_stored, STORED_MAX_S, f"the upload {uri} becomes a job")
    world.jobs[name] = job_ids[0]
    return job_ids[0]


def submit_by_command(world: World, document: dict[str, Any], name: str) -> str:
    """Submit a job file with `trainmaster submit`, which names the user. Return the job's id."""
    job_id = f"{name}_{secrets.token_hex(4)}"
    path = world.packages / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"jobId": job_id, **document}), encoding="utf-8")
    world.check("trainmaster", "submit", str(path))
    world.jobs[name] = job_id
    return job_id


def wait_for_state(world: World, job_id: str, state: JobState, within_s: float) -> None:
    """Wait for the state. Raises StepError if the job ends in another one."""

    def has_state() -> bool:
        job = world.state(job_id).job
        if job.state.is_terminal and job.state is not state:
            raise StepError(
                f"{job_id} is {job.state}: {job.error_message}. See `trainmaster why {job_id}`"
            )
        return job.state is state

    world.until(has_state, within_s, f"{job_id} is {state}")


def wait_for_success(world: World, job_id: str) -> None:
    """Wait until the job has SUCCEEDED and its VMs are deleted."""
    wait_for_state(world, job_id, JobState.SUCCEEDED, JOB_MAX_S)
    wait_until_no_vms(world, job_id)


def wait_until_no_vms(world: World, job_id: str) -> None:
    world.until(
        lambda: not world.fleet.list_vms(job_id), GONE_MAX_S, f"all VMs of {job_id} are deleted"
    )


def job_log(world: World, job_id: str) -> str:
    """Return all lines that the job has in Cloud Logging so far."""
    return world.check("trainmaster", "logs", job_id)
