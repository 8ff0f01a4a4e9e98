"""The lost peers of a replica, which may explain its exit."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.store.building import entry_of, must, submit
from tests.support.jobs import CHIEF, WORKER_0, at, exited
from trainmaster.core.actions import RefundCharge
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.evolve import evolve
from trainmaster.core.model.replica import EndKind, PastIncarnation, Replica
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.transitions.change import Change
from trainmaster.ports import LOST_PEERS_PAGE, Store


def submit_with(store: Store, *replicas: Replica) -> Replica:
    """Submit a job with these replicas beside the chief, and return the chief."""
    submit(store)
    loaded = must(store.load_attempt("digits_1"))
    stored = {replica.key for replica in loaded.state.replicas}
    entry, _ = entry_of(loaded.state, exited(WORKER_0, 1, incarnation=9))
    change = Change(replicas=tuple(replace(replica, version=2 if replica.key in stored else 1) for replica in replicas))
    store.commit(loaded, entry, change)
    return must(loaded.state.find(1, CHIEF))


def worker(index: int, *past: PastIncarnation, attempt: int = 1) -> Replica:
    return Replica(attempt, ReplicaId(TaskType.WORKER, index), incarnation=9, past=past)


def peers_away(store: Store, chief: Replica, since: int | None) -> list[list[int]]:
    """Return the indices of the workers in each page that has any."""
    pages = store.lost_peers("digits_1", chief, None if since is None else at(since))
    return [[peer.replica_id.index for peer in page] for page in pages if page]


def test_lost_peers_are_those_that_lost_a_vm_then_those_that_failed(store: Store) -> None:
    chief = submit_with(
        store,
        worker(0, PastIncarnation(1, EndKind.EXIT, at(1), is_charged=True)),
        worker(1, PastIncarnation(1, EndKind.VM_LOST, at(2))),
        worker(2, PastIncarnation(1, EndKind.EXIT, at(1), is_charged=False)),
        worker(3, PastIncarnation(1, EndKind.REBOOT, at(2))),
        worker(4, PastIncarnation(1, EndKind.STALL, at(2))),
        worker(5),
        worker(6, PastIncarnation(1, EndKind.VM_LOST, at(2)), attempt=2),
    )
    assert peers_away(store, chief, None) == [[4, 3, 1], [0]]


def test_lost_peers_were_away_after_the_given_time(store: Store) -> None:
    chief = submit_with(
        store,
        worker(0, PastIncarnation(1, EndKind.VM_LOST, at(1), back_at=at(19))),
        worker(1, PastIncarnation(1, EndKind.VM_LOST, at(1), back_at=at(20))),
        worker(
            2, PastIncarnation(1, EndKind.VM_LOST, at(1), back_at=at(10)), PastIncarnation(2, EndKind.REBOOT, at(15))
        ),
        worker(3, PastIncarnation(1, EndKind.EXIT, at(1), back_at=at(21), is_charged=True)),
        worker(4, PastIncarnation(1, EndKind.EXIT, at(1), back_at=at(5), is_charged=True)),
    )
    assert peers_away(store, chief, 20) == [[2, 1], [3]]


def test_lost_peers_do_not_contain_the_replica_itself(store: Store) -> None:
    lost = PastIncarnation(1, EndKind.VM_LOST, at(2))
    submit_with(store, worker(0, lost), worker(1, lost))
    assert peers_away(store, worker(0), None) == [[1]]


def test_first_page_of_lost_peers_is_small_and_the_second_has_the_others(store: Store) -> None:
    lost, failed = PastIncarnation(1, EndKind.VM_LOST, at(2)), PastIncarnation(1, EndKind.EXIT, at(2), is_charged=True)
    workers = [worker(index, lost if index < 25 else failed) for index in range(40)]
    pages = peers_away(store, submit_with(store, *workers), 1)
    assert [len(page) for page in pages] == [
        LOST_PEERS_PAGE,
        25 - LOST_PEERS_PAGE,
        LOST_PEERS_PAGE,
        15 - LOST_PEERS_PAGE,
    ]
    assert sorted(index for page in pages for index in page) == list(range(40))


def test_peer_whose_only_exit_was_refunded_is_not_a_lost_peer(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    charged = must(store.load("digits_1", "1-worker-0"))
    chief = must(must(store.load("digits_1", "1-chief-0")).state.find(1, CHIEF))
    assert peers_away(store, chief, None) == [[0]]
    refund = evolve(
        charged.state,
        Decision(Rule.COLLATERAL, Reason.CHARGE_EXPLAINED, "", RefundCharge("1-worker-0", 1, "1-worker-1")),
        at(101),
    )
    store.commit(charged, replace(entry, key="refund"), refund)
    assert peers_away(store, chief, None) == []
