"""Decoding of JSON messages into pydantic models.

The shapes are in docs/interfaces.md, section 2.
"""

from __future__ import annotations

from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from trainmaster.errors import PermanentError

MESSAGE_BYTES_MAX: Final = 1 << 18
"""Largest message, except submissions, which have their own limit.

An agent's exit has less than 64 KiB, and an entry of Cloud Logging at most 256 KB.
"""
VALUES_MAX: Final = 12_000
"""Most objects, lists and items of one message. Each one takes up to 1.2 kB when it is parsed,
though its text may be `{}`.
"""
PROBLEMS_MAX: Final = 5
"""Problems of a message that its error names."""


class MessageModel(BaseModel):
    """Base of all message shapes.

    Unknown fields are ignored, because a newer agent may send more of them.
    """

    # defer_build: a model is built at its first use, because each function decodes only one or two
    # kinds of message.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)


Model = TypeVar("Model", bound=MessageModel)


def decode_json(model: type[Model], data: bytes, context: object = None) -> Model:
    """Return the message.

    Raises PermanentError, because a malformed message stays malformed when it is redelivered.

    `context` is passed to the model's validators.
    """
    _check_size(data)
    try:
        return model.model_validate_json(data, context=context)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        described: list[str] = []
        for problem in problems[:PROBLEMS_MAX]:
            field = ".".join(map(str, problem["loc"])) or "message"
            described.append(f"{field}: {problem['msg']}")
        raise PermanentError(f"{model.__name__}: {'; '.join(described)}") from None


def has_field(data: bytes, field: str) -> bool:
    """Return whether `data` is a JSON object that has this field.

    Raises PermanentError for a message that is too big.

    pydantic's parser, unlike Python's, limits the depth, so that no message ends in a
    RecursionError.
    """
    _check_size(data)
    try:
        message = from_json(data)
    except ValueError:
        return False
    return isinstance(message, dict) and field in message


def _check_size(data: bytes) -> None:
    """Raise PermanentError for a message that would take too much memory, before it is parsed."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise PermanentError(f"the message has {len(data)} bytes, more than {MESSAGE_BYTES_MAX}")
    if len(data) <= VALUES_MAX:
        return  # each value has at least one byte
    without_escapes = data.replace(rb"\\", b"").replace(rb"\"", b"")
    # Quotes separate texts outside of strings from strings, in turn.
    outside_strings = b"".join(without_escapes.split(b'"')[::2])
    values = sum(map(outside_strings.count, (b"[", b"{", b",")))
    if values > VALUES_MAX:
        raise PermanentError(
            f"the message has {values} objects, lists and items, more than {VALUES_MAX}"
        )
