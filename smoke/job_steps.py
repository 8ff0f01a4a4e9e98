"""Steps of the smoke test that run whole jobs: the example with TensorFlow, and a container.

`World.saw` notes a fact of Google Cloud; the report compares the facts with what the documentation
assumes. `World.until` waits for a condition, and raises StepError when it takes too long. Each step
raises StepError if it fails.
"""

from __future__ import annotations

import re
import shutil
from typing import Final

from smoke.submissions import (
    JOB_MAX_S,
    RUNNING_MAX_S,
    container_job,
    digits_job,
    gcs_job,
    job_log,
    kept_job,
    new_mark,
    probe_folder,
    region_job,
    submit_by_command,
    submit_by_upload,
    wait_for_state,
    wait_for_success,
    wait_until_no_vms,
)
from smoke.world import SkippedError, StepError, World
from trainmaster.core.model.job import JobState

KEPT: Final = "300s"
"""How long the VM of the first job is kept for the second one."""
LINES_MAX_S: Final = 180.0
"""How long Cloud Logging may take to show a line."""
MACHINE_LINE: Final = re.compile(
    r"This VM: (?P<image>.*?), Python (?P<python>\d+\.\d+)[^,]*, (?P<accelerator>[^,]*),"
    r" (?P<engine>.*)\.$"
)
"""Source: `trainmaster.agent.setup.machine_report`."""


def train_digits(world: World) -> None:
    """Train the example on three CPU VMs with the default runtime, and note what its VMs are made
    of.
    """
    job_id = submit_by_upload(world, digits_job(world), "digits")
    wait_for_success(world, job_id)
    world.saw("gang", "created")
    world.saw("database_condition", "reads and writes")
    note_machine(world, job_id)
    wait_until_no_vms(world, job_id)
    world.saw("deletion_by_id", "deleted")


def note_machine(world: World, job_id: str) -> None:
    """Note image, Python and container engine, which the agent's first line names."""
    found: list[re.Match[str]] = []

    def is_logged() -> bool:
        for line in job_log(world, job_id).splitlines():
            match = MACHINE_LINE.search(line.rstrip())
            if match:
                found.append(match)
        return bool(found)

    world.until(is_logged, LINES_MAX_S, f"the agent's first line is in the log of {job_id}")
    world.saw("python", found[0]["python"])
    world.saw("image", found[0]["image"])
    world.saw("engine", found[0]["engine"])


def run_container(world: World) -> None:
    """Run a container on one Spot VM."""
    if world.is_local and not _has_engine(world):
        raise SkippedError("this machine has no container engine, which local VMs would use")
    job_id = submit_by_upload(world, container_job(world), "container")
    wait_for_success(world, job_id)
    world.until(
        lambda: "smoke-fact container ran" in job_log(world, job_id),
        LINES_MAX_S,
        "the container's line",
    )
    world.saw("container", "ran")
    world.saw("spot", "created")


def save_below_gcs(world: World) -> None:
    """Save a file below /gcs, and look for it in its bucket."""
    mark = new_mark()
    try:
        job_id = submit_by_upload(world, gcs_job(world, mark), "gcs")
    except StepError as error:
        if "no gcsfuse" in str(error):
            raise SkippedError("this installation has no gcsfuse (docs/smoke.md)") from error
        raise
    wait_for_success(world, job_id)
    saved = world.objects.read(f"{probe_folder(world, mark)}/saved", max_bytes=100)
    world.saw("gcs", "saved" if saved == mark.encode() else "lost")


def take_kept_machine(world: World) -> None:
    """Run a job that keeps its VM, and another one that takes it."""
    mark = new_mark()
    first = submit_by_command(world, kept_job(world, mark, KEPT), "keeping")
    wait_for_state(world, first, JobState.SUCCEEDED, JOB_MAX_S)
    second = submit_by_command(world, kept_job(world, mark, "0s"), "taking")
    wait_for_state(world, second, JobState.SUCCEEDED, JOB_MAX_S)
    has_taken = f"takes 1 kept machine of {first}" in world.check("trainmaster", "why", second)
    world.saw("kept_machines", "taken" if has_taken else "created")
    wait_until_no_vms(world, first)  # its id is in their labels
    wait_until_no_vms(world, second)


def run_in_second_region(world: World) -> None:
    """Run a job in another region than that of its data, and note where its VM is."""
    region = world.second_region
    if not region:
        raise SkippedError(f"no other region near {world.region} is known (smoke/terraform.py)")
    job_id = submit_by_upload(world, region_job(world, new_mark(), region), "region")
    zones: set[str] = set()

    def has_vm() -> bool:
        zones.update(vm.zone for vm in world.fleet.list_vms(job_id))
        return bool(zones)

    world.until(has_vm, RUNNING_MAX_S, f"{job_id} has a VM")
    wait_for_success(world, job_id)
    is_there = all(zone.startswith(f"{region}-") for zone in zones)
    world.saw("second_region", "ran" if is_there else f"ran in {', '.join(sorted(zones))}")


def _has_engine(world: World) -> bool:
    engine = next(filter(shutil.which, ("docker", "podman")), None)  # the one that the agent takes
    return engine is not None and not world.run(engine, "info").status


def note_facts(world: World, job_id: str, keys: tuple[str, ...]) -> None:
    """Note the facts that the probe prints as `smoke-fact KEY VALUE`.

    Raises StepError if one is missing.
    """

    def are_logged() -> bool:
        for key, value in re.findall(r"smoke-fact (\w+) (\S+)", job_log(world, job_id)):
            world.saw(key, value)
        return all(key in world.facts for key in keys)

    try:
        world.until(are_logged, LINES_MAX_S, "all facts are logged")
    except StepError as error:
        missing = ", ".join(key for key in keys if key not in world.facts)
        raise StepError(f"the log of {job_id} lacks the facts {missing}: {error}") from None
