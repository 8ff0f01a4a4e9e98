"""The meaning of one error of a program."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from trainmaster.program_errors.messages import ROWS
from trainmaster.program_errors.rows import Meaning, Row
from trainmaster.program_errors.type_names import NAMES, TYPES

__all__ = ["Meaning", "Place", "is_passing", "is_peer_loss", "meaning_of", "row_of"]


class Place(NamedTuple):
    """The surroundings of the program that change what an error means."""

    has_accelerators: bool = True
    """GPUs or TPUs: their errors may be the hardware's, and pass on another machine.

    On a machine without any, an error about one is lasting, because another start adds none.
    """
    has_peers: bool = True
    """Other machines of the job: a name that does not resolve may be that of a lost one."""


ANYWHERE = Place()


def meaning_of(
    error_type: str, message: str, causes: Sequence[str] = (), place: Place = ANYWHERE
) -> Meaning:
    """Return what an error means.

    `error_type`: the type of the exception as printed, with or without its module. `causes`: types
    of the exceptions that it was raised from.

    The first of these decides: a row of the table of messages that does not contradict the type
    (`_contradicts_type`); the type of the error; the type of a cause that may pass. An error that
    no row matches is UNKNOWN.
    """
    row = row_of(error_type, message, causes, place)
    return Meaning.UNKNOWN if row is None else row.meaning


def row_of(
    error_type: str, message: str, causes: Sequence[str] = (), place: Place = ANYWHERE
) -> Row | None:
    """Return the row of the table that decides about an error; None: no row matches it."""
    name = _last(error_type)
    by_type = _row_of_type(name, place)
    nature = None if by_type is None else by_type.meaning
    for row in ROWS:
        if _may_decide(row, name, nature, place) and row.matches(name, message):
            return row
    if by_type is not None:
        return by_type
    by_cause = (_row_of_type(_last(cause), place) for cause in causes)
    passing = (row for row in by_cause if row is not None and is_passing(row.meaning))
    return next(passing, None)


def is_peer_loss(meaning: Meaning) -> bool:
    """Whether the error reports that a peer is lost, or does not answer."""
    return meaning in (Meaning.LOST_PEER, Meaning.SILENT_PEER)


def is_passing(meaning: Meaning) -> bool:
    """Whether the cause of the error may be gone at the next start of the same program."""
    return meaning in _PASSING


_PASSING = (Meaning.TRANSIENT, Meaning.LOST_PEER, Meaning.SILENT_PEER)


def _last(error_type: str) -> str:
    """Return the name of a type without its module."""
    return error_type.rpartition(".")[2]


def _row_of_type(name: str, place: Place) -> Row | None:
    """Return the row of the type itself, or the row of `NAMES` that its name matches."""
    # The patterns of `NAMES` match a type's name in place of a message.
    by_name = (row for row in NAMES if row.matches(name="", message=name))
    row = TYPES.get(name) or next(by_name, None)
    return row if row is not None and _fits(row, place) else None


def _may_decide(row: Row, name: str, nature: Meaning | None, place: Place) -> bool:
    """Whether the row of a message may decide about an error of the type `name`.

    `nature`: what the type alone means; None: it is not in the tables.
    """
    return _fits(row, place) and not _contradicts_type(row, name, nature)


def _contradicts_type(row: Row, name: str, nature: Meaning | None) -> bool:
    """Whether the type is better evidence than the row of a message.

    No message excuses a type that is a bug by nature. A framework that reports a lost peer by a
    type of its own may use the words of any network error, which are those of a transient error.
    A row that names the type knows better.
    """
    if name in row.types:
        return False
    hides_peer = nature is Meaning.LOST_PEER and row.meaning is Meaning.TRANSIENT
    return nature is Meaning.BUG or hides_peer


def _fits(row: Row, place: Place) -> bool:
    """Whether the row holds at such a place."""
    has_machine = place.has_accelerators or not row.is_of_accelerator
    return has_machine and (place.has_peers or not row.is_of_peers)
