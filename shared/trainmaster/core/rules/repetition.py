"""Repetition: whether two exits in a row prove a fault that no restart repairs (rule 8).

What an error means is looked up in `trainmaster.program_errors`. A bug, a lasting setting and a
lack of memory return at the next start; so does an error that the table does not know. What a
service, a network, a device or a peer reports is left to the budgets. So is a program that trained
for a while: it may have saved a checkpoint, which the control plane cannot see.
"""

from __future__ import annotations

import re
from typing import Final

from trainmaster.core.events import ExitCause, ProgramError, ReplicaExited
from trainmaster.core.model.exit_policy import code_of
from trainmaster.core.rules.evidence import is_own_failure
from trainmaster.core.timeouts import QUICK_FAILURE_MAX_S
from trainmaster.program_errors.meaning import Meaning, Place, is_passing, meaning_of

_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def is_quick_failure(event: ReplicaExited) -> bool:
    """Whether the program failed so soon after its start that it made no progress.

    Unknown times are not quick.
    """
    return not event.succeeded and event.ran_s is not None and event.ran_s < QUICK_FAILURE_MAX_S


def bug_signature(event: ReplicaExited, place: Place, *, is_alone: bool) -> str | None:
    """Return what a repetition of this exit would have in common with it; None if a repetition
    would prove no bug.

    `place`: what the machine of the program has. `is_alone`: whether no peer can be the cause of
    an exit without a traceback, because the job has no other machine.
    """
    if not is_quick_failure(event) or event.cause is not ExitCause.PROCESS:
        return None
    what = _error_signature(event, place) if event.error else _last_words(event, is_alone=is_alone)
    return f"{code_of(event.exit_status, event.signal)}, {what}" if what else None


def _error_signature(event: ReplicaExited, place: Place) -> str | None:
    """Return the error and where it came from; None if it may pass.

    The place is the innermost frame in the job's own code. An error without such a frame counts
    only if the table knows that it lasts: what a library raises by itself may have any cause.
    """
    error = event.error
    if error is None or not is_own_failure(event):
        return None
    meaning = meaning_of(error.type, error.message, error.causes, place)
    frame = error.own_frame or (error.frame if meaning is not Meaning.UNKNOWN else "")
    if is_passing(meaning) or not frame:
        return None
    return f"{error.type}: {_without_numbers(error.message)} at {frame}"


def _last_words(event: ReplicaExited, *, is_alone: bool) -> str | None:
    """Return the last line of a program that exited without a traceback; None if there is none,
    or if it may pass.

    A signal proves nothing, and neither does the exit of one of several machines: it may have had
    a reason to stop that only its peer knows.
    """
    lines = [line.strip() for line in event.tail.splitlines() if line.strip()]
    if not is_alone or not lines or event.exit_status is None:
        return None
    if is_passing(meaning_of("", lines[-1])):
        return None
    return f"its last line: {_without_numbers(lines[-1])}"


def may_pass(error: ProgramError, place: Place) -> bool:
    """Whether the error may be gone at the next start: a service's, a network's, a device's."""
    return is_passing(meaning_of(error.type, error.message, error.causes, place))


def _without_numbers(text: str) -> str:
    return _NUMBERS.sub("#", text)
