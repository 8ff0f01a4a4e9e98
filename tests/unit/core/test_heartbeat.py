"""Silent agents: which heartbeats are read, and what they mean.

The agent of a VM writes its heartbeat, a time, into a guest attribute, and each minute a point of a
series to Cloud Monitoring. Points of all VMs are read at once, heartbeats of one VM at a time, only
if its series has ended. `watched` are the replicas that may be lost, with their VMs.

A round is one common start of all members of a job. An incarnation is one execution of a replica's
program.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.support import alone
from tests.support.decisions import action_of
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    a_state,
    an_incarnation,
    at,
)
from trainmaster.core.actions import ReplaceVm
from trainmaster.core.decisions import Reason, Rule
from trainmaster.core.events import VmLost
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round
from trainmaster.core.model.vm import LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile import heartbeat
from trainmaster.core.reconcile.heartbeat import Points, Watched, watched
from trainmaster.core.reconcile.steps import ReportLoss
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import (
    AGENT_TIMEOUT,
    ALL_AGENTS_TIMEOUT,
    BOOT_MAX,
    HEARTBEATS_READ_MAX,
    HELD_AGENT_TIMEOUT,
    OLD_HEARTBEAT,
    OLD_POINT,
    SILENT_JOBS_MAX,
)

READY = at(10)
SECOND = timedelta(seconds=1)
NOW = READY + AGENT_TIMEOUT


def vms_of(state: State) -> tuple[Vm, ...]:
    """Return a running VM for each replica."""
    return tuple(
        Vm(
            name=vm_name(state.job.job_id, replica.replica_id),
            zone=state.job.zone,
            instance_id=replica.instance_id or "",
            status=VmStatus.RUNNING,
            replica_id=replica.replica_id,
            vm_generation=replica.vm_generation,
            directive=None,
            fingerprint="1",
            started_at=at(0),
        )
        for replica in state.replicas
    )


def with_ids(state: State) -> State:
    replicas = tuple(
        replace(replica, instance_id=str(1000 + i)) for i, replica in enumerate(state.replicas)
    )
    return State(state.job, replicas)


RUNNING = with_ids(a_state())


def heartbeats_to_read(
    state: State, vms: tuple[Vm, ...], now: datetime, points: Points | None = None
) -> Watched:
    return heartbeat.heartbeats_to_read(state.job, watched(state, vms, now), points or {}, now)


def find_silent_agents(
    state: State,
    read: Watched,
    heartbeats: dict[str, datetime],
    now: datetime,
    points: Points | None = None,
) -> tuple[ReportLoss, ...]:
    replicas = watched(state, vms_of(state), now)
    return heartbeat.find_silent_agents(state.job, replicas, read, points or {}, heartbeats, now)


def test_heartbeats_are_read_after_the_timeout_and_not_before() -> None:
    vms = vms_of(RUNNING)
    assert len(heartbeats_to_read(RUNNING, vms, NOW)) == len(vms)
    assert heartbeats_to_read(RUNNING, vms, NOW - SECOND) == ()


def test_boot_of_the_vm_restarts_the_time() -> None:
    """The heartbeat of an earlier boot stays readable."""
    first, *others = vms_of(RUNNING)
    rebooted = replace(first, started_at=READY + SECOND)
    assert [vm.name for _, vm in heartbeats_to_read(RUNNING, (rebooted, *others), NOW)] == [
        vm.name for vm in others
    ]
    assert len(heartbeats_to_read(RUNNING, (rebooted, *others), NOW + SECOND)) == len(others) + 1


@pytest.mark.parametrize(
    "changes",
    [{"status": VmStatus.STOPPING}, {"status": VmStatus.CREATING}, {"instance_id": "another"}],
    ids=["stopping", "creating", "another VM of that name"],
)
def test_heartbeat_of_a_vm_that_is_not_the_running_one_is_not_read(
    changes: dict[str, object],
) -> None:
    first, *others = vms_of(RUNNING)
    changed = replace(first, **changes)  # type: ignore[arg-type]
    assert len(heartbeats_to_read(RUNNING, (changed, *others), NOW)) == len(others)


@pytest.mark.parametrize("state", ReplicaState)
def test_heartbeat_of_a_replica_is_read_if_its_vm_is_known_and_it_has_not_completed(
    state: ReplicaState,
) -> None:
    """A VM may hang while its replica waits in it for the next attempt."""
    changed = with_ids(a_state(a_replica(WORKER_0, state)))
    unread = state is ReplicaState.COMPLETED
    assert len(heartbeats_to_read(changed, vms_of(changed), NOW)) == len(changed.replicas) - unread
    unknown = tuple(
        replace(replica, instance_id=None) if replica.replica_id == WORKER_0 else replica
        for replica in changed.replicas
    )
    assert (
        len(heartbeats_to_read(State(changed.job, unknown), vms_of(changed), NOW))
        == len(changed.replicas) - 1
    )


@pytest.mark.parametrize(
    ("state", "is_read"), [(JobState.PREPARING, True), (JobState.SUCCEEDED, False)]
)
def test_heartbeats_are_read_until_the_job_ends(state: JobState, *, is_read: bool) -> None:
    changed = State(replace(RUNNING.job, state=state), RUNNING.replicas)
    assert bool(heartbeats_to_read(changed, vms_of(changed), NOW)) is is_read


def test_node_that_hangs_while_its_slice_waits_for_the_next_attempt_is_looked_at() -> None:
    waiting = with_ids(a_state(a_replica(WORKER_0, ReplicaState.WAITING)))
    nodes = tuple(replace(vm, is_tpu=True, instance_id="node") for vm in vms_of(waiting))
    read = [
        heartbeats_to_read(waiting, nodes, NOW + minute * timedelta(minutes=1))
        for minute in range(10)
    ]
    assert max(map(len, read)) == len(waiting.replicas)


def test_heartbeats_of_tpu_nodes_are_read_every_ten_minutes() -> None:
    """Jobs with TPU nodes are reconciled every minute. Hosts may not know the id of their node."""
    vms = tuple(replace(vm, is_tpu=True, instance_id="node") for vm in vms_of(RUNNING))
    read = [
        len(heartbeats_to_read(RUNNING, vms, NOW + minute * timedelta(minutes=1)))
        for minute in range(20)
    ]
    assert sorted(read) == [0] * 18 + [len(vms)] * 2


HELD_AT = NOW + timedelta(hours=1)


def a_held_state(*ready: ReplicaId) -> State:
    """Return the state whose second round is held since `HELD_AT`."""
    job = replace(RUNNING.job, round=Round(2, is_held=True, ordered_at=HELD_AT))
    replicas = (
        (
            replace(replica, incarnation=2, ready_at=HELD_AT)
            if replica.replica_id in ready
            else replica
        )
        for replica in RUNNING.replicas
    )
    return State(job, tuple(replicas))


def silent_after(state: State, held_for: timedelta, last: datetime = HELD_AT) -> list[ReplicaId]:
    """Return the replicas that are lost if no agent has written a heartbeat since `last`."""
    now = HELD_AT + held_for
    read = heartbeats_to_read(state, vms_of(state), now)
    heartbeats = {vm.instance_id: last for _, vm in read}
    return [loss.replica.replica_id for loss in find_silent_agents(state, read, heartbeats, now)]


def test_held_round_waits_five_minutes_for_a_silent_agent_and_no_longer() -> None:
    state = a_held_state(CHIEF, WORKER_1)
    assert silent_after(state, HELD_AGENT_TIMEOUT - SECOND) == []
    assert silent_after(state, HELD_AGENT_TIMEOUT) == [WORKER_0]
    assert silent_after(state, HELD_AGENT_TIMEOUT, HELD_AT + SECOND) == [], "its set-up takes long"


def test_all_agents_that_a_held_round_waits_for_are_lost() -> None:
    """Neither reports nor heartbeats arrive: two signs that the VMs hang."""
    assert silent_after(a_held_state(CHIEF), HELD_AGENT_TIMEOUT) == [WORKER_0, WORKER_1]


def test_held_round_restarts_the_time_of_an_agent_that_was_silent_before() -> None:
    assert silent_after(a_held_state(CHIEF, WORKER_1), timedelta(0), NOW) == []


def lost_with(
    points: dict[ReplicaId, timedelta],
    heartbeats: dict[ReplicaId, timedelta],
    vms: tuple[Vm, ...] = vms_of(RUNNING),
) -> list[ReplicaId]:
    """Return the replicas that are lost if the last signs are so old."""
    seen = {replica_id: NOW - age for replica_id, age in points.items()}
    replicas = watched(RUNNING, vms, NOW)
    read = heartbeat.heartbeats_to_read(RUNNING.job, replicas, seen, NOW)
    ages = [(vm.instance_id, heartbeats.get(replica.replica_id)) for replica, vm in read]
    known = {instance_id: NOW - age for instance_id, age in ages if age is not None}
    losses = heartbeat.find_silent_agents(RUNNING.job, replicas, read, seen, known, NOW)
    return [loss.replica.replica_id for loss in losses]


FRESH = {CHIEF: SECOND, WORKER_1: SECOND}
"""Age of the last points of all VMs but that of worker 0."""


def lost_without_heartbeats(
    points: dict[ReplicaId, timedelta], *, others_write: bool, unread: bool = False
) -> list[ReplicaId]:
    """Return the replicas that are lost if the last points are so old and heartbeats are unknown,
    or not read now.
    """
    seen = {replica_id: NOW - age for replica_id, age in points.items()}
    replicas = watched(RUNNING, vms_of(RUNNING), NOW)
    read = heartbeat.heartbeats_to_read(RUNNING.job, replicas, seen, NOW)
    known: dict[str, datetime | None] = {} if unread else {vm.instance_id: None for _, vm in read}
    losses = heartbeat.find_silent_agents(
        RUNNING.job, replicas, read, seen, known, NOW, others_write=others_write
    )
    assert heartbeat.is_undecided(read, seen, known, NOW) or not losses
    return [loss.replica.replica_id for loss in losses]


def test_ended_series_decides_alone_after_the_timeout_where_heartbeats_are_forbidden() -> None:
    ended = {**FRESH, WORKER_0: AGENT_TIMEOUT}
    assert lost_without_heartbeats(ended, others_write=True) == [WORKER_0]
    assert lost_without_heartbeats(ended, others_write=False) == [], "Monitoring may be down"
    early = {**FRESH, WORKER_0: AGENT_TIMEOUT - SECOND}
    assert lost_without_heartbeats(early, others_write=True) == []


def test_heartbeat_that_is_not_read_now_is_no_evidence() -> None:
    ended = {**FRESH, WORKER_0: AGENT_TIMEOUT}
    assert lost_without_heartbeats(ended, others_write=True, unread=True) == []


@pytest.mark.parametrize(
    ("point", "beat", "is_lost"),
    [
        pytest.param(OLD_POINT, OLD_HEARTBEAT, True, id="both old"),
        pytest.param(OLD_POINT - SECOND, timedelta(hours=1), False, id="fresh series"),
        pytest.param(OLD_POINT, OLD_HEARTBEAT - SECOND, False, id="fresh heartbeat"),
        pytest.param(timedelta(minutes=19), None, False, id="unknown heartbeat"),
        pytest.param(None, OLD_HEARTBEAT, False, id="no series"),
        pytest.param(None, AGENT_TIMEOUT, True, id="no series for long"),
    ],
)
def test_vm_is_lost_when_neither_of_its_sources_speaks(
    point: timedelta | None, beat: timedelta | None, *, is_lost: bool
) -> None:
    points = FRESH if point is None else {**FRESH, WORKER_0: point}
    heartbeats = {} if beat is None else {WORKER_0: beat}
    assert lost_with(points, heartbeats) == ([WORKER_0] if is_lost else [])


def test_vm_that_compute_engine_has_started_again_has_five_minutes_to_boot() -> None:
    points, beats = {**FRESH, WORKER_0: timedelta(minutes=6)}, {WORKER_0: timedelta(minutes=6)}
    for age, lost in ((BOOT_MAX - SECOND, []), (BOOT_MAX, [WORKER_0])):
        vms = tuple(
            replace(vm, started_at=NOW - age) if vm.replica_id == WORKER_0 else vm
            for vm in vms_of(RUNNING)
        )
        assert lost_with(points, beats, vms) == lost
        written = {WORKER_0: timedelta(minutes=2)}
        assert lost_with({**FRESH, **written}, written, vms) == [WORKER_0], (
            "it has written since its start"
        )


def test_whole_gang_whose_signs_all_ended_is_lost_after_fifteen_minutes() -> None:
    for age, lost in ((AGENT_TIMEOUT - SECOND, []), (AGENT_TIMEOUT, [CHIEF, WORKER_0, WORKER_1])):
        ages = dict.fromkeys((CHIEF, WORKER_0, WORKER_1), age)
        assert lost_with(ages, ages) == lost


def test_heartbeats_of_vms_with_a_fresh_series_are_not_read() -> None:
    points = dict.fromkeys((CHIEF, WORKER_1), NOW) | {WORKER_0: NOW - OLD_POINT}
    ((replica, _),) = heartbeats_to_read(RUNNING, vms_of(RUNNING), NOW, points)
    assert replica.replica_id == WORKER_0


def test_large_gang_is_read_in_parts_that_cover_it() -> None:
    large = with_ids(a_state(job=a_job(plan=a_plan(workers=HEARTBEATS_READ_MAX))))
    parts = [
        heartbeats_to_read(large, vms_of(large), NOW + timedelta(minutes=10 * number))
        for number in range(2)
    ]
    assert max(len(part) for part in parts) <= HEARTBEATS_READ_MAX
    assert {vm.name for part in parts for _, vm in part} == {vm.name for vm in vms_of(large)}


def test_silent_jobs_of_one_minute_share_one_limit_of_reads() -> None:
    """Cloud Monitoring may be late for all jobs at once."""
    missing = {f"job_{number}": 100 for number in range(60)} | {"large": 1000}
    minutes = [
        heartbeat.jobs_to_read(missing, NOW + minute * timedelta(minutes=1)) for minute in range(13)
    ]
    assert max(sum(missing[job] for job in part if job != "large") for part in minutes) == 500
    assert {job for part in minutes for job in part} == missing.keys()
    assert ("large",) in minutes
    small = heartbeat.jobs_to_read(dict.fromkeys(map(str, range(50)), 1), NOW)
    assert len(small) <= SILENT_JOBS_MAX
    assert heartbeat.jobs_to_read({}, NOW) == ()


def test_agent_is_silent_from_the_timeout_on() -> None:
    read = heartbeats_to_read(RUNNING, vms_of(RUNNING), NOW)
    silent_id, *other_ids = [vm.instance_id for _, vm in read]
    heartbeats = dict.fromkeys(other_ids, NOW)
    assert find_silent_agents(RUNNING, read, {**heartbeats, silent_id: READY + SECOND}, NOW) == ()
    (loss,) = find_silent_agents(RUNNING, read, {**heartbeats, silent_id: READY}, NOW)
    assert (loss.cause, loss.vm, loss.at) == (LossCause.AGENT_SILENT, read[0][1], READY)


def test_loss_is_never_dated_before_the_replica_was_ready() -> None:
    """A heartbeat is what a program on the VM may have written, and the loss explains exits of
    peers.
    """
    read = heartbeats_to_read(RUNNING, vms_of(RUNNING), NOW)[:1]
    (loss,) = find_silent_agents(
        RUNNING, read, {read[0][1].instance_id: READY - timedelta(days=9)}, NOW
    )
    assert loss.at == READY


def test_unknown_heartbeat_is_not_a_loss() -> None:
    read = heartbeats_to_read(RUNNING, vms_of(RUNNING), NOW)
    assert find_silent_agents(RUNNING, read, heartbeats={}, now=NOW) == ()


def test_single_silent_vm_is_lost_and_a_whole_silent_gang_only_after_an_hour() -> None:
    """All agents of a gang are silent if guest attributes fail, rather than because all
    VMs hang.
    """
    read = heartbeats_to_read(RUNNING, vms_of(RUNNING), NOW)
    heartbeats = {vm.instance_id: READY for _, vm in read}
    assert find_silent_agents(RUNNING, read, heartbeats, NOW) == ()
    assert len(find_silent_agents(RUNNING, read[:1], heartbeats, NOW)) == 1
    assert find_silent_agents(RUNNING, read, heartbeats, READY + ALL_AGENTS_TIMEOUT - SECOND) == ()
    assert len(find_silent_agents(RUNNING, read, heartbeats, READY + ALL_AGENTS_TIMEOUT)) == len(
        read
    )


def a_silence(incarnation: int = 1) -> VmLost:
    return VmLost(an_incarnation(WORKER_0, incarnation), NOW, LossCause.AGENT_SILENT)


def test_replica_with_a_silent_agent_gets_another_vm_free_of_charge() -> None:
    decision = judge(alone.a_state(), a_silence(), NOW)
    assert (decision.rule, decision.reason) == (Rule.VM_LOST, Reason.AGENT_SILENT)
    action = action_of(decision, ReplaceVm)
    assert not action.is_vm_taken, "nothing took a Spot VM away"


def test_silence_of_an_ended_incarnation_is_ignored() -> None:
    restarting = alone.a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2))
    assert judge(restarting, a_silence(), NOW).rule is Rule.STALE


def test_silence_does_not_use_up_the_key_of_the_loss_of_the_vm() -> None:
    gone = replace(a_silence(), cause=LossCause.GONE)
    assert a_silence().key != gone.key
    assert a_silence(2).key != a_silence(1).key
    assert judge(a_state(a_replica(CHIEF)), gone, NOW).rule is Rule.VM_LOST
