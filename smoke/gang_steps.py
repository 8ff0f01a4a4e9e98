"""Steps with a synchronous job of two Spot VMs: its members save together, its signs of life
arrive, and a VM that hangs is replaced.

The members run in rounds: all start together, and when one ends, the next round is held until all
are ready again. `World.saw` notes a fact of Google Cloud, which the report compares with what the
documentation assumes.
"""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime
from typing import Final

from smoke.job_steps import LINES_MAX_S
from smoke.submissions import (
    RUNNING_MAX_S,
    gang_job,
    job_log,
    new_mark,
    probe_folder,
    submit_by_upload,
    wait_for_state,
    wait_for_success,
)
from smoke.world import POLL_S, LateError, StepError, World, last_line
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.flows.provisioning.alive_series import last_points

GANG: Final = "gang"
"""Name of the job in `World.jobs`."""
DISTURBED: Final = ReplicaId(TaskType.WORKER, 0)
"""The member whose VM is preempted, and hangs later."""
PREEMPTION_MAX_S: Final = 600.0
"""How long gcloud may wait for the end of the VM."""
TOGETHER_S: Final = 1.0
"""How far apart members are asked at most, if their agents reach each other.

A directive, which orders the same otherwise, takes seconds.
"""
ROUND_MAX_S: Final = 900.0
"""How long a round may be held: a VM is deleted, and another one prepares."""
POINTS_MAX_S: Final = 300.0
"""How long Cloud Monitoring may take to show the first points."""
WATCHED_S: Final = 90.0
"""How long the series are watched: three intervals of their points."""
HUNG_MAX_S: Final = 600.0
"""How long it may take until a hung VM is replaced."""
SAVED_LINE: Final = re.compile(r"smoke-saved (?P<member>\S+) \d+ (?P<asked_at>[\d.]+)")
"""Source: smoke/program/probe/gang.py."""


def start_gang(world: World) -> None:
    """Start the job that the next steps disturb."""
    mark = new_mark()
    world.saw("gang_mark", mark)
    job_id = submit_by_upload(world, gang_job(world, mark), GANG)
    wait_for_state(world, job_id, JobState.RUNNING, RUNNING_MAX_S)


def preempt_member(world: World) -> None:
    """Have a Spot VM preempted, which Compute Engine does for simulated maintenance: both members
    should be asked to save, at one moment.
    """
    job_id = world.jobs[GANG]
    earlier_round = world.state(job_id).job.round.number
    vm = world.vm(job_id, DISTURBED)
    command = ["gcloud", "compute", "instances", "simulate-maintenance-event", vm.name]
    options = [f"--zone={vm.zone}", f"--project={world.project}"]
    # gcloud waits for the VM to end, and may fail because it is gone. The members' lines decide.
    simulated = world.run(*command, *options, timeout_s=PREEMPTION_MAX_S)
    members = len(world.state(job_id).replicas)
    asked_at: dict[str, float] = {}

    def have_all_saved() -> bool:
        asked_at.update(_saves(job_log(world, job_id)))
        return len(asked_at) == members

    try:
        world.until(have_all_saved, LINES_MAX_S, "all members have saved")
    except LateError as error:
        if not asked_at:
            reason = last_line(simulated.errors) if simulated.status else str(error)
            raise StepError(f"no member of {job_id} was asked to save: {reason}") from error
        world.saw("gang_save", f"only {', '.join(sorted(asked_at))} saved")
    else:
        world.saw("gang_save", "saved")
        apart_s = max(asked_at.values()) - min(asked_at.values())
        world.saw("peer_channel", "reached" if apart_s <= TOGETHER_S else f"{apart_s:.1f} s apart")
    _wait_for_round_after(world, job_id, earlier_round)


def _saves(log: str) -> dict[str, float]:
    """Return when each member was last asked to save, in seconds since 1970."""
    return {match["member"]: float(match["asked_at"]) for match in SAVED_LINE.finditer(log)}


def _wait_for_round_after(world: World, job_id: str, number: int) -> None:
    """Wait until all members run in a later round."""

    def has_begun() -> bool:
        state = world.state(job_id)
        is_later = state.job.round.number > number and not state.job.round.is_held
        return is_later and all(item.state is ReplicaState.RUNNING for item in state.replicas)

    world.until(has_begun, ROUND_MAX_S, f"a round of {job_id} after round {number} runs")


def watch_alive_series(world: World) -> None:
    """Note how old the newest point of a running VM becomes before the next one can be read."""
    job_id = world.jobs[GANG]
    members = len(world.state(job_id).replicas)
    seen_s: list[float] = []

    def note_ages() -> bool:
        """Note how old the newest point of each VM is. Return whether all have one."""
        now = datetime.now(UTC)
        points = last_points(world.state(job_id), world.metrics, now)
        seen_s.extend((now - at).total_seconds() for at in points.values())
        return len(points) == members

    world.until(note_ages, POINTS_MAX_S, "each VM has a point of agent/alive")
    end = time.monotonic() + WATCHED_S
    while time.monotonic() < end:
        time.sleep(POLL_S)
        note_ages()
    world.saw("alive_series", math.ceil(max(seen_s)))


def hang_vm(world: World) -> None:
    """Have a program stop its agent, as on a VM that hangs: the VM should be replaced."""
    job_id = world.jobs[GANG]
    earlier_round = world.state(job_id).job.round.number
    generation = world.replica(job_id, DISTURBED).vm_generation
    hung = world.vm(job_id, DISTURBED)
    folder = probe_folder(world, world.facts["gang_mark"])
    world.objects.write(f"{folder}/hang-{hung.instance_id}", b"", content_type="text/plain")
    start = time.monotonic()
    world.until(
        lambda: world.replica(job_id, DISTURBED).vm_generation > generation,
        HUNG_MAX_S,
        f"the hung VM {hung.name} is replaced",
    )
    world.saw("hung_vm", round(time.monotonic() - start))
    _wait_for_round_after(world, job_id, earlier_round)


def finish_gang(world: World) -> None:
    """Tell the programs to end. The job should succeed, and its VMs should be deleted."""
    folder = probe_folder(world, world.facts["gang_mark"])
    world.objects.write(f"{folder}/finish", b"", content_type="text/plain")
    wait_for_success(world, world.jobs[GANG])
