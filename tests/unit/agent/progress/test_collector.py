"""Which source counts at each report of a program's progress, and what programs may send to the
status server.

The sources, best first: what the program reports to the agent's status server (in the protocol of
Kubeflow's Trainer), what it prints, and the summary events that it writes. A report has *points*:
the share that is done, the step, and metrics.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainmaster.agent.model.reading import METRICS_MAX, Reading
from trainmaster.agent.model.results import NamedValue
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.progress.collector import TAKEOVER_S, ProgressCollector
from trainmaster.agent.progress.status_server import BODY_BYTES_MAX
from trainmaster.agent.reporting.serial_console import Console


class FakeEvents:
    """Summary events of the job."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.calls: list[str] = []

    def read_if_due(self) -> None:
        self.calls.append("read_if_due")

    def latest(self, since: float) -> Reading:
        return self.reading


class Bench:
    """A collector with a clock, and the three sources of one program."""

    def __init__(self, work: Path) -> None:
        self.now = 0.0
        self.events = FakeEvents()
        self.output = ""
        self.collector = ProgressCollector(work, Console(), self.events, lambda: self.now)  # type: ignore[arg-type]
        self.begin(1)

    def begin(self, incarnation: int) -> None:
        self.collector.begin(IncarnationKey(1, incarnation), lambda: self.output)

    def minute(self) -> dict[str, tuple[float, str]]:
        """Let a minute pass. Return the points of its report: name → value and source."""
        self.now += 60
        self.collector.read_events_if_needed()
        return {name: (value, source) for name, value, source in self.collector.points()}

    def post(self, body: Any, *, token: str | None = None, length: str | None = None) -> int:
        variables = self.collector.variables(str(self.collector.folder))
        own = Path(variables["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text("ascii")
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {own if token is None else token}"}
        request = urllib.request.Request(
            variables["KUBEFLOW_TRAINER_SERVER_URL"], data, headers, method="POST"
        )
        if length is not None:
            request.add_header("Content-Length", length)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def report(self, percent: float | None = None, **metrics: object) -> None:
        status = {
            "metrics": [{"name": name, "value": str(value)} for name, value in metrics.items()]
        }
        assert self.post({"trainerStatus": {**status, "progressPercentage": percent}}) == 200


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    assert bench.collector._server
    server = bench.collector._server._http
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield bench
    server.shutdown()
    server.server_close()


def test_report_has_position_and_metrics(bench: Bench) -> None:
    bench.report(41, current_step=123, total_steps=300, loss=1.71)
    assert bench.minute() == {
        "share": (0.41, "reported"),
        "step": (123, "reported"),
        "steps": (300, "reported"),
        "metric/loss": (1.71, "reported"),
    }
    assert bench.minute() == {}, "no news"


def test_percentage_without_steps_counts_only_where_steps_were_never_reported(bench: Bench) -> None:
    bench.report(25)
    assert bench.minute() == {"share": (0.25, "reported")}
    bench.report(50, current_step=150, total_steps=300)
    bench.report(100)  # the program was stopped at step 150
    assert "share" not in bench.minute()


def test_worse_source_replaces_a_silent_one_after_a_while(bench: Bench) -> None:
    bench.report(10, current_step=10, total_steps=100, loss=3)
    bench.output = "step 11/100 loss 2.5\n"
    assert {source for _, source in bench.minute().values()} == {"reported"}
    bench.output = "step 12/100 loss 2.4\n"
    assert bench.minute() == {}, "the better source may still report"
    bench.output = "step 13/100 loss 2.3\n"
    assert bench.minute()["step"] == (13, "printed")
    bench.report(14, current_step=14, total_steps=100, loss=2.2)
    assert bench.minute()["step"] == (14, "reported")


def test_summary_events_are_listed_only_while_nothing_else_has_metrics(bench: Bench) -> None:
    bench.output = "\r 10%|█ | 10/100 [00:10<01:30, 1.0it/s, loss=0.5]"
    bench.minute()
    assert len(bench.events.calls) == 0
    for done in (20, 30):
        bench.output = f"\r {done}%|█ | {done}/100 [00:10<01:30, 1.0it/s, loss=0.{done}]"
        bench.minute()
    assert len(bench.events.calls) == 0
    bench.events.reading = Reading(step=7, metrics={"epoch_loss": 0.25})
    for _ in range(int(TAKEOVER_S / 60)):
        bench.minute()
    assert len(bench.events.calls) == 1
    bench.events.reading = Reading(step=8, metrics={"epoch_loss": 0.2})
    assert bench.minute() == {"step": (8, "events"), "metric/epoch_loss": (0.2, "events")}


def test_metrics_of_bars_without_any_come_from_events_beside_the_bar(bench: Bench) -> None:
    bench.events.reading = Reading(step=7, metrics={"loss": 0.25})
    bench.output = "\r 10%|█ | 10/100 [00:10<01:30, 1.0it/s]"
    points = bench.minute()
    assert points["step"] == (10.0, "printed")
    assert points["metric/loss"] == (0.25, "events")


def test_next_incarnation_begins_without_the_output_of_the_last_one(bench: Bench) -> None:
    bench.report(90, current_step=90, total_steps=100)
    bench.minute()
    bench.output = ""
    bench.begin(2)
    assert bench.minute() == {}
    bench.report(50, current_step=50, total_steps=100)
    assert bench.minute()["step"] == (50, "reported")


def test_names_of_metrics_are_limited_over_all_reports(bench: Bench) -> None:
    names: set[str] = set()
    for number in range(20):
        new_metrics = {f"metric{number}-{index}": 1.0 + number for index in range(100)}
        bench.report(number, **new_metrics)
        names |= {name for name in bench.minute() if name.startswith("metric/")}
    assert len(names) == METRICS_MAX


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"progressPercentage": -1}, set()),
        ({"progressPercentage": 101}, set()),
        ({"progressPercentage": "NaN"}, set()),
        ({"progressPercentage": True}, set()),
        ({"progressPercentage": [1]}, set()),
        ({"progressPercentage": 10**400}, set()),
        (
            {
                "metrics": [
                    {"name": "current_step", "value": "9" * 400},
                    {"name": "total_steps", "value": "1"},
                ]
            },
            set(),
        ),
        (
            {
                "metrics": [
                    {"name": "current_step", "value": "7"},
                    {"name": "total_steps", "value": "3"},
                ]
            },
            {"step"},
        ),
        ({"metrics": [{"name": "a\x1b[2Jb", "value": "1"}, {"name": "", "value": "1"}]}, set()),
        # A name is cut after 100 characters, and has no lines.
        (
            {"metrics": [{"name": "a\nb" * 100, "value": "1"}]},
            {f"metric/{('a b' * 100)[:100]}"},
        ),
        (
            {
                "metrics": [
                    {"name": "loss", "value": value}
                    for value in ("nan", "inf", "-inf", "1e999", "", "x")
                ]
            },
            set(),
        ),
        ({"metrics": [{"name": "loss", "value": "1e999"}]}, {"not_finite/loss"}),
    ],
)
def test_hostile_report_shows_nothing_false(
    bench: Bench, status: object, expected: set[str]
) -> None:
    assert bench.post({"trainerStatus": status}) == 200
    assert set(bench.minute()) == expected


