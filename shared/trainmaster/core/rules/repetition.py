"""Repetition: whether two exits in a row prove a fault that no restart repairs (rule 8).

What an error means is looked up in `trainmaster.program_errors`. A bug, a lasting setting and a
lack of memory return at the next start; so does an error that the table does not know. Errors of a
service, a network, a device or a peer prove nothing: only the budgets limit their restarts. The
same holds for a program that trained for a while: it may have saved a checkpoint, which the control
plane cannot see. A crash at the same place returns, too, unless something outside the program may
crash it.
"""

from __future__ import annotations

import re
import signal
from datetime import timedelta
from typing import Final

from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.model.exit_policy import code_of
from trainmaster.core.rules.crash import crash_place, crash_signal
from trainmaster.core.rules.evidence import names_abort
from trainmaster.core.timeouts import USEFUL_LIFE_MIN
from trainmaster.program_errors.last_words import telling_lines
from trainmaster.program_errors.meaning import Meaning, Place, is_passing, meaning_of
from trainmaster.program_errors.varying import without_numbers, without_random_names

_SAYS_FAILED: Final = re.compile(
    r"\b(?:errors?|fatal|fail(?:s|ed|ure)?|abort(?:ed|ing)?|panic|exception|invalid|illegal"
    r"|cannot|can't|could not|couldn't|unable|missing|no such|not found|unknown|unrecognized"
    r"|unsupported|denied|refus(?:ed|ing)|usage:)",
    re.IGNORECASE,
)
"""Words of a line that says that something failed."""
_LAUNCHER: Final = re.compile(
    r"^make(?:\[\d+\])?: \*\*\*|\bnpm err!|^srun: |mpirun|mpiexec|horovodrun|torchrun"
    r"|exits? with (?:return )?code|exited with|non-zero (?:status|exit)|exit (?:code|status)",
    re.IGNORECASE,
)
"""A launcher reports that a command failed, in the same words whatever the cause."""
_LATE_LINES: Final = 3
"""Lines at the end of the output, of those that may say why it ended, among which the last words on
standard error do.
"""
_SENTENCE_WORDS: Final = 3
"""Words that a line has at least if it is a sentence."""
_LAST_LINES: Final = 20
"""Lines at the end of the output that may name a cause that passes."""


def is_quick_failure(event: ReplicaExited) -> bool:
    """Whether the program failed so soon after its start that it made no progress.

    Unknown times are not quick.
    """
    if event.succeeded or event.ran_s is None:
        return False
    return timedelta(seconds=event.ran_s) < USEFUL_LIFE_MIN


def bug_signature(event: ReplicaExited, place: Place) -> str | None:
    """Return what a repetition of this exit would have in common with it; None if a repetition
    would prove no bug.

    `place`: the surroundings of the program that exited.
    """
    if not is_quick_failure(event) or event.cause is not ExitCause.PROCESS:
        return None
    what = _crash_signature(event, place)
    if what is None:
        what = _error_signature(event, place) if event.error else _last_words(event, place)
    return f"{code_of(event.exit_status, event.signal)}, {what}" if what else None


def left_signature(event: ReplicaExited) -> str | None:
    """Return what a repetition of this exit would have in common with it, if the program lost only
    peers or ranks that had exited 0: they end too early at each start.
    """
    if not is_quick_failure(event) or event.cause is not ExitCause.PROCESS or event.error is None:
        return None
    place = event.error.own_frame or event.error.frame
    return f"left by its peers at {place}" if place else None


def _crash_signature(event: ReplicaExited, place: Place) -> str | None:
    """Return the signal of a crash and the place in the program; None if it did not crash, if the
    place is not known, or if the same crash may pass.

    A driver or a device may crash the program on a machine that has accelerators, and on another
    machine it may not. An illegal instruction may exist on the processor of another machine. A
    runtime that lost its peers aborts itself.
    """
    ended_by = crash_signal(event)
    may_pass = (
        place.has_accelerators
        or ended_by is signal.SIGILL
        or (ended_by is signal.SIGABRT and place.has_peers)
        or (
            event.error is not None
            and is_passing(meaning_of(error_type="", message=event.error.message))
        )
    )
    where = crash_place(event)
    return None if ended_by is None or may_pass or not where else f"{ended_by.name}{where}"


def _error_signature(event: ReplicaExited, place: Place) -> str | None:
    """Return the error and where it came from; None if it may pass.

    The frame is the innermost one in the job's own code. An error without such a frame counts only
    if the table knows that it lasts: what a library raises by itself may have any cause.
    """
    error = event.error
    if error is None or event.out_of_memory or names_abort(event):
        return None
    meaning = meaning_of(error.type, error.message, error.causes, place)
    frame = error.own_frame or (error.frame if meaning is not Meaning.UNKNOWN else "")
    if is_passing(meaning) or not frame:
        return None
    return f"{error.type}: {without_numbers(error.message)} at {frame}"


def _last_words(event: ReplicaExited, place: Place) -> str | None:
    """Return the line with which a program without a traceback says why it exited; None if it
    says nothing, or if the cause may pass.

    The line must report a failure, or be a sentence on standard error, as `sys.exit("no rows are
    left")` prints it. Other lines, such as a progress bar, a metric or the result of `grep`, show
    where the program was, and not why it ended. The words of a launcher do not say why either.

    A signal proves nothing, and neither does the exit of one of several machines: it may have had a
    reason to stop that only its peer knows. Two lines with different numbers differ: the word error
    may name a metric.
    """
    lines = [line.strip() for line in event.tail.splitlines() if line.strip()]
    if place.has_peers or not lines or event.exit_status is None:
        return None
    # The two streams are read one after the other, so that the last line may be one of stdout.
    telling = telling_lines(event.tail) or lines
    is_stderr = event.stderr_line in telling[-_LATE_LINES:]
    last = event.stderr_line if is_stderr else telling[-1]
    says_why = _SAYS_FAILED.search(last) or (is_stderr and _is_sentence(last))
    if not says_why or _LAUNCHER.search(last):
        return None
    last_lines = lines[-_LAST_LINES:]
    meanings = (meaning_of(error_type="", message=line, place=place) for line in last_lines)
    if any(map(is_passing, meanings)):
        return None
    return f"its last line: {without_random_names(last)}"


def _is_sentence(line: str) -> bool:
    """Whether the line is made of words, as no progress bar, metric or warning is."""
    words = line.split()
    has_numbers = any(character.isdigit() for character in line)
    return len(words) >= _SENTENCE_WORDS and not has_numbers and "warn" not in line.lower()
