"""The order in which type, message and causes decide what an error means."""

from __future__ import annotations

import time
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
        pytest.param(
            "KeyError",
            "'connection timed out'",
            (),
            ANYWHERE,
            Meaning.BUG,
            id="a bug by nature, whatever its message says",
        ),
        pytest.param(
            "builtins.ValueError",
            "CUDA error: ECC",
            (),
            ANYWHERE,
            Meaning.BUG,
            id="a bug by nature, also with words of a device",
        ),
        pytest.param(
            "ValueError",
            "host not found: Name or service not known",
            (),
            ANYWHERE,
            Meaning.LOST_PEER,
            id="a type that reports a lost peer with these words",
        ),
        pytest.param(
            "ValueError",
            "host not found: Name or service not known",
            (),
            ALONE,
            Meaning.BUG,
            id="the same where there is no peer",
        ),
        pytest.param(
            "RuntimeError",
            "CUDA error: ECC",
            (),
            ANYWHERE,
            Meaning.TRANSIENT,
            id="words of a device",
        ),
        pytest.param(
            "RuntimeError",
            "CUDA error: ECC",
            (),
            CPUS,
            Meaning.UNKNOWN,
            id="the same without a device",
        ),
        pytest.param(
            "jaxlib.XlaRuntimeError",
            "INTERNAL: x",
            (),
            ANYWHERE,
            Meaning.TRANSIENT,
            id="a runtime of a device",
        ),
        pytest.param(
            "jaxlib.XlaRuntimeError",
            "INTERNAL: x",
            (),
            CPUS,
            Meaning.UNKNOWN,
            id="the same without a device, by type",
        ),
        pytest.param(
            "UnavailableError",
            "failed to connect: timed out",
            (),
            ANYWHERE,
            Meaning.LOST_PEER,
            id="a type of a lost peer before words of a network",
        ),
        pytest.param(
            "NotFound",
            "503 Service Unavailable",
            (),
            ANYWHERE,
            Meaning.TRANSIENT,
            id="words of a service before its type",
        ),
        pytest.param("NotFound", "no such thing", (), ANYWHERE, Meaning.SETTING, id="type alone"),
        pytest.param(
            "app.LoadError",
            "cannot load",
            ("requests.ReadTimeout",),
            ANYWHERE,
            Meaning.TRANSIENT,
            id="cause that may pass",
        ),
        pytest.param(
            "app.LoadError",
            "cannot load",
            ("KeyError",),
            ANYWHERE,
            Meaning.UNKNOWN,
            id="cause that is a bug",
        ),
        pytest.param(
            "PermissionError",
            "no",
            ("requests.ReadTimeout",),
            ANYWHERE,
            Meaning.SETTING,
            id="type before its causes",
        ),
        pytest.param(
            "client.PollTimeoutError",
            "no answer",
            (),
            ANYWHERE,
            Meaning.TRANSIENT,
            id="end of a type's name",
        ),
        pytest.param(
            "client.TimeoutSettingError",
            "negative",
            (),
            ANYWHERE,
            Meaning.UNKNOWN,
            id="another end of a type's name",
        ),
        pytest.param(
            "WorkerDiedError",
            "",
            (),
            ANYWHERE,
            Meaning.LOST_PEER,
            id="a type that names a dead worker",
        ),
        pytest.param(
            "",
            "wget: Connection timed out",
            (),
            ANYWHERE,
            Meaning.TRANSIENT,
            id="words without a type",
        ),
        pytest.param(
            "RuntimeError", "loss is negative", (), ANYWHERE, Meaning.UNKNOWN, id="unknown"
        ),
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


@pytest.mark.parametrize("part", ["1", "nccl"])
def test_long_message_of_one_repeated_part_takes_linear_time(part: str) -> None:
    message = part * (200_000 // len(part))
    started = time.process_time()
    assert meaning_of("InternalError", message) is not Meaning.BUG
    assert time.process_time() - started < 4
