"""Properties of a replica about its incarnations and its machines."""

from __future__ import annotations

from tests.support.jobs import WORKER_0, a_charged_exit, a_replica, at
from trainmaster.core.model.replica import PAST_KEPT, EndKind, HostVm, PastIncarnation


def test_previous_incarnation_is_the_one_just_before_the_present() -> None:
    past = (a_charged_exit(10, 1), a_charged_exit(20, 2))
    assert a_replica(WORKER_0, incarnation=3, past=past).previous == past[1]
    assert a_replica(WORKER_0, incarnation=4, past=past).previous is None, "incarnation 3 ended for a peer's cause"
    assert a_replica(WORKER_0).previous is None


def test_machine_of_a_host_is_the_one_that_reported_first() -> None:
    replica = a_replica(WORKER_0, host_vms=(HostVm(0, "project/10"), HostVm(1, "project/11")))
    assert [replica.host_vm(host) for host in (0, 1, 2)] == ["project/10", "project/11", None]


def test_ten_past_incarnations_are_kept() -> None:
    """Each is part of a document that every event of the replica writes."""
    assert PAST_KEPT == 10


def test_time_of_return_is_unknown_for_a_replica_that_was_never_lost() -> None:
    never = a_replica(WORKER_0, past=(a_charged_exit(10, is_charged=False),))
    assert (never.lost_until, never.failed_until) == (None, None)


def test_time_of_return_is_the_latest_of_its_kind() -> None:
    past = (
        PastIncarnation(1, EndKind.VM_LOST, at(10), back_at=at(20)),
        a_charged_exit(25, 2, back_at=at(30)),
        a_charged_exit(35, 3, back_at=at(40), is_charged=False),
    )
    replica = a_replica(WORKER_0, past=past)
    assert (replica.lost_until, replica.failed_until) == (at(20), at(30))


def test_replica_that_is_still_away_returns_after_any_other_time() -> None:
    past = (
        PastIncarnation(1, EndKind.REBOOT, at(10), back_at=at(20)),
        PastIncarnation(2, EndKind.STALL, at(30)),
    )
    until = a_replica(WORKER_0, past=past).lost_until
    assert until is not None
    assert until.year == 9999
