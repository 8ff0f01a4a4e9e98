"""A database that is restored to an earlier time, while VMs go on: docs/runbooks.md#restore tells
what to do then.

A round is one common start of all members of a job. It is held between the end of the round before
and the verdict on it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.core.model.job import Job, JobState
from trainmaster.messaging import topics
from trainmaster.messaging.push import Message
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.history import SWEEP_S, History
from trainmaster_local.simulator.scenarios.fault_profiles import CALM
from trainmaster_local.simulator.scenarios.generator import rng_of, training_job
from trainmaster_local.simulator.scenarios.scenario import Scenario, SimJob
from trainmaster_local.simulator.world.program_ends import EndCause
from trainmaster_local.simulator.world.programs import PEER_LOST

RESTORED_S = 120.0
"""The time to which the database is restored: the first job runs, and the second one was not
submitted yet.
"""
FIRST, SECOND = "sim_1", "sim_2"
REPEATED = (
    topics.SUBMIT,
    topics.VM_READY,
    topics.REPLICA_EXIT,
    topics.MAINTENANCE,
    topics.SYSTEM_EVENTS,
)
"""What the runbook lets Pub/Sub deliver again.

Requests of functions to each other are made by the sweep.
"""


class Installation(History):
    """A history of two jobs whose database can be restored.

    The invariants of other histories are off: there, nothing that was stored is lost.
    """

    def __init__(self, variant: int = 0) -> None:
        """`variant`: which zones and policies the first job has (`training_job`)."""
        document, plan = training_job(workers=1, variant=variant, job_id=FIRST)
        first = SimJob(
            FIRST,
            document,
            plan,
            duration_s=1500,
            checkpoint_s=30,
            is_synchronous=plan.is_synchronous,
        )
        document, plan = training_job(workers=1, variant=0, job_id=SECOND)
        second = SimJob(
            SECOND, document, plan, duration_s=5000, checkpoint_s=30, submitted_s=RESTORED_S + 80
        )
        jobs = (first, second)
        super().__init__(Scenario(jobs, CALM), rng_of(0, CALM))
        self.fleet.on_create = self.fleet.on_delete = lambda _: None
        self.functions.on_change = lambda *_: None
        self.context.scheduler.after_each = self._check_programs
        for job in jobs:
            self.users.plan(job)
        self.context.scheduler.after(10, self._sweep)
        self.run_until(RESTORED_S)
        self.remember()
        self._since: list[tuple[str, Message]] = []
        deliver = self.bus.deliver

        def keep_and_deliver(topic: str, message: Message) -> bool | None:
            self._since += [(topic, message)] if topic in REPEATED else []
            return deliver(topic, message)

        self.bus.deliver = keep_and_deliver

    def _check_programs(self) -> None:
        """Each replica has one program at most."""
        members = [program.member for program in self.trainings[FIRST]._alive]
        assert len(members) == len(set(members)), members

    def run_until(self, at_s: float, *, stop_when: Callable[[], bool] | None = None) -> None:
        self.context.scheduler.run_until(at_s, stop_when=stop_when)

    def remember(self) -> None:
        """Take the state to which the database will be restored."""
        self._earlier = self.store.copy()

    def restore(self) -> None:
        """Replace the content of the database by that of `RESTORED_S`, or of the latest call of
        `remember`.
        """
        earlier: MemoryStore = self._earlier.copy()
        vars(self.store).update(
            {key: value for key, value in vars(earlier).items() if key != "_lock"}
        )

    def repeat_messages(self) -> None:
        for topic, message in tuple(self._since):
            self.bus.publish(topic, message.data, message.attributes)

    def lose_vm(self) -> None:
        worker = next(vm for vm in self.pool.present.values() if "worker" in vm.observed.name)
        self.pool.remove(worker, "preempted")

    def fail(self) -> None:
        training = self.trainings[FIRST]
        training._exit(training._alive[-1], PEER_LOST, EndCause.FAILED)

    @property
    def first(self) -> Job:
        loaded = self.store.load(FIRST)
        assert loaded
        return loaded.state.job

    def vms_of(self, job_id: str) -> int:
        return len(self.vm_ids(job_id))

    def vm_ids(self, job_id: str) -> set[str]:
        return {vm.observed.instance_id for vm in self.pool.present.values() if vm.job_id == job_id}


@pytest.fixture
def installation() -> Installation:
    return Installation()


def test_job_in_which_nothing_was_decided_since_then_goes_on_with_its_vms(
    installation: Installation,
) -> None:
    installation.run_until(180)
    installation.restore()
    installation.run_until(1800, stop_when=lambda: installation.first.state.is_terminal)
    assert (installation.first.state, installation.first.round.number) == (JobState.SUCCEEDED, 1)


def restart_twice(installation: Installation) -> None:
    installation.lose_vm()
    installation.run_until(400)
    installation.fail()


@pytest.mark.parametrize(
    "event",
    [Installation.fail, Installation.lose_vm, restart_twice],
    ids=["failed program", "lost VM", "lost VM and failed program"],
)
@pytest.mark.parametrize("variant", [1, 2, 5, 8])
@pytest.mark.parametrize("restored_after_s", [20, 200])
def test_job_that_has_restarted_since_then_goes_on_with_other_vms(
    event: Callable[[Installation], None], variant: int, restored_after_s: int
) -> None:
    """Its agents run an incarnation that the restored job never ordered, and their reports are
    ignored.
    """
    installation = Installation(variant)
    event(installation)
    installation.run_until(installation.context.now + restored_after_s)
    installation.restore()
    installation.run_until(8000, stop_when=lambda: installation.first.state.is_terminal)
    assert installation.first.state is JobState.SUCCEEDED
    installation.run_until(8000 + 3 * SWEEP_S)
    assert installation.vms_of(FIRST) == 0


@pytest.mark.parametrize("fails", [False, True], ids=["goes on", "fails again"])
def test_job_that_is_restored_into_a_held_round_goes_on(
    installation: Installation, *, fails: bool
) -> None:
    """The agents run the round that the state still holds, and never report again that they are
    ready for it.
    """
    installation.fail()
    installation.run_until(200, stop_when=lambda: installation.first.round.is_held)
    installation.remember()
    installation.run_until(400)
    assert installation.trainings[FIRST]._alive
    installation.restore()
    assert installation.first.round.is_held
    if fails:
        installation.fail()
    installation.run_until(8000, stop_when=lambda: installation.first.state.is_terminal)
    assert installation.first.state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    "event", [Installation.fail, Installation.lose_vm], ids=["failed program", "lost VM"]
)
def test_repeated_messages_order_one_restart_again(
    installation: Installation, event: Callable[[Installation], None]
) -> None:
    event(installation)
    installation.run_until(190)
    installation.restore()
    installation.repeat_messages()
    vms = installation.vms_of(FIRST)
    installation.run_until(3000, stop_when=lambda: installation.first.state.is_terminal)
    assert vms == 2, "one of the chief and one of the worker"
    assert installation.first.state is JobState.SUCCEEDED
    assert installation.first.round.number == 2, "it was restarted once"


def test_repeated_message_submits_a_job_again_which_runs_on_other_vms(
    installation: Installation,
) -> None:
    installation.run_until(1200)
    before = installation.vm_ids(SECOND)
    installation.restore()
    installation.repeat_messages()
    installation.run_until(1200 + 6 * SWEEP_S)
    loaded = installation.store.load(SECOND)
    assert loaded
    assert loaded.state.job.state is JobState.RUNNING
    after = installation.vm_ids(SECOND)
    assert len(after) == len(before)
    assert after.isdisjoint(before), "the state does not know them, so their programs must not run"


def test_job_that_has_ended_since_then_runs_again_and_ends_at_once(
    installation: Installation,
) -> None:
    installation.run_until(2000)
    assert (installation.first.state, installation.vms_of(FIRST)) == (JobState.SUCCEEDED, 0)
    installation.restore()
    installation.run_until(2300, stop_when=lambda: installation.first.state.is_terminal)
    assert installation.first.state is JobState.SUCCEEDED


def test_vms_of_a_job_that_was_submitted_since_then_are_deleted_as_orphans(
    installation: Installation,
) -> None:
    installation.run_until(1200)
    installation.restore()
    installation.run_until(1200 + SWEEP_S)
    assert len(installation.store.orphans()) == 2, "its VMs are noted, and deleted later"
    installation.run_until(1200 + 4 * SWEEP_S)
    assert (installation.vms_of(FIRST), installation.vms_of(SECOND)) == (2, 0)
