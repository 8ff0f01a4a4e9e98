"""Lists and counts of jobs, and the job of a VM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.store.building import must, submit
from tests.support.jobs import CHIEF, START, WORKER_0, WORKER_1, a_job, at
from trainmaster.core.actions import Ignore
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import CancelRequested
from trainmaster.core.ledger import LedgerEntry, counters
from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.tuning import TrialOf
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.transitions.change import Change
from trainmaster.gcp.firestore import job_queries
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import JobFilter, JobPosition, Loaded, Store, VmOwner
from trainmaster_local.memory import store as memory_store


def test_live_jobs_have_not_ended_and_recent_jobs_are_newest_first(store: Store) -> None:
    for nth, state in enumerate([JobState.QUEUED, JobState.RUNNING, JobState.FAILED]):
        submit(store, a_job(state, job_id=f"job_{nth}", created_at=at(nth)))
    assert sorted(job.job_id for job in store.live_jobs().jobs) == ["job_0", "job_1"]
    assert [job.job_id for job in store.recent_jobs(2)] == ["job_2", "job_1"]


@pytest.mark.parametrize("page", [1, 2, 500])
def test_live_jobs_are_read_in_parts(
    store: Store, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (job_queries, memory_store):
        monkeypatch.setattr(module, "LIVE_PAGE", page)
    states = (JobState.QUEUED, JobState.RUNNING, JobState.PREPARING, JobState.FAILED)
    for nth, state in enumerate(states):
        submit(store, a_job(state, job_id=f"job_{nth}"))
    for waiting, expected in ((True, ["job_0", "job_1", "job_2"]), (False, ["job_1", "job_2"])):
        pages = list(store.live_pages(waiting=waiting))
        assert [job_id for live in pages for job_id in live.job_ids] == expected
        assert max(len(live.jobs) for live in pages) <= page


def test_overdue_waits_are_queued_jobs_whose_max_wait_time_is_over(store: Store) -> None:
    for job_id, state, wait_s in (
        ("overdue", JobState.QUEUED, 60),
        ("in_time", JobState.QUEUED, 61),
        ("unlimited", JobState.QUEUED, None),
        ("running", JobState.RUNNING, 60),
        ("failed", JobState.FAILED, 60),
    ):
        job = a_job(state, job_id=job_id, created_at=at(0))
        limits = replace(job.plan.limits, max_wait_s=wait_s)
        submit(store, replace(job, plan=replace(job.plan, limits=limits)))
    assert [job.job_id for job in store.overdue_waits(at(60))] == ["overdue"]


def test_job_list_pages_are_ordered_by_time_then_id(store: Store) -> None:
    made = {"job_a": 0, "job_b": 5, "job_c": 5, "job_d": 5, "job_e": 9}
    for job_id, seconds in made.items():
        submit(
            store,
            a_job(
                JobState.QUEUED, job_id=job_id, created_at=at(seconds).replace(microsecond=123457)
            ),
        )
    listed: list[str] = []
    page = store.recent_jobs(2)
    while page:
        listed += [job.job_id for job in page]
        page = store.recent_jobs(2, JobPosition(page[-1].created_at, page[-1].job_id))
    assert listed == ["job_e", "job_d", "job_c", "job_b", "job_a"]
    assert store.recent_jobs(5, JobPosition(at(5), "job_zz"))[0].job_id == "job_a", (
        "a place where no job is"
    )


VISION, TEST = Label("team", "vision"), Label("stage", "test")


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (JobFilter(), "cli api done old test"),
        (JobFilter(user="Anna@Example.com"), "cli api"),
        (JobFilter(user="anna"), ""),
        (JobFilter(labels=(VISION,)), "api done test"),
        (JobFilter(labels=(VISION, TEST)), "test"),
        (JobFilter((JobState.FAILED, JobState.RUNNING)), "done old test"),
        (JobFilter((JobState.RUNNING,), "boris@example.com", (VISION,)), "test"),
        (JobFilter((JobState.CANCELLED,), "boris@example.com", (VISION,)), ""),
        (JobFilter(name="Digits of Anna"), "api"),
        (JobFilter(name="OLD"), "old"),
        (JobFilter((JobState.RUNNING,), name="digits of anna"), ""),
        (JobFilter(name="digits of anna", with_unlisted=True), "api gone"),
        (JobFilter(with_unlisted=True), "cli api done old test gone trial"),
        (JobFilter((JobState.FAILED,), with_unlisted=True), "done old gone trial"),
        (JobFilter(labels=(VISION,), with_unlisted=True), "api done test gone"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "jobs",
)
def test_filtered_pages_have_the_listed_jobs_that_match_and_no_others(
    store: Store, only: JobFilter, expected: str
) -> None:
    anna, boris = "anna@example.com", "boris@example.com"
    made = [
        a_job(JobState.QUEUED, job_id="cli", submission=f"cli:1/{anna}"),
        a_job(
            JobState.QUEUED,
            job_id="api",
            labels=(VISION,),
            through_api=True,
            submitted_by="Anna@example.com",
            spec_json='{"displayName":"digits of Anna"}',
        ),
        a_job(
            JobState.FAILED,
            job_id="done",
            labels=(Label("owner", anna), VISION),
            submission=f"console:2/{boris}",
        ),
        a_job(JobState.FAILED, job_id="old"),
        a_job(
            JobState.RUNNING,
            job_id="test",
            labels=(TEST, VISION),
            through_api=True,
            submitted_by=boris,
        ),
        a_job(
            JobState.FAILED,
            job_id="gone",
            labels=(VISION,),
            submission=f"cli:3/{anna}",
            deleted_at=at(9),
            spec_json='{"display_name":"digits of Anna"}',
        ),
        a_job(
            JobState.FAILED,
            job_id="trial",
            submitted_by=anna,
            spec_json='{"displayName":"digits of Anna"}',
            trial_of=TrialOf("api", 1, "accuracy"),
        ),
    ]
    for nth, job in enumerate(reversed(made)):
        submit(store, replace(job, created_at=at(nth)))
    listed: list[str] = []
    page = store.recent_jobs(2, None, only)
    while page:
        listed += [job.job_id for job in page]
        page = store.recent_jobs(2, JobPosition(page[-1].created_at, page[-1].job_id), only)
    assert " ".join(listed) == expected


@pytest.mark.parametrize(
    ("only", "queries"),
    [
        (JobFilter((JobState.RUNNING,), labels=(VISION,)), 1),
        (JobFilter((JobState.RUNNING,), "anna@example.com"), 1),
        (JobFilter((JobState.FAILED,), labels=(VISION,)), 5),
    ],
    ids=lambda value: "" if isinstance(value, int) else "jobs",
)
@pytest.mark.parametrize("store", ["firestore"], indirect=True)
def test_jobs_that_match_two_conditions_are_found_by_few_queries(
    store: Store, monkeypatch: pytest.MonkeyPatch, only: JobFilter, queries: int
) -> None:
    """One running job before 30 jobs that have ended: queries for two jobs each would be 16."""
    assert isinstance(store, FirestoreStore)
    anna: Any = {"labels": (VISION,), "submission": "cli:1/anna@example.com"}
    submit(store, a_job(JobState.RUNNING, job_id="running", created_at=at(0), **anna))
    for nth in range(1, 31):
        job_id, created_at = f"job_{nth}", at(nth)
        submit(store, a_job(JobState.SUCCEEDED, job_id=job_id, created_at=created_at, **anna))
    asked = 0
    find = store._find

    def count(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return find(*arguments)

    monkeypatch.setattr(store, "_find", count)
    found = [job.job_id for job in store.recent_jobs(2, only=only)]
    assert found == (["running"] if JobState.RUNNING in only.states else [])
    assert asked == queries


def test_jobs_are_counted_from_a_moment_on(store: Store) -> None:
    assert store.count_created_since(START, through_api=False) == 0
    for nth in range(3):
        submit(store, a_job(JobState.QUEUED, job_id=f"job_{nth}", created_at=at(nth)))
    assert [
        store.count_created_since(at(seconds), through_api=False) for seconds in (0, 1, 2, 3)
    ] == [3, 2, 1, 0]


def test_created_jobs_are_counted_by_their_way_of_submission(store: Store) -> None:
    submit(store, a_job(JobState.QUEUED, job_id="uploaded"))
    for nth in range(2):
        submit(store, a_job(JobState.QUEUED, job_id=f"api_{nth}", through_api=True))
    assert store.count_created_since(START, through_api=True) == 2
    assert store.count_created_since(START, through_api=False) == 1


def test_jobs_are_counted_by_state_and_label_without_trials_and_deleted_ones(store: Store) -> None:
    assert store.count_by_state() == dict.fromkeys(JobState, 0)
    vision, owner = Label("team", "vision"), Label("owner", "anna")
    submit(store, a_job(JobState.QUEUED, job_id="queued", labels=(owner, vision)))
    submit(store, a_job(JobState.FAILED, job_id="failed", labels=(vision,)))
    submit(store, a_job(JobState.FAILED, job_id="failed_speech", labels=(Label("team", "speech"),)))
    submit(
        store, a_job(JobState.FAILED, job_id="failed_deleted", labels=(vision,), deleted_at=at(9))
    )
    submit(
        store,
        a_job(
            JobState.FAILED,
            job_id="trial",
            labels=(vision,),
            trial_of=TrialOf("queued", 1, "accuracy"),
        ),
    )
    none = dict.fromkeys(JobState, 0)
    assert store.count_by_state() == none | {JobState.QUEUED: 1, JobState.FAILED: 2}
    assert store.count_by_state(vision) == none | {JobState.QUEUED: 1, JobState.FAILED: 1}
    assert store.count_by_state(owner) == none | {JobState.QUEUED: 1}
    assert store.count_by_state(Label("team", "anna")) == none, "key and value belong together"


def test_trials_are_live_jobs_but_not_counted_as_created(store: Store) -> None:
    submit(store)
    submit(
        store,
        a_job(
            JobState.QUEUED, job_id="digits_1-trial-1", trial_of=TrialOf("digits_1", 1, "accuracy")
        ),
    )
    assert store.count_created_since(START, through_api=False) == 1
    assert {job.job_id for job in store.live_jobs().jobs} == {"digits_1", "digits_1-trial-1"}


def test_owner_of_vm_finds_live_and_ended_jobs(store: Store) -> None:
    for job_id, state in (
        ("digits_1", JobState.RUNNING),
        ("Digits_1", JobState.FAILED),
        ("d" * 128, JobState.QUEUED),
    ):
        submit(store, a_job(state, job_id=job_id))
        for replica_id in (CHIEF, WORKER_1):
            owner = VmOwner(job_id, job_id)
            assert store.owner_of_vm(vm_name(job_id, replica_id)) == owner


def test_owner_of_vm_is_none_for_a_foreign_vm(store: Store) -> None:
    submit(store)
    own_name = vm_name("digits_1", CHIEF)
    assert store.owner_of_vm(own_name) == VmOwner("digits_1", "digits_1")
    for name in (
        own_name.replace("-digits-1-", "-another-"),  # the same hash, not the same job
        vm_name("digits_1", replace(WORKER_0, index=99)),  # a replica that it does not have
        vm_name("digits_2", CHIEF),
        "gke-pool-1",
        "",
    ):
        assert store.owner_of_vm(name) is None, name


ROW = FailureRow(
    failures=2,
    last="ValueError: bad (train.py:18)",
    signature="signature",
    since=at(0),
    at=at(50),
)


def test_failing_replicas_are_those_of_the_jobs_and_their_current_attempts(store: Store) -> None:
    """Forty jobs, because one query of Firestore has a limit of thirty."""
    jobs = [submit_failing(store, number) for number in range(40)]
    quiet = submit_failing(store, 40, replace(ROW, failures=1))
    assert store.failing_replicas([]) == {}
    found = store.failing_replicas([*jobs[:35], quiet])
    assert sorted(found) == sorted(job.job_id for job in jobs[:35])
    for replicas in found.values():
        assert [(one.replica_id, one.failing) for one in replicas] == [(WORKER_0, ROW)]
    assert store.failing_replicas([replace(jobs[0], attempt=2)]) == {}
    moved = replace(jobs[0], placement=replace(jobs[0].placement, floor=9))
    assert store.failing_replicas([moved]) == {}, "the next VM of the replica begins anew"


def test_job_with_many_failing_replicas_does_not_hide_another_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.gcp.firestore.job_queries.FAILING_READ", 2)
    jobs = [submit_failing(store, number) for number in range(3)]
    for job in jobs[:2]:
        loaded = must(store.load(job.job_id, "1-worker-1"))
        (replica,) = loaded.state.replicas
        write_replica(store, loaded, replace(replica, failing=ROW), "second")
    assert set(store.failing_replicas(jobs)) == {job.job_id for job in jobs}


def test_replica_is_not_failing_after_its_row_has_ended(store: Store) -> None:
    job = submit_failing(store, 0)
    loaded = must(store.load(job.job_id, "1-worker-0"))
    (replica,) = loaded.state.replicas
    write_replica(store, loaded, replace(replica, failing=None), "second")
    assert store.failing_replicas([job]) == {}


def submit_failing(store: Store, number: int, row: FailureRow = ROW) -> Job:
    """Store a job whose worker 0 has this row of failures."""
    job = submit(store, a_job(JobState.RUNNING, job_id=f"failing_{number}"))
    loaded = must(store.load(job.job_id, "1-worker-0"))
    (replica,) = loaded.state.replicas
    write_replica(store, loaded, replace(replica, failing=row), "first")
    return job


def write_replica(store: Store, loaded: Loaded, replica: Replica, key: str) -> None:
    decision = Decision(Rule.STALE, Reason.NOTHING_TO_DO, "text", Ignore())
    event = CancelRequested(loaded.state.job.job_id, key, at(100))
    counted = counters(loaded.state, replica.key)
    state = loaded.state.job.state
    entry = LedgerEntry(event.job_id, key, at(100), event, decision, counted, counted, state)
    written = replace(replica, version=replica.version + 1)
    store.commit(loaded, entry, Change(replicas=(written,)))
