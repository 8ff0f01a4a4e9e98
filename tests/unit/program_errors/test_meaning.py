"""The order in which type, message and causes decide what an error means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainmaster.program_errors.meaning import ANYWHERE, Meaning, Place, meaning_of
from trainmaster.program_errors.messages import ROWS
from trainmaster.program_errors.type_names import NAMES, TYPES

CPUS = Place(has_accelerators=False)
ALONE = Place(has_peers=False)


@pytest.mark.parametrize(
    ("error_type", "message", "causes", "place", "expected"),
    [
        ("KeyError", "'connection timed out'", (), ANYWHERE, Meaning.BUG),
        ("builtins.ValueError", "CUDA error: ECC", (), ANYWHERE, Meaning.BUG),
        (
            "ValueError",
            "host not found: Name or service not known",
            (),
            ANYWHERE,
            Meaning.LOST_PEER,
        ),
        ("ValueError", "host not found: Name or service not known", (), ALONE, Meaning.BUG),
        ("RuntimeError", "CUDA error: ECC", (), ANYWHERE, Meaning.TRANSIENT),
        ("RuntimeError", "CUDA error: ECC", (), CPUS, Meaning.UNKNOWN),
        ("jaxlib.XlaRuntimeError", "INTERNAL: x", (), ANYWHERE, Meaning.TRANSIENT),
        ("jaxlib.XlaRuntimeError", "INTERNAL: x", (), CPUS, Meaning.UNKNOWN),
        ("UnavailableError", "failed to connect: timed out", (), ANYWHERE, Meaning.LOST_PEER),
        ("NotFound", "503 Service Unavailable", (), ANYWHERE, Meaning.TRANSIENT),
        ("NotFound", "no such thing", (), ANYWHERE, Meaning.SETTING),
        ("app.LoadError", "cannot load", ("requests.ReadTimeout",), ANYWHERE, Meaning.TRANSIENT),
        ("app.LoadError", "cannot load", ("KeyError",), ANYWHERE, Meaning.UNKNOWN),
        ("PermissionError", "no", ("requests.ReadTimeout",), ANYWHERE, Meaning.SETTING),
        ("client.PollTimeoutError", "no answer", (), ANYWHERE, Meaning.TRANSIENT),
        ("client.TimeoutSettingError", "negative", (), ANYWHERE, Meaning.UNKNOWN),
        ("WorkerDiedError", "", (), ANYWHERE, Meaning.LOST_PEER),
        ("", "wget: Connection timed out", (), ANYWHERE, Meaning.TRANSIENT),
        ("RuntimeError", "loss is negative", (), ANYWHERE, Meaning.UNKNOWN),
    ],
    ids=[
        "a bug by nature, whatever its message says",
        "a bug by nature, also with words of a device",
        "a type that reports a lost peer with these words",
        "the same where there is no peer",
        "words of a device",
        "the same without a device",
        "a runtime of a device",
        "the same without a device, by type",
        "a type of a lost peer before words of a network",
        "words of a service before its type",
        "type alone",
        "cause that may pass",
        "cause that is a bug",
        "type before its causes",
        "end of a type's name",
        "another end of a type's name",
        "a type that names a dead worker",
        "words without a type",
        "unknown",
    ],
)
def test_meaning_of_an_error(
    error_type: str, message: str, causes: Sequence[str], place: Place, expected: Meaning
) -> None:
    assert meaning_of(error_type, message, causes, place) is expected


def test_each_row_names_its_runtime_and_its_source() -> None:
    rows = [*ROWS, *NAMES, *TYPES.values()]
    assert all(row.runtime and row.source for row in rows)
    assert all(row.pattern is not None for row in (*ROWS, *NAMES))
