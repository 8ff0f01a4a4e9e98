"""Steps that disturb a running job of three VMs: a killed program, host maintenance, and a VM
deleted by hand.
"""

from __future__ import annotations

import time
from typing import Final

from smoke.job_steps import note_facts
from smoke.submissions import (
    RUNNING_MAX_S,
    job_log,
    new_mark,
    probe_folder,
    probe_job,
    submit_by_upload,
    wait_for_state,
    wait_for_success,
)
from smoke.world import StepError, World
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType

PROBE: Final = "probe"
KILLED: Final = ReplicaId(TaskType.WORKER, 0)
DELETED: Final = ReplicaId(TaskType.WORKER, 1)
RESTART_MAX_S: Final = 300.0
MAINTENANCE_MAX_S: Final = 600.0
REPLACED_MAX_S: Final = 900.0
HEARTBEAT_MAX_S: Final = 180.0


def start_probe(world: World) -> None:
    """Start the job that the next steps disturb, and note which VM generations it runs on.

    They may be later than the first generation: VMs that could not be created, or were lost, have
    been replaced.
    """
    mark = new_mark()
    world.saw("mark", mark)
    job_id = submit_by_upload(world, probe_job(world, mark), PROBE)
    wait_for_state(world, job_id, JobState.RUNNING, RUNNING_MAX_S)
    for replica_id in (KILLED, DELETED):
        world.vm_generations[replica_id] = world.replica(job_id, replica_id).vm_generation


def await_restart_after_kill(world: World) -> None:
    """Wait until worker 0, which kills itself once, runs again in the same VM."""
    job_id = world.jobs[PROBE]

    def is_restarted() -> bool:
        replica = world.replica(job_id, KILLED)
        is_held = world.state(job_id).job.round.is_held
        return replica.incarnation > 1 and replica.state is ReplicaState.RUNNING and not is_held

    world.until(is_restarted, RESTART_MAX_S, f"{KILLED.words} runs again after SIGKILL")
    replica = world.replica(job_id, KILLED)
    expected = world.vm_generations[KILLED]
    if replica.vm_generation != expected or replica.restarts_used != 1:
        raise StepError(
            f"{KILLED.words} has VM generation {replica.vm_generation} instead of {expected} "
            f"and used {replica.restarts_used} restarts instead of 1"
        )


def simulate_maintenance(world: World) -> None:
    """Simulate host maintenance for the primary's VM: it should migrate, and its program should not
    notice.
    """
    job_id = world.jobs[PROBE]
    primary = world.state(job_id).job.plan.primary
    vm = world.vm(job_id, primary)
    incarnation = world.replica(job_id, primary).incarnation
    command = ["gcloud", "compute", "instances", "simulate-maintenance-event", vm.name]
    options = [f"--zone={vm.zone}", f"--project={world.project}"]
    world.check(*command, *options, timeout_s=MAINTENANCE_MAX_S)
    note_facts(world, job_id, ("maintenance_event",))
    has_same_vm = world.vm(job_id, primary).instance_id == vm.instance_id
    has_same_program = world.replica(job_id, primary).incarnation == incarnation
    world.saw("maintenance", "migrated" if has_same_vm and has_same_program else "lost the VM")
    world.until(
        lambda: _has_heartbeat(world, job_id, primary),
        HEARTBEAT_MAX_S,
        f"a heartbeat of {vm.name}",
    )
    world.saw("heartbeat", "readable")


def _has_heartbeat(world: World, job_id: str, replica_id: ReplicaId) -> bool:
    return world.fleet.last_heartbeat(world.vm(job_id, replica_id)) is not None


def delete_vm_by_hand(world: World) -> None:
    """Delete a worker's VM as a user may do: the worker should run again on another VM of the same
    name.
    """
    job_id = world.jobs[PROBE]
    vm = world.vm(job_id, DELETED)
    command = ["gcloud", "compute", "instances", "delete", vm.name]
    options = [f"--zone={vm.zone}", f"--project={world.project}", "--quiet"]
    world.check(*command, *options, timeout_s=MAINTENANCE_MAX_S)
    start = time.monotonic()

    def is_replaced() -> bool:
        return world.replica(job_id, DELETED).vm_generation > world.vm_generations[DELETED]

    def runs_again() -> bool:
        return is_replaced() and world.replica(job_id, DELETED).state is ReplicaState.RUNNING

    world.until(is_replaced, REPLACED_MAX_S, f"the deletion of {vm.name} is found")
    world.saw("deletion_found_s", round(time.monotonic() - start))
    world.until(runs_again, REPLACED_MAX_S, f"{DELETED.words} runs on another VM")
    if world.vm(job_id, DELETED).name != vm.name:
        raise StepError(f"the new VM of {DELETED.words} has another name than {vm.name}")


def finish_probe(world: World) -> None:
    """Tell the programs to end. The job should succeed, and its VMs should be deleted."""
    job_id = world.jobs[PROBE]
    folder = probe_folder(world, world.facts["mark"])
    world.objects.write(f"{folder}/finish", b"", content_type="text/plain")
    wait_for_success(world, job_id)
    note_facts(world, job_id, ("missing_object", "missing_job_file"))
    if "finished" not in job_log(world, job_id):
        raise StepError(f"the log of {job_id} lacks the last line of its program")
