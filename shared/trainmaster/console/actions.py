"""Actions of users in the console: cancel, submit, label and delete jobs, release machines.

Every action may be repeated: its key identifies the form that was sent, so that two clicks have one
effect.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainmaster.errors import PermanentError
from trainmaster.flows.commit.record import Deps
from trainmaster.flows.user_requests import (
    cancel_job,
    change_labels,
    delete_job,
    release_machines,
)
from trainmaster.messaging import topics

_log = logging.getLogger(__name__)


class Action(StrEnum):
    """An action that a user may perform in the console."""

    CANCEL = "cancel"
    SUBMIT = "submit"
    LABELS = "labels"
    DELETE = "delete"
    RELEASE = "release"


Denied = Mapping[Action, str]
"""Action → what the user lacks for it. Actions that are not named are permitted."""


class ActionDeniedError(PermanentError):
    """The user may not do this here."""


def all_denied(reason: str) -> Denied:
    """Return the denial of every action, for one reason."""
    return dict.fromkeys(Action, reason)


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions on one installation."""

    deps: Callable[[], Deps]
    denied: Callable[[], Denied] = dict
    """Returns the actions that the user may not perform; by default none."""

    def cancel(self, job_id: str, user: str) -> None:
        """Cancel the job in the name of the user. The message of the job contains the name."""
        self._check(Action.CANCEL)
        cancel_job(job_id, user, self.deps())

    def submit(self, document: Mapping[str, Any], source: str) -> None:
        """Publish a job file, as `trainmaster submit` does. `source` identifies the submission."""
        self._check(Action.SUBMIT)
        deps = self.deps()
        deps.bus.publish(topics.SUBMIT, json.dumps(document).encode(), {"source": source})

    def change_labels(
        self, job_id: str, labels: Mapping[str, str], key: str, seen: int, user: str
    ) -> bool:
        """Replace the job's labels. False: they have changed since the version `seen`."""
        self._check(Action.LABELS)
        return change_labels(job_id, labels, key, seen, self.deps(), by=user)

    def delete(self, job_id: str, key: str, user: str) -> bool:
        """Remove an ended job from lists. False: it has not ended."""
        self._check(Action.DELETE)
        is_deleted = delete_job(job_id, key, self.deps(), by=user)
        if is_deleted:
            # The ledger of a deleted job expires; this line stays as long as the log is kept.
            _log.info("%s deleted %s", user, job_id, extra={"job_id": job_id})
        return is_deleted

    def release(self, job_id: str, user: str) -> bool:
        """Delete the machines that an ended job keeps. False: it keeps none."""
        self._check(Action.RELEASE)
        return release_machines(job_id, self.deps(), by=user)

    def _check(self, action: Action) -> None:
        reason = self.denied().get(action)
        if reason:
            raise ActionDeniedError(reason)
