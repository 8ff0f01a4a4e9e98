"""Reading the summary event files, which TensorBoard shows, of a trial: which parts, when, and how
much. A *look* lists the folder and reads what is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.event_files import event, event_file
from trainmaster.agent.metric import summary_metric
from trainmaster.agent.metric.summary_metric import (
    FILES_MAX,
    INTERVAL_S,
    LOAD_MAX,
    PAUSE_MAX_S,
    TAGS_MAX,
    SummaryMetric,
    select_newest,
)
from trainmaster.agent.model.reading import METRICS_MAX
from trainmaster.agent.setup.cloud_storage import StoredObject
from trainmaster.agent.setup.setup_errors import new_setup_error

TAG = "accuracy"
FOLDER = "gs://b/d/3"
NAME = f"{FOLDER}/events.out.tfevents.1.host"


@dataclass
class Bucket:
    """Cloud Storage, as `StorageReader` reads it."""

    objects: dict[str, bytes] = field(default_factory=dict)
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    """Object, first byte and number of bytes of each read."""
    lists: int = 0
    is_down: bool = False
    clock: float = 0.0
    list_s: float = 0.0
    """How long a listing takes."""
    forbidden: set[str] = field(default_factory=set)

    def list_below(self, folder: str) -> Iterator[StoredObject]:
        self.lists += 1
        self.clock += self.list_s
        if self.is_down:
            raise new_setup_error("DownloadError", f"cannot list {folder}", transient=True)
        names = [uri for uri in self.objects if uri.startswith(f"{folder}/")]
        for at, uri in enumerate(names):
            yield StoredObject(uri, f"2026-11-21T03:{at:02}:00Z", len(self.objects[uri]))

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        if uri in self.forbidden:
            raise new_setup_error("DownloadError", f"cannot read {uri}", transient=False)
        self.reads.append((uri, start, length))
        return self.objects[uri][start : start + length]


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def metric(bucket: Bucket, log: list[str]) -> SummaryMetric:
    return SummaryMetric(TAG, FOLDER, bucket, log.append, lambda: bucket.clock)  # type: ignore[arg-type]


def read(metric: SummaryMetric, bucket: Bucket) -> list[tuple[int, float]]:
    """Look after the usual pause. Return the step and value of all measurements so far."""
    bucket.clock += INTERVAL_S
    metric.read_if_due()
    return [(measurement.step, measurement.value) for measurement in metric.measurements(since=0.0)]


def points(*steps: int) -> bytes:
    """Return an event file with a measurement of each step, a quarter of the step."""
    return event_file(event(float(step), step, TAG, step / 4) for step in steps)


def test_measurements_of_all_files_are_in_the_order_of_their_times(
    metric: SummaryMetric, bucket: Bucket
) -> None:
    bucket.objects = {
        f"{FOLDER}/train/events.out.tfevents.1.host": points(1, 3),
        f"{FOLDER}/eval/events.out.tfevents.2.host": points(2, 4),
        f"{FOLDER}/model/saved_model.pb": b"no events",
        "gs://b/d/30/events.out.tfevents.1.host": points(9),
    }
    assert read(metric, bucket) == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert [measurement.step for measurement in metric.measurements(since=3.0)] == [3, 4]


def test_only_what_was_added_is_read(metric: SummaryMetric, bucket: Bucket) -> None:
    first, both = points(1), points(1, 2)
    bucket.objects[NAME] = first
    assert read(metric, bucket) == [(1, 0.25)]
    assert read(metric, bucket) == [(1, 0.25)]
    bucket.objects[NAME] = both
    assert read(metric, bucket) == [(1, 0.25), (2, 0.5)]
    assert bucket.reads == [(NAME, 0, len(first)), (NAME, len(first), len(both) - len(first))]


def test_incomplete_record_is_read_when_it_is_complete(
    metric: SummaryMetric, bucket: Bucket
) -> None:
    first, both = points(1), points(1, 2)
    for end in range(len(first), len(both)):
        bucket.objects[NAME] = both[:end]
        assert read(metric, bucket) == [(1, 0.25)]
    bucket.objects[NAME] = both
    assert read(metric, bucket) == [(1, 0.25), (2, 0.5)]


def test_corrupt_file_is_named_once_and_other_files_are_read(
    metric: SummaryMetric, bucket: Bucket, log: list[str]
) -> None:
    corrupt, other = f"{FOLDER}/a/tfevents", f"{FOLDER}/b/tfevents"
    bucket.objects = {corrupt: points(1) + b"no record at all", other: points(2)}
    read(metric, bucket)
    bucket.objects = {corrupt: points(1, 3, 5), other: points(2, 4)}
    assert read(metric, bucket) == [(1, 0.25), (2, 0.5), (4, 1.0)]
    problems = [line for line in log if "not read any further" in line]
    assert problems == [
        f"Summary events in {corrupt} are not read any further: the checksum of 8 bytes is wrong."
    ]


def test_storage_that_does_not_answer_is_logged_once(
    metric: SummaryMetric, bucket: Bucket, log: list[str]
) -> None:
    bucket.objects[NAME], bucket.is_down = points(1), True
    assert read(metric, bucket) == read(metric, bucket) == []
    assert log == [f"Summary events cannot be read now: cannot list {FOLDER}."]
    bucket.is_down = False
    assert read(metric, bucket) == [(1, 0.25)]


def test_file_that_may_not_be_read_does_not_hide_the_others(
    metric: SummaryMetric, bucket: Bucket, log: list[str]
) -> None:
    forbidden = f"{FOLDER}/a/tfevents"
    bucket.objects, bucket.forbidden = {forbidden: points(1), NAME: points(2, 3)}, {forbidden}
    assert read(metric, bucket) == read(metric, bucket) == [(2, 0.5), (3, 0.75)]
    assert log.count(f"Summary events in {forbidden} are not read: cannot read {forbidden}.") == 1


def test_folder_is_listed_once_a_minute(metric: SummaryMetric, bucket: Bucket) -> None:
    for _ in range(120):  # ten minutes of the report's interval
        bucket.clock += 5.0
        metric.read_if_due()
    assert bucket.lists == 10


def test_slow_look_is_followed_by_a_longer_pause(metric: SummaryMetric, bucket: Bucket) -> None:
    bucket.list_s = 6.0
    metric.read_if_due()
    bucket.clock += 6.0 / LOAD_MAX - 1.0
    metric.read_if_due()
    assert bucket.lists == 1
    bucket.clock += 1.0
    metric.read_if_due()
    assert bucket.lists == 2
    bucket.list_s = 0.0
    bucket.clock += PAUSE_MAX_S
    metric.read_if_due()
    assert bucket.lists == 3


def test_look_reads_no_more_than_its_budget_and_the_next_continues(
    metric: SummaryMetric, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = points(*range(1, 41))
    monkeypatch.setattr(summary_metric, "PIECE_BYTES", 100)
    monkeypatch.setattr(summary_metric, "PASS_BYTES_MAX", 700)
    small = f"{FOLDER}/eval/tfevents"
    bucket.objects = {small: points(99), NAME: data}
    last_steps: list[int] = []
    """The last step of the large file that was known after each look."""
    while len(last_steps) < 10 and 40 not in last_steps:
        reads_before = len(bucket.reads)
        known = [step for step, _ in read(metric, bucket) if step != 99]
        last_steps.append(max(known, default=0))
        assert sum(length for _, _, length in bucket.reads[reads_before:]) <= 700
    assert last_steps == sorted(last_steps)
    assert last_steps[-1] == 40
    assert len(last_steps) > 2, "one look would exceed the budget"
    assert bucket.reads[0][0] == small, "a large file does not delay a small one"


def test_records_at_the_ends_of_pieces_are_read(
    metric: SummaryMetric, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.objects[NAME] = points(*range(1, 31))
    for piece in range(16, 120, 7):
        monkeypatch.setattr(summary_metric, "PIECE_BYTES", piece)
        fresh = SummaryMetric(TAG, FOLDER, bucket, lambda text: None, lambda: bucket.clock)  # type: ignore[arg-type]
        assert [step for step, _ in read(fresh, bucket)] == list(range(1, 31))


def test_large_record_is_skipped_without_reading_it(
    metric: SummaryMetric, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_metric, "PIECE_BYTES", 200)
    monkeypatch.setattr(summary_metric, "RECORD_BYTES_MAX", 1000)
    image = event(2.0, step=2, tag=TAG, value=0.5)
    image.summary.value[0].node_name = "x" * 50_000
    data = event_file(
        [event(1.0, step=1, tag=TAG, value=0.25), image, event(3.0, step=3, tag=TAG, value=0.75)]
    )
    bucket.objects[NAME] = data[:30_000]
    assert read(metric, bucket) == [(1, 0.25)]
    bucket.objects[NAME] = data
    assert read(metric, bucket) == [(1, 0.25), (3, 0.75)]
    assert sum(length for _, _, length in bucket.reads) < 1000


def test_latest_fifty_measurements_of_a_file_are_kept(
    metric: SummaryMetric, bucket: Bucket
) -> None:
    bucket.objects[NAME] = points(*range(1, 101))
    assert [step for step, _ in read(metric, bucket)] == list(range(51, 101))


def test_step_out_of_range_is_unknown(metric: SummaryMetric, bucket: Bucket) -> None:
    bucket.objects[NAME] = event_file(
        [event(1.0, step=-1, tag=TAG, value=0.5), event(2.0, 2**60, TAG, value=0.25)]
    )
    assert read(metric, bucket) == [(0, 0.5), (0, 0.25)]


def test_rest_is_read_without_waiting_for_the_next_minute(
    metric: SummaryMetric, bucket: Bucket
) -> None:
    read(metric, bucket)
    bucket.objects[NAME] = points(1)
    metric.read_rest()
    assert [measurement.step for measurement in metric.measurements(since=0.0)] == [1]


def test_cancelled_metric_reads_nothing(metric: SummaryMetric, bucket: Bucket) -> None:
    bucket.objects[NAME] = points(1)
    metric.cancel()
    metric.read_rest()
    assert not bucket.reads


def test_folder_with_very_many_objects_is_listed_up_to_a_limit(
    bucket: Bucket, metric: SummaryMetric, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_metric, "OBJECTS_MAX", 3)
    bucket.objects[f"{FOLDER}/1"] = b"data of the job"
    bucket.objects[NAME] = event_file([event(1.0, 1, TAG, 0.5)])
    bucket.objects |= {f"{FOLDER}/{number}": b"" for number in range(2, 9)}
    bucket.objects[f"{NAME}.behind"] = event_file([event(2.0, 2, TAG, 0.7)])
    for _ in range(2):
        assert read(metric, bucket) == [(1, 0.5)]
    said = f"Only the first 3 objects below {FOLDER} are searched for summary events."
    assert log.count(said) == 1


def test_newest_files_are_selected() -> None:
    stored = [
        StoredObject(f"gs://b/{at}", f"2026-11-21T03:{at:02}:00.000Z", 1)
        for at in range(FILES_MAX + 5)
    ]
    without_the_oldest = stored[5:]
    assert select_newest(stored) == without_the_oldest[::-1]


def metric_without_a_tag(bucket: Bucket) -> SummaryMetric:
    return SummaryMetric(
        tag="",
        job_dir=FOLDER,
        storage=bucket,  # type: ignore[arg-type]
        log=lambda text: None,
        clock=lambda: bucket.clock,
    )


def test_all_tags_are_read_without_a_tag(bucket: Bucket) -> None:
    everything = metric_without_a_tag(bucket)
    bucket.objects[f"{FOLDER}/train/events.out.tfevents.1.host"] = event_file(
        [
            event(50.0, step=0, tag="old", value=9.0),
            *(event(100.0 + step, step, "epoch_loss", 1 / (step + 1)) for step in range(4)),
        ]
    )
    bucket.objects[f"{FOLDER}/validation/events.out.tfevents.1.host"] = event_file(
        [event(103.5, step=3, tag="epoch_loss", value=0.5)]
    )
    everything.read_if_due()
    reading = everything.latest(since=100.0)
    assert (reading.share, reading.step, reading.steps) == (None, 3, None)
    assert reading.metrics == {"epoch_loss": 0.25, "validation/epoch_loss": 0.5}


def test_all_tags_of_a_hostile_file_are_bounded(bucket: Bucket) -> None:
    everything = metric_without_a_tag(bucket)
    bucket.objects[NAME] = event_file(
        [
            event(100.0, step=-5, tag=f"tag {number}", value=float("nan") if number % 2 else 1e30)
            for number in range(1000)
        ]
    )
    everything.read_if_due()
    reading = everything.latest(since=0.0)
    assert reading.step is None
    assert len(reading.metrics) == METRICS_MAX
    assert sum(len(file.by_tag) for file in everything._files.values()) == TAGS_MAX
