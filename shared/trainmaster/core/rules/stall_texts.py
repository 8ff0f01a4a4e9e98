"""Sentences about stalls: programs that their agents ended because they hung.

A program hangs alone, or with the other members of its round (the common run of a synchronous job),
in which case one sentence says who stalled and where each one hung.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.model.replica_id import ReplicaId

STILL: Final = "Still"
"""Type of the error of a program that its agent ended, because it and all other members were still:
they printed nothing, moved no bytes and used hardly any processor.
"""
PEER_SILENT: Final = "PeerSilent"
"""Type of the error of a program that its agent ended because another member printed nothing for
the job's stallTimeout. The program itself may be sound.
"""
PLACES_MAX: Final = 3
"""Places where programs hung that a text names, and replicas of each, at most."""


def stall_reason(event: ReplicaExited) -> str:
    """Return why the agent ended the program, as a clause."""
    if event.error is None:
        return "it printed nothing for the job's stallTimeout"
    message = event.error.message.partition("\n")[0]
    return {STILL: f"it was {message}", PEER_SILENT: message}.get(event.error.type, f"it {message}")


def printed_error(event: ReplicaExited) -> str:
    """Return ` after the error ValueError: bad row (data.py:7 in load)`: with what the output ended
    before the program hung; empty if it was no error. Such a thread leaves others waiting.
    """
    _, _, line = event.error.message.partition("\n") if event.error else ("", "", "")
    return f" after the error {line}" if line else ""


def hang_place(event: ReplicaExited) -> str:
    """Return `, in wait (train.py:44)`: where the program hung, and after which error; empty if
    neither is known.

    For an exit that is judged by itself; `stalled_round` has the places of all members.
    """
    printed = f",{printed_error(event)}" if printed_error(event) else ""
    if event.error is None or not event.error.frame:
        return printed
    file, _, function = event.error.frame.rpartition(" in ")
    line = (event.error.own_frame or event.error.frame).partition(" in ")[0]
    if function == "_shutdown" and "threading.py" in file:
        return f"; the main program had ended, and a thread kept its process ({line}){printed}"
    return f", in {function} ({line}){printed}"


def stalled_round(ends: Sequence[ReplicaExited], members: int) -> str:
    """Return which members stalled, and where they hung.

    `ends`: of the round, the first one first.
    """
    stalls = _stalls(ends)
    sources = stall_sources(ends)
    first = sources[0]
    if first.error is not None and first.error.type == STILL:
        who = (
            f"all {members} replicas were"
            if members > 1
            else f"{first.subject.replica_id.words} was"
        )
        text = re.sub("^it was", who, stall_reason(first))
    else:
        who = first.subject.replica_id.words if len(sources) == 1 else "several members"
        text = re.sub("^it ", f"{who} ", stall_reason(first))
    text += next(filter(None, map(printed_error, sources)), "")
    places = _places(stalls)
    return f"{text}: {places}" if places else text


def _stalls(ends: Sequence[ReplicaExited]) -> list[ReplicaExited]:
    """Return the first stall of each member."""
    firsts: dict[ReplicaId, ReplicaExited] = {}
    for end in ends:
        if end.cause is ExitCause.STALLED:
            firsts.setdefault(end.subject.replica_id, end)
    return list(firsts.values())


def stall_sources(ends: Sequence[ReplicaExited]) -> list[ReplicaExited]:
    """Return the stalls of members that hung themselves: without those of members that were ended
    because another one printed nothing, unless there are only such.
    """
    stalls = _stalls(ends)
    own = [end for end in stalls if end.error is None or end.error.type != PEER_SILENT]
    return own or stalls


def _places(stalls: Sequence[ReplicaExited]) -> str:
    """Return where programs hung: `worker 2 in next (data.py:41), the others in all_reduce
    (task.py:88)`.
    """
    names_by_place: dict[str, list[str]] = {}
    for end in stalls:
        if end.error is not None and end.error.frame:
            function = end.error.frame.rpartition(" in ")[2]
            line = end.error.own_frame or end.error.frame
            place = f"in {function} ({line.partition(' in ')[0]})"
            names_by_place.setdefault(place, []).append(end.subject.replica_id.words)
    # The place of the most programs comes last: there they wait for those that hung elsewhere.
    places = sorted(names_by_place, key=lambda place: len(names_by_place[place]))[-PLACES_MAX:]
    words = [f"{', '.join(names_by_place[place][:PLACES_MAX])} {place}" for place in places]
    if places and len(names_by_place[places[-1]]) > 1:
        words[-1] = f"{'the others' if len(words) > 1 else 'all'} {places[-1]}"
    return ", ".join(words)
