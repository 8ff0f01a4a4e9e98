"""Decoding of JSON messages into pydantic models. The shapes are in docs/interfaces.md, section 2."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainmaster.errors import PermanentError


class MessageModel(BaseModel):
    """Base of all message shapes. Unknown fields are ignored, because a newer agent may send more of them."""

    # defer_build: a model is built at its first use, because each function decodes only one or two kinds of message.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)


Model = TypeVar("Model", bound=MessageModel)


def decode_json(model: type[Model], data: bytes) -> Model:
    """Return the message. Raises PermanentError, because a malformed message stays malformed when it is redelivered."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'message'}: {problem['msg']}" for problem in error.errors()
        )
        raise PermanentError(f"{model.__name__}: {problems}") from None


def has_field(data: bytes, field: str) -> bool:
    """Return whether `data` is a JSON object that has this field."""
    try:
        message = json.loads(data)
    except ValueError:
        return False
    return isinstance(message, dict) and field in message
