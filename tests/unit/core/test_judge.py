"""The rule table as a table: what is stored, what happened, what it means. Ids are phrases."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from shared.core.decisions import (
    Budget,
    CancelJob,
    ContinueProvisioning,
    FailJob,
    Ignore,
    Reason,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    Rule,
)
from shared.core.events import (
    AllReady,
    CancelRequested,
    CapacityErrorKind,
    Deadline,
    DeadlinePassed,
    DeleteRequested,
    Event,
    ExitCause,
    JobSubmitted,
    LabelsChanged,
    ProgramError,
    ProvisioningStarted,
    VmsNotCreated,
    VmsQueued,
)
from shared.core.evolve import evolve
from shared.core.model.exit_policy import Blame, ExitAction, ExitPolicy, ExitRule, Preset
from shared.core.model.job import Budgets, JobState, Label, Placement, State
from shared.core.model.replica import LastExit, Replica, ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import LossCause
from shared.core.rules.judge import judge
from tests.support.jobs import (
    CHIEF,
    START,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    a_state,
    at,
    exited,
    lost,
    ready,
)

NOW = at(100)
BUG = ProgramError("ValueError", "bad shape", "trainer/task.py:41 in main")
PEER_GONE = ProgramError(
    "tensorflow.python.framework.errors_impl.UnavailableError", "{{node x}}", "ops.py:12 in execute"
)
GLOO = ProgramError(
    "RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer", "c10d.py:9 in all_reduce"
)

TORCHRUN = ProgramError(
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError",
    "The connection to the C10d store has failed. See inner exception for details.",
    "c10d_rendezvous_backend.py:118 in _call_store",
)


@dataclass(frozen=True)
class Case:
    story: str
    state: State | None
    event: Event
    decision: str
    rule: Rule
    reason: Reason


def refused(zone: str = "us-central1-a", rounds: int = 0, kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT, **more: object) -> VmsNotCreated:
    event = VmsNotCreated("digits_1", 1, zone, rounds, kind, "ZONE_RESOURCE_POOL_EXHAUSTED", "no resources", START)
    return replace(event, **more)  # type: ignore[arg-type]


PREPARING = a_state(job=a_job(JobState.PREPARING))
MOVED_ON = a_job(JobState.PREPARING, placement=Placement(1, 1))
LONG_SOUGHT = a_job(JobState.PREPARING, placement=Placement(0, 99), created_at=at(100 - 7 * 86400))
DONE = a_state(job=a_job(JobState.SUCCEEDED))
WORKER_0_DOWN = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, lost_at=at(50)))
WORKER_0_BACK = a_state(a_replica(WORKER_0, incarnation=2, lost_at=at(50), ready_at=at(51)))
SPENT = a_state(a_replica(WORKER_0, incarnation=6, restarts_used=5))
RERUNS_SPENT = a_job(budgets=Budgets(reruns_used=3))
RERUNS_ALL = a_job(plan=a_plan(restart_job_on_worker_restart=True))
NO_RETRIES = a_job(plan=a_plan(disable_retries=True))

CASES = [
    Case("a new job is accepted", None, JobSubmitted(a_job(JobState.QUEUED), NOW), "accept_job", Rule.LIFECYCLE, Reason.ACCEPTED),
    Case("the same submission again is the same job", a_state(), JobSubmitted(a_job(), NOW), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("another submission under a used id is no job", a_state(), JobSubmitted(a_job(submission="other"), NOW), "ignore", Rule.STALE, Reason.JOB_ID_TAKEN),
    Case("provisioning begins", a_state(job=a_job(JobState.QUEUED)), ProvisioningStarted("digits_1", NOW), "begin_preparing", Rule.LIFECYCLE, Reason.PREPARING),
    Case("provisioning begins once", PREPARING, ProvisioningStarted("digits_1", NOW), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("a replica comes up", a_state(a_replica(WORKER_0, ReplicaState.WAITING)), ready(WORKER_0), "mark_ready", Rule.LIFECYCLE, Reason.READY),
    Case("a restarted replica comes up", WORKER_0_DOWN, ready(WORKER_0, 2), "mark_ready", Rule.LIFECYCLE, Reason.READY),
    Case("a replica that is up comes up no more", a_state(), ready(WORKER_0), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("the last one up makes the job run", PREPARING, AllReady("digits_1", 1, NOW), "begin_running", Rule.LIFECYCLE, Reason.ALL_READY),
    Case("all ready of an old attempt says nothing", a_state(job=a_job(attempt=2)), AllReady("digits_1", 1, NOW), "ignore", Rule.STALE, Reason.OLD_ATTEMPT),
    # Rule 1
    Case("nothing happens to a job that ended", DONE, exited(CHIEF, 1), "ignore", Rule.STALE, Reason.JOB_ENDED),
    Case("an old attempt's exit changes nothing", a_state(job=a_job(attempt=2)), exited(CHIEF, 1), "ignore", Rule.STALE, Reason.OLD_ATTEMPT),
    Case("an old incarnation's exit changes nothing", WORKER_0_DOWN, exited(WORKER_0, 1), "ignore", Rule.STALE, Reason.OLD_INCARNATION),
    Case("an old machine's exit changes nothing", a_state(a_replica(WORKER_0, incarnation=2, vm_generation=2)), exited(WORKER_0, 1), "ignore", Rule.STALE, Reason.OLD_VM_GENERATION),
    Case("a incarnation that was never ordered is unknown", a_state(), exited(WORKER_0, 1, incarnation=9), "ignore", Rule.STALE, Reason.UNKNOWN_INCARNATION),
    Case("an attempt that was never made is unknown", a_state(), exited(WORKER_0, 1, attempt=9), "ignore", Rule.STALE, Reason.UNKNOWN_INCARNATION),
    Case("a replica that the job lacks is unknown", a_state(), exited(replace(WORKER_0, index=7), 1), "ignore", Rule.STALE, Reason.UNKNOWN_INCARNATION),
    Case("a second exit of a done replica says nothing", a_state(a_replica(WORKER_0, ReplicaState.COMPLETED)), exited(WORKER_0, 1), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    # Rules 2 and 3
    Case("the primary's exit 0 ends the job well", a_state(), exited(CHIEF, 0), "succeed_job", Rule.PRIMARY_DONE, Reason.PRIMARY_EXITED_ZERO),
    Case("the primary may be done before its peers are up", PREPARING, exited(CHIEF, 0), "succeed_job", Rule.PRIMARY_DONE, Reason.PRIMARY_EXITED_ZERO),
    Case("a worker's exit 0 is recorded", a_state(), exited(WORKER_0, 0), "record_completion", Rule.REPLICA_DONE, Reason.EXITED_ZERO),
    # Rule 4
    Case("maintenance replaces the VM", a_state(), lost(WORKER_1, LossCause.MAINTENANCE), "replace_vm", Rule.VM_LOST, Reason.MAINTENANCE),
    Case("preemption replaces the VM", a_state(), lost(CHIEF), "replace_vm", Rule.VM_LOST, Reason.PREEMPTION),
    Case("a VM that is gone is replaced", a_state(), lost(WORKER_1, LossCause.GONE), "replace_vm", Rule.VM_LOST, Reason.GONE),
    Case("a incarnation that never spoke gets another VM", WORKER_0_DOWN, lost(WORKER_0, LossCause.STARTUP_TIMEOUT, incarnation=2), "replace_vm", Rule.VM_LOST, Reason.STARTUP_TIMEOUT),
    Case("who never speaks from a second VM either is an internal error", a_state(a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, replaced=1, startup_timeouts=1)), lost(WORKER_0, LossCause.STARTUP_TIMEOUT, incarnation=2, vm_generation=2), "rerun_job", Rule.INTERNAL, Reason.STARTUP_TIMEOUT),
    Case("who was preempted before and never speaks now gets another VM", a_state(a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, replaced=1)), lost(WORKER_0, LossCause.STARTUP_TIMEOUT, incarnation=2, vm_generation=2), "replace_vm", Rule.VM_LOST, Reason.STARTUP_TIMEOUT),
    Case("who is up where its peers found no room follows them", a_state(job=MOVED_ON), lost(CHIEF, LossCause.WRONG_ZONE), "replace_vm", Rule.VM_LOST, Reason.WRONG_ZONE),
    Case("who is where its peers are requested again stays", PREPARING, lost(CHIEF, LossCause.WRONG_ZONE), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("an earlier incarnation was left behind", a_state(a_replica(CHIEF, incarnation=2), job=MOVED_ON), lost(CHIEF, LossCause.WRONG_ZONE), "ignore", Rule.STALE, Reason.OLD_INCARNATION),
    Case("silence of an earlier incarnation says nothing", WORKER_0_DOWN, lost(WORKER_0, LossCause.STARTUP_TIMEOUT), "ignore", Rule.STALE, Reason.OLD_INCARNATION),
    Case("who has spoken meanwhile was not silent", a_state(), lost(WORKER_0, LossCause.STARTUP_TIMEOUT), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("a VM is lost whatever incarnation was on it", WORKER_0_DOWN, lost(WORKER_0, incarnation=1), "replace_vm", Rule.VM_LOST, Reason.PREEMPTION),
    Case("a VM is lost before its agent spoke", a_state(a_replica(WORKER_0, ReplicaState.WAITING)), lost(WORKER_0), "replace_vm", Rule.VM_LOST, Reason.PREEMPTION),
    Case("an old machine is not lost again", a_state(a_replica(WORKER_0, vm_generation=2, incarnation=2)), lost(WORKER_0), "ignore", Rule.STALE, Reason.OLD_VM_GENERATION),
    Case("a done replica needs no other VM", a_state(a_replica(WORKER_0, ReplicaState.COMPLETED)), lost(WORKER_0), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("an exit while the VM shuts down is a lost VM", a_state(), exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING), "replace_vm", Rule.VM_LOST, Reason.VM_STOPPING),
    Case("the primary's exit 0 while its VM shuts down is no success", a_state(), exited(CHIEF, 0, cause=ExitCause.VM_STOPPING), "replace_vm", Rule.VM_LOST, Reason.VM_STOPPING),
    Case("a rebooted VM restarts its replica for free", a_state(), exited(WORKER_0, cause=ExitCause.VM_RESTARTED), "restart_replica", Rule.VM_LOST, Reason.VM_RESTARTED),
    Case("where one restart reruns the job a lost VM does", a_state(job=RERUNS_ALL), lost(WORKER_0), "rerun_job", Rule.VM_LOST, Reason.PREEMPTION),
    Case("where one restart reruns the job a VM that shuts down does", a_state(job=RERUNS_ALL), exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING), "rerun_job", Rule.VM_LOST, Reason.VM_STOPPING),
    Case("where one restart reruns the job a rebooted VM does", a_state(job=RERUNS_ALL), exited(WORKER_0, cause=ExitCause.VM_RESTARTED), "rerun_job", Rule.VM_LOST, Reason.VM_RESTARTED),
    Case("a VM on which nothing ran yet is no restart", a_state(a_replica(WORKER_0, ReplicaState.WAITING), job=RERUNS_ALL), lost(WORKER_0), "replace_vm", Rule.VM_LOST, Reason.PREEMPTION),
    # Rule 5
    Case("a failed set-up restarts the attempt", a_state(), exited(WORKER_0, cause=ExitCause.SETUP), "rerun_job", Rule.INTERNAL, Reason.SETUP_FAILED),
    Case("the second failed set-up is not final", a_state(job=a_job(budgets=Budgets(internal_used=1))), exited(WORKER_0, cause=ExitCause.SETUP), "rerun_job", Rule.INTERNAL, Reason.SETUP_FAILED),
    Case("the third failed set-up is final", a_state(job=a_job(budgets=Budgets(internal_used=2))), exited(WORKER_0, cause=ExitCause.SETUP), "fail_job", Rule.INTERNAL, Reason.INTERNAL_BUDGET_SPENT),
    # Rule 6
    Case("without retries the first failure is final", a_state(job=NO_RETRIES), exited(WORKER_0, 1), "fail_job", Rule.RETRIES_DISABLED, Reason.RETRIES_DISABLED),
    Case("without retries a lost VM is still replaced", a_state(job=NO_RETRIES), lost(WORKER_0), "replace_vm", Rule.VM_LOST, Reason.PREEMPTION),
    # Rule 7
    Case("who dies while a peer restarts waits for it", WORKER_0_DOWN, exited(CHIEF, 1, error=PEER_GONE), "hold_replica", Rule.COLLATERAL, Reason.PEER_DOWN),
    Case("who dies while a peer is replaced waits for it", a_state(a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, lost_at=at(50))), exited(CHIEF, 1), "hold_replica", Rule.COLLATERAL, Reason.PEER_DOWN),
    Case("who dies of a peer that is back already pays nothing", WORKER_0_BACK, exited(CHIEF, 1), "hold_replica", Rule.COLLATERAL, Reason.PEER_LOST_MEANWHILE),
    Case("one loss explains one exit", a_state(a_replica(WORKER_0, incarnation=2, lost_at=at(50), ready_at=at(51)), a_replica(CHIEF, incarnation=2, ready_at=at(60))), exited(CHIEF, 1, incarnation=2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("one loss explains one exit even before the vm-ready", a_state(a_replica(WORKER_0, incarnation=2, lost_at=at(50), ready_at=at(51)), a_replica(CHIEF, ReplicaState.HELD, incarnation=2, forgiven_at=at(55))), exited(CHIEF, 1, incarnation=2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("a held peer is no cause", a_state(a_replica(WORKER_0, ReplicaState.HELD, incarnation=2, forgiven_at=at(50))), exited(CHIEF, 1), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("the same bug in a peer explains nothing", a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, lost_at=at(50), last_exit=LastExit(1, 1, None, BUG.signature))), exited(CHIEF, 1, error=BUG), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("the same lost connection in a peer does", a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, lost_at=at(50), last_exit=LastExit(1, 1, None, GLOO.signature))), exited(CHIEF, 1, error=GLOO), "hold_replica", Rule.COLLATERAL, Reason.PEER_DOWN),
    Case("out of memory while a peer is down is tried again", WORKER_0_DOWN, exited(CHIEF, signal=9, out_of_memory=True), "hold_replica", Rule.COLLATERAL, Reason.PEER_DOWN),
    # Rule 8
    Case("out of memory is permanent", a_state(), exited(WORKER_0, signal=9, out_of_memory=True), "fail_job", Rule.PERMANENT, Reason.OUT_OF_MEMORY),
    Case("a usage error is permanent", a_state(), exited(WORKER_0, 2), "fail_job", Rule.PERMANENT, Reason.COMMON_ERROR),
    Case("cannot execute is permanent", a_state(), exited(WORKER_0, 126), "fail_job", Rule.PERMANENT, Reason.COMMON_ERROR),
    Case("not found is permanent", a_state(), exited(WORKER_0, 127), "fail_job", Rule.PERMANENT, Reason.COMMON_ERROR),
    Case("a package that cannot be installed is permanent", a_state(), exited(WORKER_0, 1, cause=ExitCause.INSTALL), "fail_job", Rule.PERMANENT, Reason.INSTALL_FAILED),
    Case("a module that cannot be imported is permanent", a_state(), exited(WORKER_0, 1, error=replace(BUG, type="ModuleNotFoundError")), "fail_job", Rule.PERMANENT, Reason.INSTALL_FAILED),
    Case("the same failure again is permanent", a_state(a_replica(WORKER_0, incarnation=2, last_exit=LastExit(1, 1, None, BUG.signature))), exited(WORKER_0, 1, error=BUG, incarnation=2), "fail_job", Rule.PERMANENT, Reason.SAME_FAILURE_AGAIN),
    Case("another failure is not the same", a_state(a_replica(WORKER_0, incarnation=2, last_exit=LastExit(1, 1, None, "KeyError at x.py:1 in f"))), exited(WORKER_0, 1, error=BUG, incarnation=2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("the same failure earlier on is not the previous one", a_state(a_replica(WORKER_0, incarnation=3, last_exit=LastExit(1, 1, None, BUG.signature))), exited(WORKER_0, 1, error=BUG, incarnation=3), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("without a traceback nothing is the same", a_state(a_replica(WORKER_0, incarnation=2, last_exit=LastExit(1, 1, None, None))), exited(WORKER_0, 1, incarnation=2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("a lost peer reported twice is no bug of this replica", a_state(a_replica(WORKER_0, incarnation=2, last_exit=LastExit(1, 1, None, PEER_GONE.signature))), exited(WORKER_0, 1, error=PEER_GONE, incarnation=2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("a connection lost twice is no bug of this replica", a_state(a_replica(WORKER_0, incarnation=2, last_exit=LastExit(1, 1, None, GLOO.signature))), exited(WORKER_0, 1, error=GLOO, incarnation=2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("a launcher's rendezvous lost twice is none either", a_state(a_replica(WORKER_0, incarnation=2, last_exit=LastExit(1, 1, None, TORCHRUN.signature))), exited(WORKER_0, 1, error=TORCHRUN, incarnation=2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("the service's preset makes every exit permanent", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(Preset.SERVICE)))), exited(WORKER_0, 1), "fail_job", Rule.PERMANENT, Reason.COMMON_ERROR),
    Case("the service's preset reruns a crash", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(Preset.SERVICE)))), exited(WORKER_0, 134), "rerun_job", Rule.CRASH, Reason.CRASH_SIGNAL),
    Case("the service's preset spares who died of a peer", replace(WORKER_0_DOWN, job=a_job(plan=a_plan(exit_policy=ExitPolicy(Preset.SERVICE)))), exited(CHIEF, 1), "hold_replica", Rule.COLLATERAL, Reason.PEER_DOWN),
    Case("the restart preset knows nothing permanent", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(Preset.RESTART)))), exited(WORKER_0, signal=9, out_of_memory=True), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("a rule of the user makes a code permanent", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(rules=(ExitRule(64, 80, ExitAction.FAIL),))))), exited(WORKER_0, 70), "fail_job", Rule.PERMANENT, Reason.EXIT_POLICY),
    Case("a rule of the user reruns the job", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(rules=(ExitRule(3, 3, ExitAction.RERUN),))))), exited(WORKER_0, 3), "rerun_job", Rule.CRASH, Reason.EXIT_POLICY),
    Case("a rule of the user restarts what would be permanent", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(rules=(ExitRule(2, 2, ExitAction.RESTART),))))), exited(WORKER_0, 2), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("a rule of the user knows signals as codes", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(rules=(ExitRule(137, 137, ExitAction.FAIL),))))), exited(WORKER_0, signal=9), "fail_job", Rule.PERMANENT, Reason.EXIT_POLICY),
    Case("a rule for another task type says nothing", a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(rules=(ExitRule(1, 1, ExitAction.FAIL, (TaskType.PS,)),))))), exited(WORKER_0, 1), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    # Rule 9
    Case("SIGSEGV reruns the job", a_state(), exited(WORKER_0, signal=11), "rerun_job", Rule.CRASH, Reason.CRASH_SIGNAL),
    Case("SIGABRT reruns the job", a_state(), exited(WORKER_0, signal=6), "rerun_job", Rule.CRASH, Reason.CRASH_SIGNAL),
    Case("134 reruns the job", a_state(), exited(WORKER_0, 134), "rerun_job", Rule.CRASH, Reason.CRASH_SIGNAL),
    Case("139 reruns the job", a_state(), exited(WORKER_0, 139), "rerun_job", Rule.CRASH, Reason.CRASH_SIGNAL),
    Case("the fourth crash is final", a_state(job=RERUNS_SPENT), exited(WORKER_0, signal=11), "fail_job", Rule.CRASH, Reason.RERUNS_SPENT),
    # Rule 10
    Case("SIGKILL restarts the replica", a_state(), exited(WORKER_0, signal=9), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("exit 1 restarts the replica", a_state(), exited(CHIEF, 1, error=BUG), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("an exit before the vm-ready restarts it too", a_state(a_replica(WORKER_0, ReplicaState.WAITING)), exited(WORKER_0, 1), "restart_replica", Rule.RESTART, Reason.NON_ZERO_EXIT),
    Case("the sixth failure of a replica reruns the job", SPENT, exited(WORKER_0, 1, incarnation=6), "rerun_job", Rule.RESTART, Reason.RESTARTS_SPENT),
    Case("the sixth failure of the fourth attempt is final", replace(SPENT, job=RERUNS_SPENT), exited(WORKER_0, 1, incarnation=6), "fail_job", Rule.RESTART, Reason.RERUNS_SPENT),
    Case("a job that wants it is rerun as a whole", a_state(job=a_job(plan=a_plan(restart_job_on_worker_restart=True))), exited(WORKER_0, 1), "rerun_job", Rule.RESTART, Reason.RESTART_JOB_ON_WORKER_RESTART),
    # Rule 11
    Case("a stockout moves the gang to the next zone", PREPARING, refused(), "continue_provisioning", Rule.CAPACITY, Reason.STOCKOUT),
    Case("what waits in Cloud TPU's queue is told of", PREPARING, VmsQueued("digits_1", 1, "us-central1-a", 0, "VMs", START), "ignore", Rule.CAPACITY, Reason.QUEUED),
    Case("quota is waited for", PREPARING, refused(kind=CapacityErrorKind.QUOTA), "continue_provisioning", Rule.CAPACITY, Reason.QUOTA),
    Case("a capacity error that Google cannot explain restarts the attempt", PREPARING, refused(kind=CapacityErrorKind.INTERNAL), "rerun_job", Rule.INTERNAL, Reason.CREATE_FAILED),
    Case("a capacity error for good ends the job", PREPARING, refused(kind=CapacityErrorKind.DENIED), "fail_job", Rule.INTERNAL, Reason.DENIED),
    Case("machines that were never to be had end the job after a week", a_state(job=LONG_SOUGHT), refused(rounds=99), "fail_job", Rule.CAPACITY, Reason.NEVER_ANY_CAPACITY),
    Case("a week of waiting for others is no week of refusals", a_state(job=replace(LONG_SOUGHT, placement=Placement(0, 98))), refused(rounds=98), "continue_provisioning", Rule.CAPACITY, Reason.STOCKOUT),
    Case("a young job is requested for however often it was refused", a_state(job=replace(LONG_SOUGHT, created_at=at(101 - 7 * 86400))), refused(rounds=99), "continue_provisioning", Rule.CAPACITY, Reason.STOCKOUT),
    Case("a capacity error of an old search says nothing", a_state(job=a_job(JobState.PREPARING, placement=Placement(1, 1))), refused(), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("a stockout beside a running gang keeps what runs", a_state(a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=at(50))), refused(), "continue_provisioning", Rule.CAPACITY, Reason.STOCKOUT),
    Case("a stockout that lasts moves the whole gang", a_state(a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=at(100 - 900))), refused(), "rerun_job", Rule.CAPACITY, Reason.STOCKOUT_LASTS),
    # Rule 12
    Case("the user cancels", a_state(), CancelRequested("digits_1", "me@example.com", NOW), "cancel_job", Rule.ENDED, Reason.CANCELLED_BY_USER),
    Case("the user deletes a job that has ended", a_state(job=a_job(JobState.FAILED)), DeleteRequested("digits_1", "a", NOW), "delete_job", Rule.LIFECYCLE, Reason.DELETED_BY_USER),
    Case("the user deletes it again", a_state(job=a_job(JobState.FAILED, deleted_at=NOW)), DeleteRequested("digits_1", "b", NOW), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("the user deletes a job that runs", a_state(), DeleteRequested("digits_1", "a", NOW), "ignore", Rule.STALE, Reason.NOT_ENDED),
    Case("the user labels a job", a_state(), LabelsChanged("digits_1", (Label("a", "b"),), "a", NOW), "set_labels", Rule.LIFECYCLE, Reason.LABELS_CHANGED),
    Case("the user labels a job that has ended", a_state(job=a_job(JobState.FAILED)), LabelsChanged("digits_1", (), "a", NOW, seen=1), "set_labels", Rule.LIFECYCLE, Reason.LABELS_CHANGED),
    Case("the user labels a job as it no longer is", a_state(job=a_job(labels_version=2)), LabelsChanged("digits_1", (), "a", NOW, seen=1), "ignore", Rule.STALE, Reason.CHANGED_MEANWHILE),
    Case("the running time is over", a_state(), DeadlinePassed("digits_1", Deadline.RUNNING, NOW), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_judge_says(case: Case) -> None:
    decision = judge(case.state, case.event, NOW)
    assert (decision.kind, decision.rule, decision.reason) == (case.decision, case.rule, case.reason), decision.text
    assert decision.text
    evolve(case.state, decision, NOW)


def test_every_rule_and_every_reason_but_the_named_ones_is_in_the_table() -> None:
    assert {case.rule for case in CASES} == set(Rule) - {Rule.TUNING}  # test_tuning
    elsewhere = {Reason.HOST_ERROR, Reason.MAX_RUNNING_TIME, Reason.MAX_WAIT_TIME}
    elsewhere |= {Reason.HOST_READY, Reason.HOST_EXITED_ZERO}  # test_slices
    elsewhere |= {Reason.PRIMARY_RESTARTED}  # test_recall
    elsewhere |= {reason for reason in Reason if reason.name.startswith(("TRIAL", "TOO_MANY_TRIALS", "NO_TRIAL"))}
    assert {case.reason for case in CASES} == set(Reason) - elsewhere


def test_a_host_error_is_a_lost_vm() -> None:
    assert judge(a_state(), lost(WORKER_0, LossCause.HOST_ERROR), NOW).reason is Reason.HOST_ERROR


def test_the_running_time_counts_from_running_to_the_second() -> None:
    event = DeadlinePassed("digits_1", Deadline.RUNNING, NOW)
    assert isinstance(judge(a_state(), event, at(10 + 3599)), Ignore)
    decision = judge(a_state(), event, at(10 + 3600))
    assert isinstance(decision, CancelJob)
    assert decision.message == "Job was cancelled for exceeding the maximum allowed duration of 3600 seconds."


def test_the_waiting_time_counts_from_creation_and_only_before_running() -> None:
    event = DeadlinePassed("digits_1", Deadline.WAIT, NOW)
    assert isinstance(judge(PREPARING, event, at(1799)), Ignore)
    assert isinstance(judge(PREPARING, event, at(1800)), CancelJob)
    assert isinstance(judge(a_state(), event, at(1800)), Ignore)


def test_the_message_of_a_failed_job_is_in_the_services_words_with_the_traceback() -> None:
    state = a_state(a_replica(WORKER_1, incarnation=2, last_exit=LastExit(1, 1, None, BUG.signature)))
    tail = "Traceback (most recent call last):\n  File trainer/task.py\nValueError: bad shape"
    decision = judge(state, exited(WORKER_1, 1, error=BUG, tail=tail, incarnation=2), NOW)
    assert isinstance(decision, FailJob)
    assert decision.message == f"The replica worker 1 exited with a non-zero status of 1. \n{tail}"


def test_out_of_memory_is_said_as_the_service_said_it() -> None:
    decision = judge(a_state(), exited(CHIEF, signal=9, out_of_memory=True), NOW)
    assert isinstance(decision, FailJob)
    assert decision.message == "The replica chief 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL)."


def test_each_failure_charges_its_own_budget() -> None:
    restart = judge(a_state(), exited(WORKER_0, 1), NOW)
    rerun = judge(a_state(), exited(WORKER_0, signal=11), NOW)
    internal = judge(a_state(), exited(WORKER_0, cause=ExitCause.SETUP), NOW)
    rebooted = judge(a_state(), exited(WORKER_0, cause=ExitCause.VM_RESTARTED), NOW)
    assert isinstance(rebooted, RestartReplica)
    assert rebooted.charge is Budget.FREE
    assert isinstance(restart, RestartReplica)
    assert isinstance(rerun, RerunJob)
    assert isinstance(internal, RerunJob)
    assert (restart.charge, rerun.charge, internal.charge) == (Budget.RESTARTS, Budget.RERUNS, Budget.INTERNAL)


def charged(replica_id: ReplicaId, when: float, blame: Blame) -> Replica:
    """A replica whose last exit was charged to itself, before anybody knew better."""
    last = LastExit(1, 1, None, PEER_GONE.signature, blame)
    return a_replica(
        replica_id, ReplicaState.RUNNING, incarnation=2, restarts_used=1, ready_at=at(when + 1), lost_at=at(when),
        charged_at=at(when), last_exit=last,
    )  # fmt: skip


@pytest.mark.parametrize("blame", [Blame.PEER, Blame.UNKNOWN])
def test_a_loss_known_late_gives_back_what_its_peers_were_charged(blame: Blame) -> None:
    state = a_state(charged(CHIEF, 90, blame), a_replica(WORKER_1, incarnation=2, forgiven_at=at(91), collateral=1))
    decision = judge(state, lost(WORKER_0), NOW)
    assert isinstance(decision, ReplaceVm)
    assert decision.refunded == ("1-chief-0",)
    assert "chief 0" in decision.text
    chief = next(each for each in evolve(state, decision, NOW).replicas if each.replica_id == CHIEF)
    assert (chief.restarts_used, chief.collateral, chief.last_exit, chief.state) == (0, 1, None, ReplicaState.RUNNING)


@pytest.mark.parametrize(
    ("story", "chief", "worker"),
    [
        ("its own bug", charged(CHIEF, 90, Blame.OWN), a_replica(WORKER_0)),
        ("too long ago", charged(CHIEF, -90, Blame.PEER), a_replica(WORKER_0, ready_at=at(-100))),
        ("before the lost one lived", charged(CHIEF, 90, Blame.PEER), a_replica(WORKER_0, ready_at=at(95))),
        ("given back before", a_replica(CHIEF, incarnation=2, lost_at=at(90), collateral=1), a_replica(WORKER_0)),
    ],
)
def test_what_a_loss_does_not_explain_stays_charged(story: str, chief: Replica, worker: Replica) -> None:
    decision = judge(a_state(chief, worker), lost(WORKER_0), NOW)
    assert isinstance(decision, ReplaceVm)
    assert decision.refunded == (), story


def test_who_told_of_a_lost_peer_is_not_the_cause_when_that_peers_exit_comes_in() -> None:
    state = a_state(charged(CHIEF, 90, Blame.PEER))
    decision = judge(state, exited(WORKER_0, signal=9), NOW)
    assert isinstance(decision, RestartReplica)
    assert (decision.charge, decision.refunded) == (Budget.RESTARTS, ("1-chief-0",))


def test_a_gang_moves_to_the_zone_that_google_names_else_to_the_next_one() -> None:
    named = judge(PREPARING, refused(zones_available=("us-central1-b", "us-east1-b")), NOW)
    assert isinstance(named, ContinueProvisioning)
    assert (named.zone_index, named.round) == (1, 1)
    itself = judge(PREPARING, refused(zones_available=("us-central1-a",)), NOW)
    assert isinstance(itself, ContinueProvisioning)
    assert itself.zone_index == 1


def test_a_gang_that_moves_pays_nothing_and_seeks_all_of_itself_in_the_other_zone() -> None:
    long_ago = at(100 - 900)
    state = a_state(a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=long_ago))
    decision = judge(state, refused(), NOW)
    assert isinstance(decision, RerunJob)
    job = evolve(state, decision, NOW).job
    assert job is not None
    assert (job.attempt, job.budgets, job.zone, job.placement.round) == (2, Budgets(), "us-central1-b", 1)


def test_quota_does_not_move_the_gang_because_all_zones_of_a_region_share_it() -> None:
    decision = judge(PREPARING, refused(kind=CapacityErrorKind.QUOTA), NOW)
    assert isinstance(decision, ContinueProvisioning)
    assert (decision.zone_index, decision.round) == (0, 1)
