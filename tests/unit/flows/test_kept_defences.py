"""The tests of kept machines can fail: each row of the table in
docs/decisions/0214-warm-machines.md with its defence removed.

A defence is a part of the product, which a function here replaces for one run of a test. Jobs that
keep machines, their sets, holders and tenures are explained in `tests.support.kept_jobs`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pytest

from tests.support.kept_jobs import a_keeping_job
from tests.support.world import World
from tests.unit.flows import test_kept_machines as story
from tests.unit.flows import test_kept_machines_fit as fit_tests
from tests.unit.flows import test_kept_machines_losses as losses
from tests.unit.flows import test_kept_machines_races as races
from tests.unit.flows import test_kept_machines_secret as secret
from trainmaster.core.actions import ReleaseMachines
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.model import fit, plan
from trainmaster.core.model.capacity import machine_kind
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.machine_set import FitItem, KeptVm, MachineSet
from trainmaster.core.model.purchase import OnDemand
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.vm import Directive, Vm
from trainmaster.core.model.vm_names import job_hash
from trainmaster.core.reconcile import kept, startup_timeout
from trainmaster.core.reconcile.steps import Direct, Step
from trainmaster.core.rules import judge
from trainmaster.core.rules import kept_machines as rules
from trainmaster.core.timeouts import STARTUP_TIMEOUT_S
from trainmaster.core.transitions import kept_machines as transitions
from trainmaster.flows.commit import decide, record
from trainmaster.flows.provisioning import (
    admission,
    execute_steps,
    kept_machines,
    reconciliation,
)
from trainmaster.messaging import authenticate
from trainmaster.ports import LiveJobs, VmOwner
from trainmaster_local.memory.store import MemoryStore

Patch = pytest.MonkeyPatch
RemoveDefence = Callable[[Patch], None]


def commit_whatever_the_set_is(patch: Patch) -> None:
    patch.setattr(MemoryStore, "_check_machines", lambda *_: None)


def let_earlier_holders_act(patch: Patch) -> None:
    patch.setattr(State, "holds_machines", property(lambda _: True))


def order_directives_without_tenure(patch: Patch) -> None:
    order = Directive.order.fget  # type: ignore[attr-defined]  # a property
    patch.setattr(Directive, "order", property(lambda self: (0, *order(self)[1:])))


def forget_what_is_pending(patch: Patch) -> None:
    """Find neither the effects that a dead function left nor the jobs that change."""
    patch.setattr(MemoryStore, "jobs_with_pending", lambda _: ())
    patch.setattr(MemoryStore, "live_jobs", lambda _: LiveJobs(()))
    patch.setattr(MemoryStore, "live_pages", lambda *_, **__: iter(()))


def find_no_holder(patch: Patch) -> None:
    """Let the orphan search end at the job that created the VMs."""
    forget_what_is_pending(patch)
    owner_of_vm = MemoryStore.owner_of_vm

    def creator(store: MemoryStore, name: str) -> VmOwner | None:
        owner = owner_of_vm(store, name)
        return owner and VmOwner(owner.set_id, owner.set_id)

    patch.setattr(MemoryStore, "owner_of_vm", creator)


def take_unlisted(patch: Patch) -> None:
    """Take all kept VMs, whether they run or not."""

    def usable(job: Job, machines: Any, *_: object) -> tuple[KeptVm, ...]:
        return tuple(vm for vm in machines.vms if vm.replica_id in job.plan.replica_ids)

    patch.setattr(kept_machines, "_usable", usable)


def trust_old_heartbeats(patch: Patch) -> None:
    patch.setattr(kept_machines, "OLD_HEARTBEAT", timedelta(days=1))


def store_no_instance_id(patch: Patch) -> None:
    taking_replicas = transitions.taking_replicas

    def without_ids(*arguments: Any) -> Any:
        return tuple(replace(one, instance_id=None) for one in taking_replicas(*arguments))

    patch.setattr("trainmaster.core.transitions.job_actions.taking_replicas", without_ids)


def wait_as_for_new_vms(patch: Patch) -> None:
    patch.setattr(startup_timeout, "TAKE_TIMEOUT_S", STARTUP_TIMEOUT_S)


def release_never(patch: Patch) -> None:
    patch.setattr(kept_machines, "release_for_limits", lambda *_: None)
    patch.setattr(execute_steps, "release_for_capacity", lambda *_, **__: None)


def release_before_the_admission(patch: Patch) -> None:
    admit = admission._admit_one

    def release_and_admit(job: Job, token: Any, fleet_deps: Any, deps: Any) -> None:
        placed = replace(job, state=JobState.PREPARING)
        kept_machines.release_for_limits([placed], deps.limits, deps)
        admit(job, token, fleet_deps, deps)

    patch.setattr(admission, "_admit_one", release_and_admit)


def release_own_machines(patch: Patch) -> None:
    patch.setattr(Job, "set_id", property(lambda job: f"{job.job_id} holds none"))


def add_no_day(patch: Patch) -> None:
    patch.setattr(plan, "CHAIN_S", 0)
    patch.setattr(rules, "CHAIN_S", 0)


def ignore_the_fuse(patch: Patch) -> None:
    patch.setattr(rules, "CHAIN_S", 10**9)


def accept_any_audience(patch: Patch) -> None:
    patch.setattr(authenticate, "_check_audience", lambda *_, **__: None)


def own_vms_of_other_sets(patch: Patch) -> None:
    """Let a job that took machines own the VMs that it created before the restore."""
    owner_of_vm = MemoryStore.owner_of_vm

    def by_name(store: MemoryStore, name: str) -> VmOwner | None:
        if job_hash("second") in name:
            return VmOwner("second", "second")
        return owner_of_vm(store, name)

    patch.setattr(MemoryStore, "owner_of_vm", by_name)


def see_no_later_holder(patch: Patch) -> None:
    for module in (kept, kept_machines, reconciliation):
        patch.setattr(module, "is_later", lambda *_: False)


def release_early(patch: Patch) -> None:
    patch.setattr(
        rules,
        "provisional",
        lambda text: Decision(Rule.LIFECYCLE, Reason.MACHINES_RELEASED, text, ReleaseMachines()),
    )


def read_the_clock_first(patch: Patch) -> None:
    """Decide as of the time before the state was read."""
    decide_later = decide.decide

    def decide_earlier(event: Any, clock: Any, store: Any, known: Any) -> Any:
        now = clock()
        return decide_later(event, lambda: now, store, known)

    patch.setattr("trainmaster.flows.commit.record.decide", decide_earlier)


def look_for_no_lost_vms(patch: Patch) -> None:
    patch.setattr(reconciliation, "lost_vms", lambda *_, **__: ())


def judge_no_loss_of_kept_vms(patch: Patch) -> None:
    patch.setattr(judge, "judge_loss_while_kept", lambda *_: None)


def look_at_the_job_once(patch: Patch) -> None:
    patch.setattr(record, "_keep_no_lost_vm", lambda *_: None)


def judge_no_fault_of_kept_vms(patch: Patch) -> None:
    patch.setattr(rules, "FAULTY_ENDS", {})


def keep_what_may_be_faulty(patch: Patch) -> None:
    patch.setattr(rules, "FAULTS", ())


def keep_for_anyone(patch: Patch) -> None:
    patch.setattr(rules, "may_share", lambda _: True)


def say_no_reason(patch: Patch) -> None:
    choose = kept_machines.choose

    def choose_silently(*arguments: Any) -> kept_machines.Choice:
        return replace(choose(*arguments), misfit=None)

    patch.setattr(kept_machines, "choose", choose_silently)


def hand_over_to_the_ended(patch: Patch) -> None:
    """Direct kept VMs that were never handed over."""

    def direct_all(state: State, machines: MachineSet, vms: tuple[Vm, ...]) -> tuple[Step, ...]:
        by_id = {vm.instance_id: vm for vm in machines.vms}
        idle = [
            Direct(vm, kept._stop(state.job, state, by_id[vm.instance_id]))
            for vm in vms
            if vm.instance_id in by_id and vm.directive and vm.directive.tenure < machines.tenure
        ]
        return (*kept.kept_steps(state, machines, vms), *idle)

    patch.setattr(reconciliation, "kept_steps", direct_all)


def without_item(name: str) -> RemoveDefence:
    """Let what a job has in common with the machines not include this property."""

    def remove(patch: Patch) -> None:
        fit_of = fit.fit_of

        def fewer(job: Job) -> tuple[FitItem, ...]:
            return tuple(item for item in fit_of(job) if item.name != name)

        patch.setattr(rules, "fit_of", fewer)

    remove.__name__ = f"without {name}"
    return remove


def without_machine_words(name: str, words: Callable[[TaskGroup], str]) -> RemoveDefence:
    def remove(patch: Patch) -> None:
        patch.setattr(fit, "_machine_words", words)

    remove.__name__ = f"without the {name}"
    return remove


def _disk_words(group: TaskGroup) -> str:
    return f"{group.boot_disk_gib} GiB {group.boot_disk_type}"


def _words_without_type(group: TaskGroup) -> str:
    any_type = replace(group, machine_type="any")
    return f"{machine_kind(any_type, group.purchase.price)} {_disk_words(group)}"


def _words_without_gpus(group: TaskGroup) -> str:
    no_gpus = replace(group, accelerator=None)
    return f"{machine_kind(no_gpus, group.purchase.price)} {_disk_words(group)}"


def _words_without_disk(group: TaskGroup) -> str:
    return machine_kind(group, group.purchase.price)


def _words_without_price(group: TaskGroup) -> str:
    return f"{machine_kind(group, OnDemand())} {_disk_words(group)}"


def rows_of(scenario: Callable[..., object], *cases: str) -> list[dict[str, Any]]:
    """Return the rows of a parametrized scenario, or those of them with these ids."""
    (mark,) = (mark for mark in scenario.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]  # pytest's
    names, values = mark.args
    rows = [row if isinstance(row, type(pytest.param())) else pytest.param(*row) for row in values]
    return [
        dict(zip(names, row.values, strict=True)) for row in rows if not cases or row.id in cases
    ]


class Case(NamedTuple):
    """A defence, and a test that fails without it."""

    remove_defence: RemoveDefence
    scenario: Callable[..., object]
    row: dict[str, Any] | None = None
    """Arguments of the test, if it is parametrized."""


def items(scenario: Callable[..., object], *names: str) -> list[Case]:
    """Return the cases of a scenario with one row per property that is compared."""
    pairs = zip(names, rows_of(scenario), strict=True)
    return [Case(without_item(name), scenario, row) for name, row in pairs]


def others(*defences: RemoveDefence) -> list[Case]:
    """Return the cases of jobs of another kind: one defence for each."""
    scenario = fit_tests.test_job_of_another_kind_starts_cold_and_says_why
    pairs = zip(defences, rows_of(scenario), strict=True)
    return [Case(defence, scenario, row) for defence, row in pairs]


def machines(defence: RemoveDefence, *ids: str) -> list[Case]:
    """Return the cases of jobs whose machines differ, with these ids."""
    scenario = fit_tests.test_machines_that_differ_do_not_fit
    return [Case(defence, scenario, row) for row in rows_of(scenario, *ids)]


CASES: Final = [
    Case(
        commit_whatever_the_set_is,
        races.test_two_jobs_take_at_once_one_wins_and_the_other_starts_cold,
    ),
    Case(commit_whatever_the_set_is, races.test_take_and_deadline_at_once_one_wins),
    Case(let_earlier_holders_act, races.test_late_delivery_of_the_old_holder_changes_nothing),
    Case(
        let_earlier_holders_act,
        races.test_delivery_that_read_the_old_holder_running_leaves_the_next_holder_alone,
    ),
    Case(
        find_no_holder,
        races.test_function_dies_after_the_end_the_sweep_finds_the_holder,
    ),
    Case(
        find_no_holder,
        races.test_function_dies_after_the_take_the_sweep_hands_the_vms_over,
    ),
    Case(
        hand_over_to_the_ended,
        races.test_job_that_ends_before_its_take_is_written_keeps_the_idle_vms,
    ),
    Case(take_unlisted, story.test_vm_lost_while_kept_is_created_by_the_next_job),
    Case(take_unlisted, story.test_all_vms_lost_while_kept_the_next_job_starts_cold),
    Case(
        forget_what_is_pending,
        story.test_set_whose_vms_are_all_lost_while_kept_is_released_by_the_sweep,
    ),
    Case(store_no_instance_id, races.test_vm_that_dies_at_the_take_is_lost_free_of_charge),
    Case(
        look_for_no_lost_vms,
        losses.test_loss_before_the_end_is_committed_is_not_kept,
        {"fields": losses.SERVERS},
    ),
    Case(
        look_at_the_job_once,
        losses.test_end_before_the_loss_is_committed_keeps_the_others,
        {"fields": losses.SERVERS},
    ),
    Case(
        judge_no_loss_of_kept_vms,
        losses.test_loss_after_the_end_keeps_the_others,
        {"fields": {}},
    ),
    Case(
        judge_no_fault_of_kept_vms,
        losses.test_fault_that_is_reported_after_the_end_keeps_the_others,
        {"fields": {}, "cause": "unfit", "tail": "", "words": "failed the preflight"},
    ),
    Case(
        look_at_the_job_once,
        losses.test_vm_that_is_lost_after_its_program_has_completed_is_not_kept,
        {"fields": losses.SERVERS, "is_end_first": True},
    ),
    Case(
        look_at_the_job_once,
        losses.test_end_before_a_fault_is_committed_keeps_the_others,
        {"fields": losses.SERVERS},
    ),
    *(
        Case(keep_what_may_be_faulty, fit_tests.test_which_ends_keep_machines, row)
        for row in rows_of(fit_tests.test_which_ends_keep_machines, "machines")
    ),
    Case(keep_for_anyone, fit_tests.test_machines_of_an_unknown_submitter_are_not_kept),
    *others(say_no_reason, say_no_reason, say_no_reason),
    *others(without_item("the submitter"), keep_for_anyone, without_item("the runtime")),
    Case(look_for_no_lost_vms, losses.test_machine_that_stops_while_kept_is_kept_no_longer),
    Case(trust_old_heartbeats, story.test_silent_agents_are_not_taken),
    Case(
        wait_as_for_new_vms,
        story.test_agent_that_hangs_after_the_take_is_replaced_after_three_minutes,
    ),
    Case(accept_any_audience, secret.test_token_from_before_the_take_is_refused),
    *items(
        fit_tests.test_machines_with_other_access_do_not_fit,
        "the service account",
        "the network",
        "the encryption key",
    ),
    Case(
        without_item("the submitter"), fit_tests.test_verified_and_unverified_owners_share_nothing
    ),
    Case(
        without_item("the boot image"), fit_tests.test_machines_with_another_boot_image_do_not_fit
    ),
    *machines(without_machine_words("machine type", _words_without_type), "machine"),
    *machines(without_machine_words("GPUs", _words_without_gpus), "GPU"),
    *machines(without_machine_words("disk", _words_without_disk), "disk size", "disk type"),
    *machines(without_machine_words("price", _words_without_price), "Spot", "reservation"),
    Case(release_never, story.test_idle_machines_make_room_for_a_job_that_cannot_use_them),
    Case(release_never, story.test_stockout_of_another_job_releases_machines_of_the_same_kind),
    Case(
        release_before_the_admission,
        story.test_limit_equal_to_the_set_admits_the_next_job_into_its_room,
    ),
    Case(order_directives_without_tenure, races.test_restored_database_deletes_the_later_vms),
    Case(see_no_later_holder, races.test_restored_database_deletes_the_later_vms),
    Case(see_no_later_holder, races.test_vm_of_a_later_holder_is_not_taken),
    Case(
        own_vms_of_other_sets,
        races.test_vms_from_before_a_restore_are_orphans_if_their_job_took_others_since,
    ),
    Case(add_no_day, fit_tests.test_vms_live_a_day_longer_than_those_of_a_job_that_keeps_none),
    Case(ignore_the_fuse, fit_tests.test_chain_ends_after_a_day),
    Case(release_early, races.test_release_that_comes_early_is_not_recorded),
    Case(
        read_the_clock_first,
        races.test_function_that_is_suspended_before_it_reads_decides_later,
    ),
]


def run(scenario: Callable[..., object], row: dict[str, Any], patch: Patch) -> None:
    """Run a test with its arguments, as pytest does with its fixtures."""
    parameters = inspect.signature(scenario).parameters
    fixtures: dict[str, Callable[[], World | Patch]] = {
        "first": a_keeping_job,
        "monkeypatch": lambda: patch,
    }
    found = {name: fixture() for name, fixture in fixtures.items() if name in parameters}
    scenario(**found, **row)


@pytest.mark.parametrize(
    "case",
    CASES,
    ids=[
        f"{case.remove_defence.__name__}: {case.scenario.__name__.removeprefix('test_')}"
        for case in CASES
    ],
)
def test_scenario_fails_without_the_defence(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    row = case.row or {}
    with monkeypatch.context() as patch:
        run(case.scenario, row, patch)
    with monkeypatch.context() as patch:
        case.remove_defence(patch)
        with pytest.raises(AssertionError):
            run(case.scenario, row, patch)
