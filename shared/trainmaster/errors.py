"""The two families of errors that a function may end with.

An unknown replica or a late event is not an error: the rules decide about it. Any other exception is a bug. It
propagates, the message is redelivered, and ends in the dead-letter topic.
"""

from __future__ import annotations


class PermanentError(Exception):
    """The message can never succeed: acknowledge it and keep it in the dead-letter topic with this reason."""


class TemporaryError(Exception):
    """The message may succeed later: answer 503, so that Pub/Sub delivers it again after a backoff."""


class ConflictError(TemporaryError):
    """Another writer has changed a document since it was read. The flow loads and judges again."""
