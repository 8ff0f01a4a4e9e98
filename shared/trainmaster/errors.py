"""The two families of errors that a function, a command or a call of the Python client may end
with.

An unknown replica or a late event is not an error: the rules decide about it. Any other exception
is a bug. It propagates, the message is redelivered, and ends in the dead-letter topic.
"""

from __future__ import annotations

from typing import Final

PUBLIC: Final = "trainmaster"
"""The module from which users import these errors, and which tracebacks show."""


class PermanentError(Exception):
    """The message can never succeed: acknowledge it and keep it in the dead-letter topic with this
    reason.
    """

    __module__ = PUBLIC


class RejectedError(PermanentError):
    """A submission has a mistake of its sender: it is stored as a rejection, so acknowledge it.

    It is no dead letter, because an operator can do nothing about it.
    """

    __module__ = PUBLIC


class InvalidJobError(PermanentError):
    """The Python client's job was refused.

    The text has one line for each problem, with its field.
    """

    __module__ = PUBLIC


class TemporaryError(Exception):
    """The message may succeed later: answer 503, so that Pub/Sub delivers it again later."""

    __module__ = PUBLIC


class RefusedError(TemporaryError):
    """Google refuses a call, which an operator can repair: a permission, a disabled API, suspended
    billing.
    """

    __module__ = PUBLIC


class ConflictError(TemporaryError):
    """Another writer has changed a document since it was read. The flow loads and judges again."""
