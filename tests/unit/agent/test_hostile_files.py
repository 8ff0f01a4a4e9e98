"""What a program leaves in place of the files that the agent reads later, as root."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.agent.metric.trial_metric import FILE_NAME, TrialMetric
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.program.machine_processes import scheduled_processes
from trainmaster.agent.setup import first_record
from trainmaster.agent.setup.first_record import read_record
from trainmaster.agent.setup.gcs_mount import is_fuse
from trainmaster.agent.setup.package_layers import SEALS, PackageLayers

KEY = IncarnationKey(1, 1)


def within_seconds(read: Callable[[], object]) -> object:
    """Return the result, and fail if the read waits for a writer."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(read()), daemon=True)
    thread.start()
    thread.join(10.0)
    assert found, "the agent waits"
    return found[0]


def a_metric(work: Path) -> TrialMetric:
    metric = TrialMetric.__new__(TrialMetric)
    metric._work, metric._tag = work, "loss"
    return metric


def test_pipe_in_place_of_a_record_is_a_damaged_record(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "record.json")
    assert within_seconds(lambda: read_record(tmp_path / "record.json")) is None


def test_link_in_place_of_a_record_is_a_damaged_record(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "record.json").symlink_to(tmp_path / "other.json")
    assert read_record(tmp_path / "record.json") is None


def test_record_that_is_too_large_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_record, "RECORD_BYTES_MAX", 1_000)
    (tmp_path / "record.json").write_text('{"a": ["b"]}' + 2_000 * " ")
    assert read_record(tmp_path / "record.json") == {"a": ["b"]}
    (tmp_path / "record.json").write_text(2_000 * " " + '{"a": ["b"]}')
    assert read_record(tmp_path / "record.json") is None


@pytest.mark.parametrize("seals", ["[1]", "1", '["ab", 2]', "[" * 100_000])
def test_damaged_seals_of_layers_install_the_packages_again(tmp_path: Path, seals: str) -> None:
    layers = PackageLayers(tmp_path, (), ())
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / SEALS).write_text(seals)
    assert layers._read_seals() == {}


def test_pipe_in_place_of_the_metric_file_reports_nothing(tmp_path: Path) -> None:
    file = tmp_path / "metric" / "1" / FILE_NAME
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    assert within_seconds(lambda: a_metric(tmp_path)._read_records(KEY)) == []


def test_link_of_a_container_does_not_name_a_file_of_the_vm(tmp_path: Path) -> None:
    (tmp_path / "of_the_vm").write_text('{"loss": "0.5", "global_step": "1"}\n')
    file = tmp_path / "metric" / "1" / FILE_NAME
    file.parent.mkdir(parents=True)
    file.symlink_to(tmp_path / "of_the_vm")
    assert a_metric(tmp_path)._read_records(KEY) == []


def test_process_whose_name_is_cut_within_a_letter_is_found(tmp_path: Path) -> None:
    """The kernel keeps 15 bytes of a name, whatever letters they are."""
    group = tmp_path / "fs" / "system.slice" / "cron.service"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("10\n11\n")
    for pid, name in ((10, b"cron"), (11, "学習学習学習".encode()[:15][:-1])):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_bytes(name + b"\n")
    assert scheduled_processes(tmp_path, tmp_path / "fs") == [11]


@pytest.mark.parametrize("name", [b"/data/\xe9t\xe9", "/data/a\u2028b".encode(), b"/a\x0cb", b""])
def test_mount_of_any_name_does_not_hide_those_of_fuse(tmp_path: Path, name: bytes) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"tmpfs " + name + b" tmpfs rw 0 0\ngcsfuse /gcs fuse.gcsfuse rw 0 0\n")
    assert is_fuse(Path("/gcs"), mounts)
    assert not is_fuse(Path("/data"), mounts)


def test_line_of_mounts_may_be_incomplete(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"\n \nx\n")
    assert not is_fuse(Path("/gcs"), mounts)
