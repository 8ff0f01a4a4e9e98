"""`trainmaster tensorboard`: the names of runs, and a copy of event files that grows with them."""

from __future__ import annotations

import base64
import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import google_crc32c
import pytest

from tests.support.jobs import a_job, a_plan, change_plan
from tests.support.tuning_jobs import a_tuning_job
from trainmaster.cli.tensorboard.log_folders import LogFolder, folder_of_job, folder_of_option
from trainmaster.cli.tensorboard.mirror import Mirror
from trainmaster.core.model.origin import Dialect
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.tools.event_files import StoredFile

EVENTS = "events.out.tfevents.1.host"
VERTEX = change_plan(a_plan(), dialect=Dialect.VERTEX, output_directory="gs://bucket/out/")


@dataclass
class FakeStorage:
    """Objects by URI, and the reads of them."""

    objects: dict[str, bytes] = field(default_factory=dict)
    reads: list[tuple[str, int]] = field(default_factory=list)
    generations: dict[str, int] = field(default_factory=dict)
    is_down: bool = False

    def put(self, name: str, content: bytes) -> None:
        uri = f"gs://bucket/{name}"
        self.objects[uri] = content
        self.generations[uri] = self.generations.get(uri, 0) + 1

    def list(self, folder: str) -> Iterator[StoredFile]:
        for uri, content in self.objects.items():
            if uri.startswith(folder):
                crc = base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
                yield StoredFile(uri, len(content), self.generations[uri], crc)

    def read(self, file: StoredFile, start: int) -> bytes | None:
        if self.is_down:
            raise TemporaryError("503")
        self.reads.append((file.uri.rpartition("/")[2], start))
        content = self.objects.get(file.uri)
        return (
            None
            if content is None or self.generations[file.uri] != file.generation
            else content[start:]
        )


@pytest.fixture
def storage() -> FakeStorage:
    return FakeStorage()


@pytest.fixture
def mirror(tmp_path: Path, storage: FakeStorage) -> Mirror:
    return Mirror(tmp_path, storage, (LogFolder("digits_1", "gs://bucket/digits/"),))


def copies(mirror: Mirror) -> dict[str, bytes]:
    return {
        str(path.relative_to(mirror.root)): path.read_bytes()
        for path in mirror.root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("folder", "stored", "copied"),
    [
        (folder_of_job(a_job()), "digits/train/" + EVENTS, "digits_1/train/" + EVENTS),
        (folder_of_job(a_job(plan=VERTEX)), "out/logs/" + EVENTS, "digits_1/" + EVENTS),
        (folder_of_job(a_job(plan=VERTEX)), "out/model/" + EVENTS, None),
        (
            folder_of_job(a_tuning_job("s")),
            "digits/3/eval/" + EVENTS,
            "digits_1/trial-3/eval/" + EVENTS,
        ),
        (folder_of_job(a_tuning_job("s")), "digits/other/" + EVENTS, None),
        (folder_of_job(a_tuning_job("s")), "digits/" + EVENTS, None),
        (
            folder_of_job(replace(a_tuning_job("s"), plan=VERTEX)),
            "out/3/logs/" + EVENTS,
            "digits_1/trial-3/" + EVENTS,
        ),
        (folder_of_job(replace(a_tuning_job("s"), plan=VERTEX)), "out/3/model/" + EVENTS, None),
        (folder_of_option("old=gs://bucket/runs"), "runs/a/" + EVENTS, "old/a/" + EVENTS),
        (folder_of_option("gs://bucket/runs/2019/"), "runs/2019/" + EVENTS, "2019/" + EVENTS),
        (
            folder_of_job(a_job()),
            "digits/train/plugins/profile/x.pb",
            "digits_1/train/plugins/profile/x.pb",
        ),
        (folder_of_job(a_job()), "digits/model/weights", None),
        (folder_of_job(a_job()), "digits/../../" + EVENTS, None),
        (folder_of_job(a_job()), "digits//" + EVENTS, None),
    ],
)
def test_event_file_is_copied_to_the_folder_of_its_run(
    tmp_path: Path, storage: FakeStorage, folder: LogFolder, stored: str, copied: str | None
) -> None:
    storage.put(stored, b"points")
    mirror = Mirror(tmp_path / "mirror", storage, (folder,))
    mirror.update()
    assert copies(mirror) == ({copied: b"points"} if copied else {})
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and mirror.root not in path.parents
    ]


