"""Advice about disks that are full, and files that are damaged or missing, by the messages that
Python and the frameworks print.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, WORKER_1, change_plan, exited
from tests.unit.core.rules.failed_programs import FOLDER, a_job_plan, advice, error
from trainmaster.core.events import ExitCause, ProgramError
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import GcsFolder
from trainmaster.core.rules.remedies import remedy_of_exit


def test_file_that_the_program_itself_names_absolutely_has_no_advice() -> None:
    message = "[Errno 2] No such file or directory: '/data/model.pt'"
    event = exited(CHIEF, 1, error=error("FileNotFoundError", message))
    assert remedy_of_exit(event, a_job_plan(FOLDER)) == ""


@pytest.mark.parametrize(
    ("gcs", "expected"), [(GcsFolder.OFF, "gcs: true"), (GcsFolder.REQUIRED, "")]
)
def test_file_below_gcs_has_advice_only_where_nothing_is_mounted(
    gcs: GcsFolder, expected: str
) -> None:
    message = "[Errno 2] No such file or directory: '/gcs/bucket/model.pt'"
    event = exited(CHIEF, 1, error=error("FileNotFoundError", message))
    text = remedy_of_exit(event, change_plan(a_job_plan(FOLDER), gcs=gcs))
    assert expected in text
    assert bool(text) == bool(expected)


@pytest.mark.parametrize(
    ("gcs", "setting"),
    [
        (GcsFolder.OFF, ", and set `trainmaster: {gcs: true}` in the job file."),
        (GcsFolder.REQUIRED, "."),
    ],
)
def test_file_that_is_opened_by_its_address_has_its_path(gcs: GcsFolder, setting: str) -> None:
    message = "[Errno 2] No such file or directory: 'gs://bucket/a b/x.csv'"
    event = exited(CHIEF, 1, error=error("FileNotFoundError", message))
    text = remedy_of_exit(event, change_plan(a_job_plan(FOLDER), gcs=gcs))
    assert text == (
        "`open` finds no addresses of Cloud Storage: pass it /gcs/bucket/a b/x.csv in place of"
        f" gs://bucket/a b/x.csv{setting}"
    )


DISK_FULL = "[Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("raised", "tail", "expected"),
    [
        (error("OSError", DISK_FULL), "", "disk of 100 GB is full"),
        (
            error("OSError", f"{DISK_FULL}: 'ckpt/3.pt'"),
            "",
            "set `bootDiskSizeGb: 200` in `masterConfig.diskConfig`, or write",
        ),
        (error("OperationalError", "database or disk is full"), "", "bootDiskSizeGb: 200"),
        (
            error(
                "RuntimeError", "[enforce fail] . PytorchStreamWriter failed writing file data/0"
            ),
            "",
            "bootDiskSizeGb: 200",
        ),
        (
            error(
                "RuntimeError",
                "[enforce fail at inline_container.cc:672] . unexpected pos 640 vs 534",
            ),
            "",
            "bootDiskSizeGb: 200",
        ),
        (error("OSError", "1000000 requested and 131056 written"), "", "bootDiskSizeGb: 200"),
        (None, "tar: a.tar: Cannot write: No space left on device\n", "bootDiskSizeGb: 200"),
        (error("OSError", f"{DISK_FULL}: '/dev/shm/torch_1'"), "", "shared memory"),
    ],
)
def test_remedy_of_a_full_disk_names_its_size_and_a_larger_one(
    raised: ProgramError | None, tail: str, expected: str
) -> None:
    assert expected in advice(exited(CHIEF, 1, error=raised, tail=tail))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "RuntimeError",
            "PytorchStreamReader failed reading zip archive: failed finding central directory.",
        ),
        (
            "RuntimeError",
            "unexpected EOF, expected 200355 more bytes. The file might be corrupted.",
        ),
        ("_pickle.UnpicklingError", "pickle data was truncated"),
        ("_pickle.UnpicklingError", "invalid load key, '\\x00'."),
        ("EOFError", "Ran out of input"),
        ("EOFError", "No data left in file"),
        (
            "ValueError",
            "Failed to read all data for array. Expected 9 elements, could only read 4 elements.",
        ),
        ("ValueError", "EOF: reading array data, expected 8000 bytes got 276"),
        ("zipfile.BadZipFile", "File is not a zip file"),
        ("EOFError", "Compressed file ended before the end-of-stream marker was reached"),
        (
            "OSError",
            "Unable to synchronously open file (truncated file: eof = 5904, stored_eof = 11808)",
        ),
        ("OSError", "Unable to synchronously open file (file signature not found)"),
        ("IndexError", "Read less bytes than requested"),
        ("OpError", "file is too short to be an sstable"),
        ("OpError", "The length checksum does not match: expected 2324967102 but actual is 12147"),
        ("DataLossError", "corrupted record at 0 (Is this even a TFRecord file?)"),
        ("SafetensorError", "Error while deserializing header: incomplete metadata"),
    ],
)
def test_remedy_of_a_damaged_file_is_to_begin_from_an_older_one(kind: str, message: str) -> None:
    assert "remove it, so that" in advice(exited(CHIEF, 1, error=error(kind, message)))


@pytest.mark.parametrize(
    "frame", ["torch/serialization.py:1612 in load", "torch/_weights_only_unpickler.py:528 in load"]
)
def test_end_of_a_file_without_words_is_a_damaged_file_only_where_one_is_loaded(frame: str) -> None:
    loads = ProgramError("EOFError", "", frame, "a.py:4 in f")
    receives = ProgramError("EOFError", "", "multiprocessing/connection.py:250 in recv")
    assert "remove it, so that" in advice(exited(CHIEF, 1, error=loads))
    assert advice(exited(CHIEF, 1, error=receives)) == ""


def test_remedy_of_a_full_disk_names_the_field_of_the_role_in_the_jobs_format() -> None:
    plan = a_job_plan()
    vertex = replace(plan, origin=replace(plan.origin, dialect=Dialect.VERTEX))
    full = error("OSError", DISK_FULL)
    # The first words in backquotes are the setting, the second ones its place.
    fields = [
        re.findall("`([^`]*)`", remedy_of_exit(exited(replica, 1, error=full), asked))[1]
        for asked in (plan, vertex)
        for replica in (CHIEF, WORKER_1)
    ]
    assert fields == [
        "masterConfig.diskConfig",
        "workerConfig.diskConfig",
        "workerPoolSpecs[0].diskSpec",
        "workerPoolSpecs[1].diskSpec",
    ]


def test_remedy_of_the_largest_disk_names_no_larger_one() -> None:
    plan = a_job_plan()
    groups = tuple(replace(group, boot_disk_gib=65_536) for group in plan.groups)
    event = exited(CHIEF, 1, error=error("OSError", DISK_FULL))
    text = remedy_of_exit(event, replace(plan, groups=groups))
    assert text.startswith("The VM's disk of 65536 GB is full, and a restart does not empty it: wr")


def test_remedy_of_an_installation_that_fills_the_disk_names_the_disk() -> None:
    tail = f"ERROR: Could not install packages due to an OSError: {DISK_FULL}"
    event = exited(CHIEF, 1, cause=ExitCause.INSTALL, tail=tail)
    assert "bootDiskSizeGb: 200" in remedy_of_exit(event, a_job_plan(FOLDER))
