"""The two families of errors a function may end in.

What the world may do (an unknown replica, a late event) is a decision, not an error. Anything that is neither of these
two is a bug: it propagates, the message is redelivered and ends in the dead letter.
"""

from __future__ import annotations


class PermanentError(Exception):
    """Repeating the message can never succeed: acknowledge it and keep it in the dead letter with this reason."""


class TemporaryError(Exception):
    """Repeating the message later may succeed: answer 503 so that Pub/Sub delivers it again after its backoff."""


class ConflictError(TemporaryError):
    """Another writer was faster: what was read is stale. The flow loads again and judges again."""
