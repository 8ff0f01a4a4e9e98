"""Documents of the previous release, which had no rounds: read for one release, and written in the
present shape.

job         a job that runs is in round `STORED_BEFORE_ROUNDS`, until that round ends
replica     HELD becomes RESTARTING; its agent does not report while a round is held
ledger      actions and events that are gone change nothing, and keep their texts
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trainmaster.core.model.round import STORED_BEFORE_ROUNDS

SCHEMA: Final = 1

Document = dict[str, Any]

_REASONS: Final = {
    "peer_down": "member_failed",
    "peer_lost_meanwhile": "member_failed",
    "charge_explained": "nothing_to_do",
    "primary_restarted": "nothing_to_do",
}


def upgrade(kind: str, document: Document) -> Document:
    """Return the document of the previous release in the present shape.

    `kind` is the name of its type.
    """
    change = _UPGRADES.get(kind)
    return change(document) if change else document


def _upgrade_job(job: Document) -> Document:
    began = job.get("state") in ("PREPARING", "RUNNING")
    return {**job, "round": {"number": STORED_BEFORE_ROUNDS}} if began else job


def _upgrade_replica(replica: Document) -> Document:
    state = "RESTARTING" if replica.get("state") == "HELD" else replica.get("state", "WAITING")
    charged_at = replica.get("ordered_at") or replica.get("ready_at")
    restarts = [charged_at] * replica.get("restarts_used", 0) if charged_at else []
    return {
        **replica,
        "state": state,
        "restarts": restarts,
        "reports_held": replica.get("instance_id") is None,
    }


def _upgrade_entry(entry: Document) -> Document:
    decision = entry["decision"]
    decision = {**decision, "reason": _REASONS.get(decision["reason"], decision["reason"])}
    decision["action"] = _upgrade_action(decision["action"])
    return {**entry, "event": _upgrade_event(entry["event"]), "decision": decision}


def _upgrade_action(action: Document) -> Document:
    match action["kind"]:
        case "hold_replica":
            kept = {name: action[name] for name in ("replica", "instance_id")}
            return {"kind": "restart_replica", "charge": "free", **kept}
        case "reactivate_replica" | "refund_charge":
            return {"kind": "ignore"}
        case "accept_job":
            return {**action, "job": _upgrade_job(action["job"])}
    return action


def _upgrade_event(event: Document) -> Document:
    """Both kinds of events that are gone named one replica, as `MemberMissing` does."""
    if event["kind"] not in ("charge_explained", "completion_outdated"):
        return event
    named = event.get("subject", event)
    kept = {name: named[name] for name in ("job_id", "attempt", "replica_id")}
    return {"kind": "member_missing", "round": 0, "at": event["at"], **kept}


_UPGRADES: Final[dict[str, Callable[[Document], Document]]] = {
    "Job": _upgrade_job,
    "Replica": _upgrade_replica,
    "LedgerEntry": _upgrade_entry,
}
