"""The search for the loss that explains an exit, among the losses of all peers.

When all replicas of a large gang fail, each of N charged exits is compared with N losses, in each provisioning round.
So losses with the same evidence are kept in the order of their ends. The search skips those that were over before the
exit's program started, and ends at those that came too late to explain it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, islice

from trainmaster.core.model.exit_policy import Blame
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import NOT_BACK, EndKind, PastIncarnation, Replica
from trainmaster.core.rules.attribution import explains, is_ruled_out
from trainmaster.core.timeouts import EARLY_NOTICE_MAX, LOSS_REPORT_DELAY_MAX

Loss = tuple[Replica, PastIncarnation]
"""A member of the cluster, and one of its past incarnations."""
Evidence = tuple[bool, Blame, str | None]
"""Whether it is an exit; its blame; its signature."""


class Causes:
    """The losses of a job that may explain exits. `state` holds the replicas whose losses count."""

    def __init__(self, state: State) -> None:
        losses: defaultdict[Evidence, list[Loss]] = defaultdict(list)
        for replica in state.replicas if not state.job.plan.independent else ():
            for loss in replica.past if replica.replica_id.is_in_cluster else ():
                is_exit = loss.kind is EndKind.EXIT
                if loss.is_charged or not is_exit:
                    losses[is_exit, loss.blame, loss.signature].append((replica, loss))
        self._groups = tuple(_Group(sorted(group, key=_order)) for group in losses.values())

    def find(self, replica: Replica, ended: PastIncarnation) -> Replica | None:
        """Return the peer whose loss explains this exit of the replica; None if there is none.

        Lost VMs are named before failures, so failed peers are needed only if no lost VM explains the exit.
        """
        if not replica.replica_id.is_in_cluster:
            return None
        found = [loss for group in self._groups if (loss := group.find(replica, ended)) is not None]
        return min(found, key=_order)[0] if found else None


@dataclass(slots=True)
class _Group:
    """Losses with the same evidence, in the order of their ends."""

    losses: list[Loss]
    untils: list[datetime] = field(init=False)
    """For each loss, the latest return of a replica after this loss or an earlier one."""

    def __post_init__(self) -> None:
        self.untils = list(accumulate((loss.back_at or NOT_BACK for _, loss in self.losses), max))

    def find(self, replica: Replica, ended: PastIncarnation) -> Loss | None:
        """Return the first loss that explains the exit."""
        _, example = self.losses[0]
        is_exit = example.kind is EndKind.EXIT
        if is_exit and is_ruled_out(example, ended):
            return None
        first = bisect_left(self.untils, ended.started_at) if ended.started_at else 0
        latest = ended.ended_at + (EARLY_NOTICE_MAX if is_exit else LOSS_REPORT_DELAY_MAX)
        for peer, loss in islice(self.losses, first, None):
            if loss.ended_at > latest:
                break
            is_peer = peer.replica_id != replica.replica_id and peer.attempt == replica.attempt
            if is_peer and explains(peer, loss, replica, ended):
                return peer, loss
        return None


def _order(item: Loss) -> tuple[bool, datetime, str]:
    """Sort key: the order in which losses are named as the cause of an exit."""
    peer, loss = item
    return loss.kind is EndKind.EXIT, loss.ended_at, peer.key
