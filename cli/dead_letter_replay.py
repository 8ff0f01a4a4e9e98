"""Dead letters of agents, judged by who replays them.

An agent's identity token ends an hour after it was issued, and is held against the time at which Pub/Sub took the
event. Published again the event would be told now, and refused. So it is judged here, as of when it was told, which the
letter says and only functions and Pub/Sub can write there: the same check and the same flow as in its function, with
the caller's own permissions on Firestore and on the topic of `provision`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cli.installation import PROJECT
from shared.flows import maintenance, replica_exit, vm_ready
from shared.messaging import codec, topics
from shared.messaging.push import Message
from shared.settings import settings
from shared.wiring import core_services
from shared.wiring.authenticate import proven, proven_loss

if TYPE_CHECKING:
    from shared.gcp.dead_letter_box import DeadLetter

WORKER: Final = "TRAINMASTER_WORKER_SERVICE_ACCOUNT"


def _vm_ready(message: Message) -> None:
    vm_ready.handle(proven(codec.vm_ready(message.data), message), core_services.deps())


def _replica_exit(message: Message) -> None:
    replica_exit.handle(proven(codec.replica_exit(message.data), message), core_services.deps())


def _loss(message: Message) -> None:
    maintenance.handle(proven_loss(codec.maintenance(message.data), message), core_services.deps())


JUDGE: Final[dict[str, Callable[[Message], None]]] = {
    topics.VM_READY: _vm_ready,
    topics.REPLICA_EXIT: _replica_exit,
    topics.MAINTENANCE: _loss,
}


def judged_here(letter: DeadLetter) -> bool:
    """False: it is no agent's event, and is published again. Raises PermanentError where it can still not be judged."""
    judge = JUDGE.get(letter.topic or "")
    if judge is None:
        return False
    if WORKER not in os.environ:
        os.environ[WORKER] = f"trainmaster-worker@{os.environ[PROJECT]}.iam.gserviceaccount.com"  # as infra/ makes it
        settings.cache_clear()
    judge(Message(letter.data, letter.attributes, letter.id, letter.told_at, f"/{letter.topic}"))
    return True
