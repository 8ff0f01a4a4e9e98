"""What an entrance is: what reads the inputs, what they are made of, and what may refuse them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.jobspec.problems import InvalidJob


class RefusedError(Exception):
    """An entrance answered with an error of HTTP, or told a stranger nothing."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        """Such as a status of HTTP."""


REFUSED: Final = (PermanentError, TemporaryError, InvalidJob, RefusedError)


@dataclass(frozen=True, slots=True)
class Entrance:
    """One entrance. `read` raises anything but `errors` for a defect."""

    read: Callable[[bytes], object]
    """Returns for an input that the entrance accepts."""
    seeds: Sequence[object]
    """What inputs are made of: documents that the entrance accepts."""
    errors: tuple[type[Exception], ...] = REFUSED
    memory_mib: int = 32
    """Memory of one input.

    The functions have 512 MiB, need some 130 themselves, and parse one message at a time.
    """


Entrances = Mapping[str, Callable[[], Entrance]]
"""Name → what returns the entrance with new state."""


def text_of(data: bytes, chars_max: int) -> str:
    """Return an input as a text, cut to `chars_max` characters."""
    return data.decode(errors="replace")[:chars_max]