@pytest.mark.parametrize(
    ("body", "arguments", "status"),
    [
        ({"trainerStatus": {}}, {"token": "wrong"}, 401),
        ({"trainerStatus": {}}, {"token": "\xe9"}, 401),
        (b"x", {"length": str(BODY_BYTES_MAX + 1)}, 413),
        (b"x", {"length": "-1"}, 413),
        (b"x", {"length": "²"}, 413),
        (b"[" * BODY_BYTES_MAX, {}, 400),
        (b"\xff", {}, 400),
        ([], {}, 400),
        ({"trainerStatus": 5}, {}, 400),
        ({"trainerStatus": {"metrics": [1]}}, {}, 400),
        ({"trainerStatus": {"metrics": 7}}, {}, 400),
    ],
)
def test_wrong_report_is_refused(
    bench: Bench, body: Any, arguments: dict[str, str], status: int
) -> None:
    assert bench.post(body, **arguments) == status
    assert bench.minute() == {}
    bench.report(5)
    assert bench.minute()["share"] == (0.05, "reported"), "the server goes on"


def test_last_progress_is_that_of_the_whole_output_though_it_is_no_news(bench: Bench) -> None:
    bench.output = "Epoch 2/8 loss 0.5\n"
    bench.minute()
    last = bench.collector.last()
    assert last
    assert (last.share, last.epoch, last.epochs) == (0.25, 2, 8)
    assert list(last.metrics) == [NamedValue("loss", 0.5)]


def test_last_epoch_of_a_program_that_counts_from_zero_is_the_end(bench: Bench) -> None:
    bench.output = "Epoch 0/3 loss 0.5\n"
    bench.minute()
    bench.output = "Epoch 2/3 loss 0.4\n"
    last = bench.collector.last()
    assert last
    assert (last.share, last.epoch) == (1.0, 3)


def test_full_bar_is_the_end_of_the_work_after_the_exit(bench: Bench) -> None:
    bench.output = "\r 98%|█ | 98/100 [00:10<00:01, 1.0it/s]"
    bench.minute()
    bench.output += "\r100%|█ | 100/100 [00:11<00:00, 1.0it/s]"
    last = bench.collector.last()
    assert last
    assert (last.share, last.step, last.steps) == (1.0, 100, 100)


def test_bar_of_each_epoch_says_nothing_about_the_end(bench: Bench) -> None:
    bar = "\r 50%|█ | 50/100 [00:05<00:05, 1.0it/s]\r100%|█ | 100/100 [00:11<00:00, 1.0it/s]\n"
    bench.output = bar + bar
    assert bench.collector.last() is None


def test_nan_is_reported_by_its_name(bench: Bench) -> None:
    bench.output = "Epoch 1/8 loss: nan acc: 0.1\n"
    assert bench.minute()["not_finite/loss"] == (1.0, "printed")
    last = bench.collector.last()
    assert last
    assert list(last.not_finite) == ["loss"]
    assert list(last.metrics) == [NamedValue("acc", 0.1)]


def test_constant_count_is_no_progress(bench: Bench) -> None:
    bench.output = "batch 32/32 loss 0.5\nbatch 32/32 loss 0.4\n"
    assert bench.minute() == {"metric/loss": (0.4, "printed")}
    last = bench.collector.last()
    assert last
    assert last.share is None


def test_program_that_says_nothing_has_no_last_progress(bench: Bench) -> None:
    bench.output = "hello\n"
    assert bench.collector.last() is None