def test_only_the_new_end_of_a_file_is_read(mirror: Mirror, storage: FakeStorage) -> None:
    storage.put("digits/" + EVENTS, b"one")
    assert mirror.update() == 1
    storage.put("digits/" + EVENTS, b"one two")
    assert mirror.update() == 1
    assert mirror.update() == 0
    assert storage.reads == [(EVENTS, 0), (EVENTS, 3)]
    assert copies(mirror) == {f"digits_1/{EVENTS}": b"one two"}


@pytest.mark.parametrize(
    "content", [b"other words", b"1", b""], ids=["another beginning", "shorter", "empty"]
)
def test_replaced_file_is_copied_as_a_whole(
    mirror: Mirror, storage: FakeStorage, content: bytes
) -> None:
    storage.put("digits/" + EVENTS, b"one")
    mirror.update()
    storage.put("digits/" + EVENTS, content)
    mirror.update()
    assert copies(mirror) == {f"digits_1/{EVENTS}": content}


def test_file_written_again_with_the_same_content_is_not_read(
    mirror: Mirror, storage: FakeStorage
) -> None:
    storage.put("digits/" + EVENTS, b"one")
    mirror.update()
    storage.put("digits/" + EVENTS, b"one")
    mirror.update()
    assert storage.reads == [(EVENTS, 0)]


def test_file_that_is_replaced_between_listing_and_reading_is_copied_next_time(
    mirror: Mirror, storage: FakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("digits/" + EVENTS, b"one")
    listed = list(storage.list("gs://bucket/digits/"))
    storage.put("digits/" + EVENTS, b"one two")
    with monkeypatch.context() as patched:
        patched.setattr(storage, "list", lambda _: iter(listed))
        assert mirror.update() == 0
    assert copies(mirror) == {}
    mirror.update()
    assert copies(mirror) == {f"digits_1/{EVENTS}": b"one two"}


def test_error_leaves_a_copy_that_the_next_update_completes(
    mirror: Mirror, storage: FakeStorage
) -> None:
    storage.put("digits/" + EVENTS, b"one")
    mirror.update()
    storage.put("digits/" + EVENTS, b"one two")
    storage.is_down = True
    with pytest.raises(TemporaryError):
        mirror.update()
    storage.is_down = False
    mirror.update()
    assert copies(mirror) == {f"digits_1/{EVENTS}": b"one two"}


@pytest.mark.parametrize(
    "name", ["a." + EVENTS + "/b." + EVENTS, EVENTS + "x" * 300], ids=["in a file", "too long"]
)
def test_file_with_an_impossible_name_is_left_out_and_stops_no_other(
    mirror: Mirror, storage: FakeStorage, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    storage.put("digits/a." + EVENTS, b"one")
    mirror.update()
    storage.put("digits/" + name, b"by a program")
    storage.put("digits/b/" + EVENTS, b"two")
    mirror.update()
    mirror.update()
    assert copies(mirror) == {f"digits_1/a.{EVENTS}": b"one", f"digits_1/b/{EVENTS}": b"two"}
    assert capsys.readouterr().err.count("is left out") == 1


def test_full_disk_is_an_error_with_the_file(
    mirror: Mirror, storage: FakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    storage.put("digits/" + EVENTS, b"one")
    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(PermanentError, match=f"digits/{EVENTS} cannot be copied .*No space left"):
        mirror.update()


def test_job_without_a_directory_is_refused_with_the_option() -> None:
    plan = a_plan()
    without = a_job(plan=replace(plan, program=replace(plan.program, job_dir=None)))
    with pytest.raises(
        PermanentError, match=r"digits_1 has no jobDir.*--logdir gs://BUCKET/FOLDER"
    ):
        folder_of_job(without)


@pytest.mark.parametrize(
    "text", ["runs", "s3://bucket/runs", "gs://", "a b=gs://bucket/runs", "=gs://bucket"]
)
def test_malformed_folder_is_refused(text: str) -> None:
    with pytest.raises(PermanentError, match=re.escape(f"--logdir {text}")):
        folder_of_option(text)
