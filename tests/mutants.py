"""Break each rule, fence, precondition, order of effects and defence once, and see that some test goes red: `make mutants`.

    .venv/bin/python tests/mutants.py quota "a token"      only those whose story has one of these words

Each mutant is one change of the text of a module, made in a copy of the project; the tests that it names, or all that
need nothing but memory, run on it. The same tests must be green on a copy without a change, or nothing is proved. A
mutant that survives, or whose text is no longer there, fails the run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
COPIED: Final = ("shared", "tests", "functions", "simulator", "emulators", "cli", "examples", "docs", "pyproject.toml")
TESTS: Final = ("tests/unit/core", "tests/unit/flows", "tests/unit/functions", "tests/sim")
UNMARKED: Final = "not slow and not heavy"
TIMEOUT_S: Final = 300


@dataclass(frozen=True)
class Mutant:
    story: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = TESTS


JUDGE, EXITS, BLAME = (
    "shared/core/rules/judge.py",
    "shared/core/rules/replica_exit.py",
    "shared/core/rules/attribution.py",
)
EVOLVE, FLEET, ZONES = "shared/core/evolve.py", "shared/core/reconcile/plan.py", "shared/core/reconcile/zone_order.py"
CAPACITY, RECALL, SEARCH = (
    "shared/core/rules/capacity.py",
    "shared/core/rules/reactivation.py",
    "shared/core/rules/capacity_backoff.py",
)
RECORD, PROVISION = "shared/flows/record.py", "shared/flows/provision.py"
ACCESS, DOOR, CREATION, CALL = (f"shared/api/{name}.py" for name in ("access", "door", "creation", "call"))
JOBS, CUSTOM, QUOTAS, PAGES = (f"shared/api/{name}.py" for name in ("jobs", "custom_jobs", "quotas", "pages"))
IDENTITY, TOKENS, IAM = (
    "shared/flows/sender_identity.py",
    "shared/gcp/identity_tokens.py",
    "shared/gcp/project_access.py",
)
SPEAKER, PROGRAMS, RULES = (
    "shared/wiring/authenticate.py",
    "shared/jobspec/fields/programs.py",
    "shared/jobspec/fields/common.py",
)

WHO = ("tests/integration/api/test_access.py", "tests/integration/api/test_jobs.py")
WHAT = ("tests/integration/api/test_jobs.py", "tests/integration/api/test_custom_jobs.py")
OFTEN = ("tests/integration/api/test_quotas.py", "tests/integration/api/test_jobs.py")
SAID = ("tests/unit/functions/test_identity.py", "tests/unit/functions/test_push.py")
ASKED = ("tests/contract/test_access_contract.py",)
TRIED = ("tests/unit/security/test_attacks.py",)
WRITTEN = ("tests/unit/jobspec/test_parse.py", "tests/unit/jobspec/test_wrong_jobs.py")
UPLOADED = ("tests/unit/flows/test_upload.py", "tests/unit/security/test_attacks.py")

TUNING, STUDIES, TUNE = "shared/core/rules/tuning.py", "shared/core/reconcile/trial_jobs.py", "shared/flows/tune.py"
TRIED_OUT = ("tests/unit/core/test_tuning.py", "tests/unit/flows/test_tuning.py")
SLICES, SLICED = "shared/core/reconcile/slice_addresses.py", ("tests/unit/core/test_meeting.py",)
HOSTS = ("tests/integration/agent/test_slices.py",)

MUTANTS: Final = (
    # Rule 1: the fences
    Mutant("events of an ended job count", JUDGE, "if state.job.state.is_terminal:", "if False:"),
    Mutant("old attempts count", JUDGE, "if incarnation.attempt < state.job.attempt and not is_vm_loss:", "if False:"),
    Mutant("old machines count", JUDGE, "if incarnation.machine != replica.machine:", "if False:"),
    Mutant("old incarnations count", JUDGE, "if incarnation.incarnation != replica.incarnation:", "if False:"),
    Mutant("a done replica exits again", JUDGE, 'if replica.state is ReplicaState.COMPLETED:\n        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica has already', 'if False:\n        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica has already'),
    Mutant("a second submission is the first", JUDGE, "if state.job.submission == event.job.submission:", "if True:"),
    Mutant("an old capacity error moves the gang", CAPACITY, "if (event.attempt, event.zone, event.round) != (job.attempt, job.zone, job.placement.round):", "if False:"),
    # Tuning jobs
    Mutant("more trials run than may", TUNING, "min(tuning.max_parallel - len(tuning.live), ", "min(1000, ", TRIED_OUT),
    Mutant("a trial has any number", TUNING, "if event.number != len(tuning.trials) + 1 or not may_begin(job):", "if not may_begin(job):", TRIED_OUT),
    Mutant("trials begin without end", TUNING, "if event.number != len(tuning.trials) + 1 or not may_begin(job):", "if event.number != len(tuning.trials) + 1:", TRIED_OUT),
    Mutant("trials begin in a job that fails", TUNING, "if job.state.is_terminal or end_of(job):", "if job.state.is_terminal:", TRIED_OUT),
    Mutant("trials begin in a job that has ended", TUNING, "if job.state.is_terminal or end_of(job):", "if end_of(job):", TRIED_OUT),
    Mutant("a trial ends twice", TUNING, "if trial is None or trial.state.is_terminal:", "if trial is None:", TRIED_OUT),
    Mutant("no number of failures ends a tuning job", TUNING, "if tuning.max_failed and len(failed) >= tuning.max_failed:", "if False:", TRIED_OUT),
    Mutant("one failure less ends a tuning job", TUNING, "len(failed) >= tuning.max_failed:", "len(failed) + 1 >= tuning.max_failed:", TRIED_OUT),
    Mutant("the first failure ends no tuning job", TUNING, "if not tuning.max_failed and failed and not succeeded:", "if False:", TRIED_OUT),
    Mutant("any failure ends a tuning job", TUNING, "if not tuning.max_failed and failed and not succeeded:", "if not tuning.max_failed and failed:", TRIED_OUT),
    Mutant("a tuning job ends before its last trial", TUNING, "if tuning.live or len(tuning.trials) < planned(tuning):", "if len(tuning.trials) < planned(tuning):", TRIED_OUT),
    Mutant("a tuning job without success succeeds", TUNING, "    if not succeeded:\n        text", "    if False:\n        text", TRIED_OUT),
    Mutant("what was tried before is tried again", TUNING, "tuning.size - len(tried))", "tuning.size)", TRIED_OUT),
    Mutant("what became of the trials of an ended job is not told", JUDGE, "    if isinstance(event, TrialStarted | TrialEnded):\n        return judge_trial(state.job, event)\n    if state.job.state.is_terminal:", "    if state.job.state.is_terminal:", TRIED_OUT),
    Mutant("trials share a directory", STUDIES, "job_dir=_below(program.job_dir, number))", "job_dir=program.job_dir)", TRIED_OUT),
    Mutant("a trial waits no longer than its tuning job", STUDIES, "        max_wait_s=None,\n", "", TRIED_OUT),
    Mutant("trials outlive their tuning job", TUNE, "if study.state.is_terminal and not job.state.is_terminal:", "if False:", TRIED_OUT),
    Mutant("nobody hears of a trial's state", RECORD, "is_news = job.trial_of is not None and", "is_news = False and", TRIED_OUT),
    Mutant("a tuning job's end reaches no trial", RECORD, "return (EFFECT_TUNE,) if change.provision else ()", "return ()", TRIED_OUT),
    Mutant("the sweep finds no tuning job", PROVISION, "deps.bus.publish(topics.TUNE, wire.encode_tune(job.job_id), {})", "pass", TRIED_OUT),
    Mutant("a tuning job has replicas", EVOLVE, "replicas = () if decision.job.tuning else decision.job.plan.replicas", "replicas = decision.job.plan.replicas", TRIED_OUT),
    Mutant("what an earlier incarnation reported is lost", EVOLVE, "measurement=decision.measurement or replica.measurement", "measurement=decision.measurement", TRIED_OUT),
    Mutant("a tuning job takes room", "shared/core/rules/admission_queue.py", "return Counter() if job.tuning else needs(job.plan)", "return needs(job.plan)", TRIED_OUT),
    # Rules 2 to 6
    Mutant("any replica is the primary", EXITS, "if not case.event.succeeded or case.replica.replica != case.job.plan.primary or case.hosts_left:", "if not case.event.succeeded or case.hosts_left:"),
    Mutant("a worker's exit 0 restarts it", EXITS, "if not case.event.succeeded:\n        return None\n    host", "if True:\n        return None\n    host"),
    Mutant("nobody is called back", "shared/flows/provision.py", "for each in replicas_to_reactivate(state))", "for each in ())"),
    Mutant("who is done is called back at once", RECALL, "is_its_first = primary.incarnation == 1 and primary.attempt == 1", "is_its_first = False"),
    Mutant("only who was done before is called back", RECALL, "    return has_outlived and (up_since", "    return False and (up_since"),
    Mutant("who ran on beside the primary is called back", RECALL, "or replica.done_at < up_since + ALONGSIDE)", "or True)"),
    Mutant("who is done with the primary's next incarnation is called back", RECALL, "and replica.ordered_at < primary.lost_at)", "and True)"),
    Mutant("an exit 0 that a rerun overtook is not called back", RECALL, "late = TOLD_LATE if of_a_rerun else timedelta()", "late = timedelta()"),
    Mutant("who is called back is called at once again", RECALL, "of_a_rerun = primary.incarnation == replica.incarnation == 1", "of_a_rerun = True"),
    Mutant("evaluators are called back", RECALL, " or not replica.replica.is_in_cluster:", ":"),
    Mutant("independent replicas are called back", RECALL, "if job.plan.independent or", "if"),
    Mutant("independent replicas die of each other", BLAME, "    if state.job.plan.independent:\n", "    if False:\n"),
    Mutant("who is called back gets its old machine", EVOLVE, "another = replica.machine + 1\n", "another = replica.machine\n"),
    Mutant("who is called back is down", EVOLVE, "return _next_incarnation(replica, ReplicaState.WAITING, now, machine=another", "return _next_incarnation(replica, ReplicaState.WAITING, now, lost_at=now, machine=another"),
    Mutant("who is called back is given back charges", BLAME, "state.job.plan.independent or lost.state is ReplicaState.WAITING:", "state.job.plan.independent:"),
    # Slices of several hosts
    Mutant("a slice is up with its first host", JUDGE, "if incarnation.host is not None and len(up) < hosts:", "if False:"),
    Mutant("a slice that is the primary is done with its first host", EXITS, "!= case.job.plan.primary or case.hosts_left:", "!= case.job.plan.primary:"),
    Mutant("a slice is done with its first host", EXITS, "if host is not None and case.hosts_left:", "if False:"),
    Mutant("all hosts' ends are one event", "shared/core/events.py", "{self.incarnation.host_key if self.succeeded else ''}", ""),
    Mutant("each host fails for itself", "shared/core/events.py", "{self.incarnation.host_key if self.succeeded else ''}", "{self.subject.host_key}"),
    Mutant("a host's end in an older incarnation counts", EVOLVE, "hosts_ready=(), hosts_done=(), **changes", "**changes"),
    Mutant("a rebooted VM is charged", EXITS, "Budget.FREE,\n        Rule.VM_LOST,\n", "Budget.RESTARTS,\n        Rule.VM_LOST,\n"),
    Mutant("internal retries never end", EXITS, "or job.budgets.internal_used >= INTERNAL_RETRIES_MAX:", "or False:"),
    Mutant("internal retries end one early", EXITS, "job.budgets.internal_used >= INTERNAL_RETRIES_MAX", "job.budgets.internal_used + 1 >= INTERNAL_RETRIES_MAX"),
    Mutant("disableRetries is forgotten", EXITS, "if not case.job.plan.disable_retries:", "if True:"),
    # Rule 7
    Mutant("nobody is collateral", EXITS, "if cause is None:", "if True:"),
    Mutant("a loss explains for ever", BLAME, "if peer.state.is_down or settled is None or peer.lost_at > settled:", "if True:"),
    Mutant("only who is down explains", BLAME, "if peer.state.is_down or settled is None or peer.lost_at > settled:", "if peer.state.is_down:"),
    Mutant("what was forgiven explains again", BLAME, "(replica.ready_at, replica.forgiven_at)", "(replica.ready_at,)"),
    Mutant("one bug in both is collateral", BLAME, 'or last.signature == (event.signature or ""))', "or False)"),
    Mutant("charges are never given back", BLAME, "if peer.charged_at is not None\n", "if False\n"),
    Mutant("old charges are given back", BLAME, "and now - peer.charged_at <= timedelta(seconds=GIVE_BACK_S)", "and True"),
    Mutant("own bugs are given back", BLAME, "and peer.last_exit.blame is not Blame.OWN\n", "and True\n"),
    Mutant("an evaluator excuses and is excused", BLAME, "    if not replica.replica.is_in_cluster:\n        return ()\n", ""),
    Mutant("an evaluator's loss excuses its peers", BLAME, "tuple(peer for peer in others if peer.replica.is_in_cluster)", "tuple(others)"),
    Mutant("the cluster waits for an evaluator", FLEET, "replica.state.is_down and replica.replica.is_in_cluster for", "replica.state.is_down for"),
    Mutant("a rerun is never given back", BLAME, "return is_silent_since and now", "return False and now"),
    Mutant("any loss explains a rerun", BLAME, "if last is None or last.blame is Blame.OWN or", "if last is None or"),
    Mutant("a rerun is given back twice", EVOLVE, "budgets=budgets, last_rerun=None, version", "budgets=budgets, version"),
    Mutant("a VM made since explains a rerun", BLAME, "lost.instance_id is not None and not lost.ever_ready", "not lost.ever_ready"),
    Mutant("who spoke since explains a rerun", BLAME, "lost.instance_id is not None and not lost.ever_ready", "lost.instance_id is not None"),
    Mutant("what takes its VM down is free for ever", EXITS, "or _has_just_restarted(case):", "or False:"),
    Mutant("a VM's second restart is never free", EXITS, "case.now - replica.lost_at < REBOOTS_APART", "True"),
    Mutant("a preempted replica may not be silent once", JUDGE, "if replica.startup_timeouts:", "if replica.replaced:"),
    Mutant("silence is not counted", EVOLVE, "(decision.reason is Reason.STARTUP_TIMEOUT)", "0"),
    Mutant("who is up in another zone stays there", FLEET, "    if vm.zone != job.zone:\n        return Lost", "    if False:\n        return Lost"),
    Mutant("who is in the right zone is left behind", JUDGE, "if event.cause is LossCause.WRONG_ZONE and event.incarnation.vm.zone == state.job.zone:", "if False:"),
    Mutant("a rerun makes VMs anew that are lost", EVOLVE, "instance_id=replica.instance_id if is_there else None,", "instance_id=None,"),
    # Rules 8 to 10
    Mutant("out of memory is tried again", EXITS, "if event.out_of_memory:", "if False:"),
    Mutant("a missing module is tried again", EXITS, "if event.cause is ExitCause.INSTALL or (event.error and event.error.type in IMPORT_ERRORS):", "if event.cause is ExitCause.INSTALL:"),
    Mutant("the same failure is tried again", EXITS, "return Reason.SAME_FAILURE_AGAIN if _is_repetition(case) else None", "return None"),
    Mutant("a lost connection twice is a bug", EXITS, "and blame(event) is Blame.OWN\n        and before", "and True\n        and before"),
    Mutant("a failure long ago is the previous one", EXITS, "and before.incarnation == event.incarnation.incarnation - 1", "and True"),
    Mutant("crashes restart the replica", EXITS, "if case.policy.preset_action(case.code) is ExitAction.RERUN:", "if False:"),
    Mutant("restarts never end", EXITS, "if replica.restarts_used >= RESTARTS_MAX:", "if False:"),
    Mutant("restarts end one early", EXITS, "if replica.restarts_used >= RESTARTS_MAX:", "if replica.restarts_used + 1 >= RESTARTS_MAX:"),
    Mutant("reruns never end", EXITS, "if used >= RERUNS_MAX:", "if False:"),
    Mutant("the user's rules are forgotten", "shared/core/model/exit_policy.py", "if rule.matches(code, task_type)), None)", "if False), None)"),
    # Rules 11 and 12
    Mutant("a stockout stays in its zone", CAPACITY, "return named[0] if named else (job.placement.zone_index + 1) % len(zones)", "return job.placement.zone_index"),
    Mutant("what was refused is asked for at once", PROVISION, "if is_too_early(state.job, deps.clock()) and", "if False and"),
    Mutant("nothing happens while machines are waited for", PROVISION, "            if not steps:\n                return  # what", "            if True:\n                return  # what"),
    Mutant("a search is as quick after days as at first", SEARCH, "WAIT_MIN if requested < QUICK else", "WAIT_MIN if True else"),
    Mutant("a search is slow from the start", SEARCH, "WAIT_MIN if requested < QUICK else", "WAIT_MAX if requested < QUICK else"),
    Mutant("a search gets slower for ever", SEARCH, "min(max(requested * WAIT_SHARE, WAIT_MIN), WAIT_MAX)", "max(requested * WAIT_SHARE, WAIT_MIN)"),
    Mutant("all jobs ask together", SEARCH, "(1 + JITTER *", "(1 + 0 *"),
    Mutant("a later search is as slow as the one before", SEARCH, "return now if since is None or is_older else since", "return now if since is None else since"),
    Mutant("a gang that moved is rerun from zone to zone", SEARCH, "return state.job.started_at is None or _has_moved(state)", "return state.job.started_at is None"),
    Mutant("a gang that is up where it moved to moves on", SEARCH, "return is_older and not any(each.ever_ready for each in state.replicas)", "return is_older"),
    Mutant("a rerun goes on with the search", EVOLVE, "replace(job.placement, since=None, next_at=None)", "job.placement"),
    Mutant("a move begins another search", EVOLVE, "since=job.placement.since or now", "since=None"),
    Mutant("machines are requested for ever", CAPACITY, "and _age_s(job, now) >= PROVISIONING_MAX_S:", "and False:"),
    Mutant("a job that waited for others is given up", CAPACITY, "and rounds >= REFUSALS_MIN and", "and"),
    Mutant("a stockout is forgotten", PROVISION, "if outcome.kind is CapacityErrorKind.STOCKOUT:", "if False:"),
    Mutant("a stockout is remembered for ever", ZONES, "and each.at >= since", ""),
    Mutant("other machines' stockouts count", ZONES, "if each.kind in kinds and", "if"),
    Mutant("a job stays on Spot VMs", FLEET, "(limit is None or replica.machine <= limit)", "True"),
    Mutant("a job leaves Spot VMs one early", FLEET, "replica.machine <= limit", "replica.machine < limit"),
    Mutant("how a VM is bought is no part of the request", FLEET, 'bought = "spot/" if self.spot else ""', 'bought = ""'),
    Mutant("what was made beside the VMs is left", PROVISION, "if job.state.is_terminal and not fleet.release(job):", "if False:"),
    Mutant("a running gang moves at once", CAPACITY, "if provisioning_s < PARTIAL_GANG_WAIT_MAX_S:", "if False:"),
    Mutant("a deadline is taken at its word", JUDGE, "if event.deadline is not passed_deadline(job, now):", "if False:"),
    Mutant("waiting counts while it runs", JUDGE, "if job.started_at is not None:\n        return Deadline.RUNNING if", "if True:\n        return Deadline.RUNNING if job.started_at is not None and"),
    # A user's hand
    Mutant("labels are changed over somebody else's change", JUDGE, "if event.seen is not None and event.seen != job.labels_version:", "if False:"),
    Mutant("labels of an ended job stay", JUDGE, "    if isinstance(event, LabelsChanged):\n        return _judge_labels(state.job, event)\n", ""),
    Mutant("a running job is deleted", JUDGE, "    if not job.state.is_terminal:\n        return Ignore(Rule.STALE, Reason.NOT_ENDED", "    if False:\n        return Ignore(Rule.STALE, Reason.NOT_ENDED"),
    Mutant("labels have no version", EVOLVE, "labels_version=job.labels_version + 1", "labels_version=job.labels_version"),
    # State
    Mutant("a restart costs nothing", EVOLVE, "restarts_used=replica.restarts_used + (1 if charged else 0),", "restarts_used=replica.restarts_used,"),
    Mutant("a replaced VM is the same machine", EVOLVE, "machine=replica.machine + 1,\n        instance_id=None", "instance_id=None"),
    Mutant("a rerun forgets its charge", EVOLVE, "reruns_used=used.reruns_used + (decision.charge is Budget.RERUNS),", "reruns_used=used.reruns_used,"),
    Mutant("a rerun takes a done replica's machine", EVOLVE, "is_gone = replica.state is ReplicaState.COMPLETED or replica", "is_gone = replica"),
    Mutant("a rerun takes a lost machine", EVOLVE, " or replica.key == decision.lost\n", "\n"),
    Mutant("a lost VM reruns no job", EXITS, "if state.job.plan.restart_job_on_worker_restart and (has_run", "if False and (has_run"),
    Mutant("a VM that never ran reruns the job", EXITS, "and (has_run or replica.ever_ready):", "and True:"),
    Mutant("a held replica is a loss of its own", EVOLVE, "collateral=replica.collateral + 1, forgiven_at=now)", "collateral=replica.collateral + 1, forgiven_at=now, lost_at=now)"),
    Mutant("a return releases nobody", EVOLVE, "return Change(replicas=(ready,), provision=replica.state.is_down)", "return Change(replicas=(ready,))"),
    # The fleet
    Mutant("held replicas do not wait", FLEET, "hold = replica.state is ReplicaState.HELD and peers_down", "hold = False"),
    Mutant("an ended job keeps its VMs", FLEET, "if job.state.is_terminal or job.state is JobState.CANCELLING:", "if False:"),
    Mutant("a done replica keeps its VM", FLEET, "if replica.state is ReplicaState.COMPLETED:\n            continue", "if False:\n            continue"),
    Mutant("a lost VM is made again without a decision", FLEET, "    if vm is None:\n        return want.may_create", "    if vm is None:\n        return True"),
    Mutant("a newer machine is taken for an old one", FLEET, "if vm.machine > want.replica.machine:", "if False:"),
    Mutant("a stopped VM is as good as any", FLEET, "if vm.status in (VmStatus.STOPPED, VmStatus.STOPPING, VmStatus.REFUSED):", "if False:"),
    Mutant("directives go backwards", FLEET, "vm.directive is not None and vm.directive.order >= want.directive.order", "vm.directive == want.directive"),
    Mutant("every insert is the same request", FLEET, 'which = f"{self.zone}/{self.round}/{self.machine}/', 'which = f"{self.zone}/{self.machine}/'),
    # The flows
    Mutant("what a commit wants is not published", RECORD, "if entry.is_pending:", "if False:"),
    Mutant("a lost race is lost", RECORD, "except ConflictError:\n", "except ZeroDivisionError:\n"),
    Mutant("a rerun between two reads hides a loss", RECORD, "while loaded is not None and loaded.state.job.attempt > asked:", "if loaded is not None and loaded.state.job.attempt > asked:"),
    Mutant("an admission does not look at the others'", RECORD, "            if turn is not None:\n                raise\n", ""),
    Mutant("a job that has to wait starts", PROVISION, "and admission.admit(job, deps) is not None", "and not admission.admit(job, deps) and False"),
    Mutant("the end of a job wakes nobody", "shared/flows/admission.py", "if deps.limits:\n        for job", "if False:\n        for job"),
    Mutant("small jobs overtake large ones", "shared/core/rules/admission_queue.py", "            taken.update(desired)  # also", "            taken.update(desired if not short else {})  # also"),
    Mutant("priority means nothing", "shared/core/rules/admission_queue.py", "key=lambda job: (-job.plan.priority, job.created_at, job.job_id)", "key=lambda job: (job.created_at, job.job_id)"),
    Mutant("peers are not looked at", RECORD, "lost_peers=has_peers", "lost_peers=False"),
    Mutant("running begins without counting", "shared/flows/vm_ready.py", ">= len(job.plan.replicas):", ">= 0:"),
    # Slices
    Mutant("slices begin before the others are up", SLICES, "        return replace(want, directive=replace(want.directive, action=DirectiveAction.HOLD), waits=True)", "        return want", SLICED),
    Mutant("an old slice's address is told", SLICES, "vm.machine != want.replica.machine or ", "", SLICED),
    Mutant("a slice that is repaired is up", SLICES, " or vm.status is not VmStatus.RUNNING:", ":", SLICED),
    Mutant("a slice's host begins while others end", "shared/agent/control/slice_hosts.py", "gang.grace_s + HEARD_S if gang.hosts > 1 else 0.0", "0.0", HOSTS),
    Mutant("a hold before a incarnation is no beginning of its wait", "shared/agent/control/slice_hosts.py", "        if key != self._key:\n", "        if True:\n", HOSTS),
    Mutant("an agent does not wait for the slice's other hosts", "shared/agent/control/agent.py", "        if left_s:\n", "        if False:\n", HOSTS),
    Mutant("who waits for others is done", FLEET, "return tuple(steps or held)", "return tuple(steps)", SLICED),
    Mutant("waiting for others is silence", "shared/core/rules/startup_timeout.py", "since = [replica.ordered_at, vm.started_at, *slices_up]", "since = [replica.ordered_at, vm.started_at]", SLICED),
    Mutant("what waits in the queue is done", FLEET, "if vm.status in (VmStatus.CREATING, VmStatus.QUEUED) else None", "if vm.status is VmStatus.CREATING else None"),
    Mutant("what was refused in the queue is made elsewhere", FLEET, "vm.status is VmStatus.REFUSED and is_this_one and want.may_create", "vm.status is VmStatus.REFUSED and want.may_create"),
    Mutant("a request that waits is a capacity error", CAPACITY, "if event.capacity error == QUEUED:", "if False:"),
    Mutant("done before it is looked at again", PROVISION, "        if not steps:\n            if _is_done", "        if not steps or nth:\n            if _is_done"),
    Mutant("what is on its way is done", PROVISION, 'raise TemporaryError(f"{job_id}: the fleet does not yet equal what is desired")', "deps.store.mark_done(job_id, keys, deps.clock())"),
    Mutant("a rejection is not kept", "shared/flows/submit.py", "store.reject(", "(lambda _: None)("),
    Mutant("the sweep looks at nothing", "shared/flows/sweep.py", "for job_id in job_ids:", "for job_id in ():"),
    # Who may ask what of the API
    Mutant("a no is remembered as a yes", ACCESS, "for each in granted:\n            self._remember", "for each in asked:\n            self._remember", WHO),
    Mutant("a yes is remembered for ever", ACCESS, "self.seconds() + REMEMBERED_S", 'float("inf")', WHO),
    Mutant("a yes to one token is everybody's", ACCESS, "return hashlib.sha256(token.encode()).hexdigest()", 'return "the same"', WHO),
    Mutant("tokens are kept as they are", ACCESS, "return hashlib.sha256(token.encode()).hexdigest()", "return token", WHO),
    Mutant("what is remembered has no end", ACCESS, "while len(remembered) > REMEMBERED_MAX:", "while False:", WHO),
    Mutant("whom one may act as is not asked again", ACCESS, "if not self.access.may_act_as(token, account):", "if False:", WHO),
    Mutant("every project is served", DOOR, "if call.project != service.project:", "if False:", WHO),
    Mutant("nobody is asked what they may", DOOR, "if route.permission and route.permission not in service.access.granted(call.token, [route.permission]):", "if False:", WHO),
    Mutant("no token is as good as one", DOOR, "    if match is None:\n        raise errors.no_token()\n    return match[1]", '    return match[1] if match else "token-of-an-owner"', WHO),
    Mutant("an unknown token is a bug of ours", DOOR, "        except UnknownTokenError:\n            capacity error = errors.bad_token()\n", "", WHO),
    Mutant("errors with IAM is a bug of ours", DOOR, '        except TemporaryError as error:\n            _log.warning("to be tried again: %s", error)\n            capacity error = errors.unavailable()\n', "", WHO),
    Mutant("a bug tells what it was", DOOR, "            capacity error = errors.internal()", "            raise", WHO),
    Mutant("who looks may cancel", "shared/api/routes.py", 'f"{_JOB}:cancel", CANCEL,', 'f"{_JOB}:cancel", GET,', WHO),
    Mutant("any header makes another method", CALL, '!= "GET":', 'not in ("GET", "DELETE", "PATCH", "PUT", "POST", "get"):', TRIED),
    Mutant("jobs run as whom they name", CREATION, "if account and not is_own and not service.access.may_act_as(call.token, account):", "if False:", WHO),
    Mutant("google grants what was not asked", IAM, 'frozenset(json.loads(said).get("permissions", ())) & frozenset(asked)', 'frozenset(json.loads(said).get("permissions", ()))', ASKED),
    Mutant("an API that is switched off is a no", IAM, "if status == HTTPStatus.FORBIDDEN and _SWITCHED_OFF not in said:", "if status == HTTPStatus.FORBIDDEN:", ASKED),
    Mutant("errors with IAM is a no", IAM, "if status == HTTPStatus.FORBIDDEN and _SWITCHED_OFF not in said:", "if status != HTTPStatus.OK:", ASKED),
    Mutant("an account that there is not is errors", IAM, "return status != HTTPStatus.NOT_FOUND and bool(", "return bool(", ASKED),
    Mutant("an e-mail that nobody verified counts", IAM, 'if person.get("email") and person.get("email_verified") else None', 'if person.get("email") else None', ASKED),
    Mutant("a cancellation waits for who asked it", CALL, "    except TemporaryError as error:\n", "    except ZeroDivisionError as error:\n", WHAT),
    # What is asked of the API
    Mutant("the store is asked for any name", JOBS, "service.deps.store.load(job_id) if JOB_ID.fullmatch(job_id) else None", "service.deps.store.load(job_id)", TRIED),
    Mutant("the store is asked for any name of a custom job", CUSTOM, "service.deps.store.load(job_id) if JOB_ID.fullmatch(job_id) else None", "service.deps.store.load(job_id)", TRIED),
    Mutant("a custom job is found in every region", CUSTOM, 'return is_vertex and job.plan.region == call.params["location"]', "return is_vertex", WHAT),
    Mutant("a deleted job is shown", CUSTOM, "is Dialect.VERTEX and job.deleted_at is None", "is Dialect.VERTEX", WHAT),
    Mutant("etags are not compared", JOBS, "if given != etag(job):", "if False:", WHAT),
    Mutant("of two changes of labels both are made", JOBS, "    return job.labels_version\n", "    return None  # type: ignore\n", WHAT),
    Mutant("a second create finds the first", CREATION, "if before and before.state.job.submission == submission:", "if before:", WHAT),
    Mutant("what gcloud sends again is another request", CALL, "invocation[1] if invocation else new_id()", "new_id()", WHAT),
    Mutant("two requests with the same words are one", CALL, "invocation[1] if invocation else new_id()", 'invocation[1] if invocation else ""', WHAT),
    Mutant("another body is the same request", CALL, 'b"\\n" + request.body', 'b"\\n"', WHAT),
    Mutant("enums by number are not understood", CUSTOM, "enums.with_names(value, name)", "value", WHAT),
    Mutant("a body is read to its end", "functions/api.py", "request.stream.read(BODY_BYTES_READ)", "request.get_data()", WHAT),
    # Quotas
    Mutant("one job too many a minute", CREATION, ">= limit:", "> limit:", OFTEN),
    Mutant("jobs are created without end", CREATION, "    _within_quota(call, service)\n", "", OFTEN),
    Mutant("requests without end", QUOTAS, "if self._level + 1 > self.per_minute:", "if False:", OFTEN),
    Mutant("one request too many", QUOTAS, "if self._level + 1 > self.per_minute:", "if self._level > self.per_minute:", OFTEN),
    Mutant("a bucket never drains", QUOTAS, "self._level - drained", "self._level", OFTEN),
    Mutant("a bucket remembers what it let drain", QUOTAS, "max(self._level - drained, 0.0)", "self._level - drained", OFTEN),
    Mutant("a refused request counts", QUOTAS, "            if self._level + 1 > self.per_minute:\n", "            self._level += 1\n            if self._level > self.per_minute:\n", OFTEN),
    Mutant("strangers use up the quota", DOOR, "    _permit(call, route, service)\n    _count(call, route, service)\n", "    _count(call, route, service)\n    _permit(call, route, service)\n", OFTEN),
    Mutant("who proves nothing uses up the quota", DOOR, "if bucket and route.permission and not route.creates", "if bucket and not route.creates", OFTEN),
    Mutant("creations use up the quota of requests", DOOR, "route.permission and not route.creates and", "route.permission and", OFTEN),
    # Who speaks for a replica
    Mutant("a token for anything speaks", IDENTITY, "if claims.audience != desired:", "if False:", SAID),
    Mutant("a token ends with its first piece", IDENTITY, "in count(1))", "in (1,))", SAID),
    Mutant("a token of any account speaks", IDENTITY, "if claims.account != site.account:", "if False:", SAID),
    Mutant("a token that has ended speaks", IDENTITY, "<= claims.expires_at + SKEW", "", SAID),
    Mutant("a token of the future speaks", IDENTITY, "claims.issued_at - SKEW <= told_at <=", "told_at <=", SAID),
    Mutant("a token of any VM speaks", IDENTITY, "if said != desired or incarnation.host is not None:", "if False:", SAID),
    Mutant("a VM may say that it is a host", IDENTITY, "if said != desired or incarnation.host is not None:", "if said != desired:", SAID),
    Mutant("the workers' account speaks for a job with its own", SPEAKER, "if job is not None and job.plan.service_account:", "if False:", SAID),
    Mutant("who says so is a slice", SPEAKER, "return group is not None and group.tpu is not None", "return True", SAID),
    Mutant("who has no token speaks", SPEAKER, '    if not token:\n        raise IdentityError("identity: the event carries no token")\n', "    if not token:\n        return event\n", SAID),
    Mutant("Compute's log comes through any topic", SPEAKER, "if settings().worker_service_account and not message.subscription", "if False and not message.subscription", SAID),
    Mutant("an agent's loss is taken at its word", SPEAKER, "    if isinstance(event, VmLost):\n        return proven(event, message)\n", "    if isinstance(event, VmLost):\n        return event\n", SAID),
    Mutant("anybody signs tokens", TOKENS, "jwt.decode(token, certs=self._certificates(key_id), clock_skew_in_seconds=LATE_S)", "jwt.decode(token, verify=False)", SAID),
    Mutant("strangers make us ask for keys", TOKENS, " and now - self._asked_at >= ASK_AGAIN_S", "", SAID),
    Mutant("any issuer is Google", TOKENS, 'if said["iss"] not in ISSUERS or not said.get("email_verified"):', "if False:", SAID),
    Mutant("who tells may say when it was told", "shared/messaging/push.py", "if not name.startswith(MOVED)", "if True", SAID),
    Mutant("a sender says what Pub/Sub says of a dead letter", "shared/messaging/push.py", " if not name.startswith(MOVED)", "", SAID),
    Mutant("a sender says when its dead letter was told", "shared/messaging/push.py", '        "subscription": message.subscription.rpartition("/")[2],\n', '        "subscription": message.subscription.rpartition("/")[2],\n        **said,\n', SAID),
    # What a job may say
    Mutant("a package's address leads anywhere", PROGRAMS, '        and not any(step in (".", "..") for step in uri.split("/"))\n', "", TRIED),
    Mutant("a package's address has anything in it", PROGRAMS, "        and pattern.fullmatch(uri) is not None\n", "", TRIED),
    Mutant("a module is anything", PROGRAMS, "    if not _MODULE.fullmatch(module):\n", "    if False:\n", TRIED),
    Mutant("a job's labels say whose a VM is", RULES, "if not _LABEL_KEY.fullmatch(key) or key.startswith(_OWN_LABELS):", "if not _LABEL_KEY.fullmatch(key):", TRIED),
    Mutant("aliases multiply", "shared/jobspec/reading/parse_document.py", "if isinstance(event, yaml.AliasEvent):", "if False:", WRITTEN),
    Mutant("anchors are let in", "shared/jobspec/reading/parse_document.py", "if event.anchor is not None:", "if False:", WRITTEN),
    Mutant("tags make objects", "shared/jobspec/reading/parse_document.py", "and event.tag not in _TAGS:", "and False:", WRITTEN),
    Mutant("depth has no end", "shared/jobspec/reading/parse_document.py", "        if depth > DEPTH_MAX:\n", "        if False:\n", WRITTEN),
    Mutant("a job file is read to its end", "shared/flows/upload.py", "max_bytes=FILE_BYTES_MAX + 1", "max_bytes=1 << 40", UPLOADED),
    Mutant("a time in a job id is that of the delivery", "shared/flows/upload.py", "at_time(job_id, uploaded.created_at)", "at_time(job_id, __import__('datetime').datetime.now().astimezone())", UPLOADED),
    Mutant("a used id is submitted all the same", "shared/flows/upload.py", "if loaded and loaded.state.job.submission != source:", "if False:", UPLOADED),
    Mutant("one upload told twice is refused", "shared/flows/upload.py", "if loaded and loaded.state.job.submission != source:", "if loaded:", UPLOADED),
    Mutant("programs drive terminals", "cli/output.py", 'found[1] or "\\N{REPLACEMENT CHARACTER}"', "found[0]", TRIED),
)  # fmt: skip


def main(words: list[str]) -> int:
    """Prints one line a mutant; the exit status is 1 where any survived, or where tests fail without one."""
    mutants = [each for each in MUTANTS if not words or any(word in each.story for word in words)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        sound = list(pool.map(_is_green, dict.fromkeys(mutant.tests for mutant in mutants)))
        if not all(sound):
            return 1
        results = list(pool.map(_killed, mutants))
    survivors = [mutant.story for mutant, killed in zip(mutants, results, strict=True) if not killed]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    return 1 if survivors or not mutants else 0


def _is_green(tests: tuple[str, ...]) -> bool:
    """Without a mutant."""
    with tempfile.TemporaryDirectory() as scratch:
        _copy(Path(scratch))
        status, said = _run(tests, Path(scratch))
    if status:
        print(f"?? fails without any mutant: {' '.join(tests)}\n{said}", flush=True)
    return status == 0


def _killed(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        _copy(Path(scratch))
        path = Path(scratch) / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            print(f"?? {mutant.story}: its text stands {text.count(mutant.old)} times in {mutant.file}", flush=True)
            return False
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        status, said = _run(mutant.tests, Path(scratch))
    killed = status == 1
    how = next((line for line in said.splitlines() if line.startswith("FAILED")), "it never ended" if not said else "")
    print(f"{'ok' if killed else 'SURVIVED'}  {mutant.story}  {how.partition(' - ')[0]}", flush=True)
    return killed


def _copy(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)


def _run(tests: tuple[str, ...], root: Path) -> tuple[int, str]:
    """The tests' exit status, 1 where they never end, and what they printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--durations=0", "-m", UNMARKED]
    try:
        done = subprocess.run(
            [*command, *tests], cwd=root, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, ""
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
