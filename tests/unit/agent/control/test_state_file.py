"""The state file: a full disk, and a crash within a write."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.agent.control.state_file import SLOT_BYTES, StoredState
from trainmaster.agent.model.results import TAIL_CHARS
from trainmaster.agent.model.vm_config import IncarnationKey

VM = "4711"


def state(incarnation: int, tail: str = "") -> StoredState:
    exit_ = {"cause": "process", "exit_status": 1, "tail": tail}
    return StoredState(VM, started=IncarnationKey(1, incarnation), exit=exit_)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def full_disk(file: Path) -> Iterator[None]:
    """No file can grow beyond what the state file has at its first write."""
    state(1).save(file)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * SLOT_BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("full_disk")
def test_state_is_written_although_no_file_can_grow(file: Path) -> None:
    first = file.stat()
    blocks = first.st_blocks
    assert blocks * 512 >= 2 * SLOT_BYTES, "the disk has given all blocks at the first write"
    for incarnation in range(2, 6):
        saved = state(incarnation, "\U0001f600" * TAIL_CHARS)
        saved.save(file)
        assert StoredState.load(file, VM) == saved
        assert (file.stat().st_ino, file.stat().st_blocks) == (first.st_ino, blocks)
        assert os.listdir(file.parent) == ["state"]  # noqa: PTH208 - names only


def test_write_that_is_cut_anywhere_leaves_the_state_before_it(file: Path) -> None:
    first, second = state(1), state(2, "the end")
    first.save(file)
    before = file.read_bytes()
    second.save(file)
    after = file.read_bytes()
    changed = [index for index in range(len(after)) if before[index] != after[index]]
    for end in range(changed[0], changed[-1] + 1):
        file.write_bytes(after[:end] + before[end:])
        assert StoredState.load(file, VM) == first
    file.write_bytes(after)
    assert StoredState.load(file, VM) == second


def test_file_of_another_vm_or_a_damaged_one_is_an_empty_state(file: Path) -> None:
    state(1).save(file)
    assert StoredState.load(file, "4712") == StoredState("4712")
    file.write_bytes(file.read_bytes()[:40])
    assert StoredState.load(file, VM) == StoredState(VM)
    state(2).save(file)
    assert StoredState.load(file, VM) == state(2)


def test_state_that_is_too_long_is_refused_and_the_one_before_it_stays(file: Path) -> None:
    state(1).save(file)
    with pytest.raises(OSError, match="bytes"):
        replace(state(2), announced=["x" * SLOT_BYTES]).save(file)
    assert StoredState.load(file, VM) == state(1)
