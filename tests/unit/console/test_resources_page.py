"""The page of a job's resource metrics."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.console_site import Site
from tests.support.jobs import WORKER_0
from tests.support.metrics import FakeMetrics
from trainmaster.console.caches import MetricCache
from trainmaster.console.chart_axis import LEFT, RIGHT, WIDTH, TimeAxis
from trainmaster.console.incarnation_bands import draw_bands, incarnation_bands
from trainmaster.console.metric_chart import Line, Scale, draw_chart
from trainmaster.console.pages.resources_page import PERIODS_MAX, time_range
from trainmaster.errors import TemporaryError
from trainmaster.flows.user_requests import cancel_job
from trainmaster.ports.metrics import RESOURCES, Metric, MetricQuery, MetricsDeniedError, Reducer

PATH = "/jobs/digits_1/resources"
START = datetime(2026, 11, 21, 3, tzinfo=UTC)


@pytest.fixture
def site() -> Site:
    site = Site()
    site.world.start_running()
    site.world.wait(1800)
    site.open()
    return site


def add(site: Site, metric: Metric, replica: str, values: list[float], gpu: str = "") -> None:
    first = site.world.now.replace(second=0, microsecond=0) - timedelta(minutes=len(values))
    site.metrics.add(metric, replica, first, values, gpu)


def test_role_has_its_mean_and_the_range_of_its_machines(site: Site) -> None:
    add(site, Metric.CPU, "worker-0", [0.2, 0.4])
    add(site, Metric.CPU, "worker-1", [0.6, 0.8])
    text = site.text(PATH)
    assert '<td class="number">60% (40% to 80%)</td>' in text
    assert '<td class="number">40% (20% to 60%)</td>' in text
    assert text.count("<polygon") == 1
    assert "CPU: worker 60% at the end, at most 60%." in text


def test_replica_has_a_line_for_each_gpu_and_no_band(site: Site) -> None:
    for gpu, value in (("0", 0.25), ("1", 0.75)):
        add(site, Metric.GPU, "worker-1", [value, value], gpu)
    add(site, Metric.GPU, "worker-0", [0.5, 0.5], "0")
    text = site.text(f"{PATH}?replica=worker-1")
    columns = re.findall(r'<th scope="col" class="number">([^<]*)</th>', text)
    assert columns[:2] == ["GPU 0", "GPU 1"]
    assert ">25%</td>" in text
    assert "<polygon" not in text
    assert {query.replica for query in site.metrics.queries if query.period_s} == {"worker-1"}


def test_metrics_without_values_have_no_chart_and_cost_one_call_each(site: Site) -> None:
    add(site, Metric.CPU, "worker-0", [0.2, 0.4])
    assert site.text(PATH).count('<svg class="plot metric"') == 1
    assert len(site.metrics.queries) == len(RESOURCES) + 2
    reducers = {query.reducer for query in site.metrics.queries if query.metric is Metric.CPU}
    assert reducers == {Reducer.MEAN, Reducer.MIN, Reducer.MAX}


def test_labels_that_no_agent_writes_are_not_shown(site: Site) -> None:
    """Every program on a VM can write metrics with the VM's token."""
    add(site, Metric.CPU, "<script>-0", [0.5, 0.5])
    add(site, Metric.GPU, "worker-0", [0.01] * 15, "<b>")
    add(site, Metric.CPU, "worker-0", [-3.0, 7.0])
    for text in (site.text(PATH), site.text(f"{PATH}?replica=worker-0")):
        assert "script&gt;" not in text
        assert "&lt;b&gt;" not in text
        assert "idle" not in text
        assert "700%" in text


def test_idle_gpus_are_named(site: Site) -> None:
    add(site, Metric.GPU, "worker-0", [0.01] * 15, "0")
    assert "1 of 1 GPU was idle for the last 10 minutes" in site.text(PATH)


def test_missing_permission_is_shown_with_the_role(site: Site) -> None:
    site.metrics.error = MetricsDeniedError(
        "403: denied. Reading metrics needs roles/monitoring.viewer on the project p"
    )
    text = site.text(PATH)
    assert "Reading metrics needs roles/monitoring.viewer on the project p." in text
    assert "No values" not in text


def test_unavailable_monitoring_is_503(site: Site) -> None:
    site.metrics.error = TemporaryError("Cloud Monitoring does not answer")
    response = site.get(PATH)
    assert response.status_code == 503
    assert "Reload the page in a moment" in response.text


def test_page_without_values_says_why(site: Site) -> None:
    assert "roles/monitoring.metricWriter" in site.text(PATH)
    waiting = Site()
    waiting.world.submit()
    waiting.open()
    assert "No values yet: machines are measured while their program runs." in waiting.text(PATH)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        (f"{PATH}?hours=5", 400, "hours: must be one of 1, 6, 24, or be left out"),
        (f"{PATH}?replica=worker-9", 404, "digits_1 has no replica worker-9"),
        ("/jobs/nothing_1/resources", 404, "There is no job nothing_1"),
    ],
)
def test_wrong_address_is_refused_with_the_reason(
    site: Site, path: str, status: int, words: str
) -> None:
    response = site.get(path)
    assert (response.status_code, words in response.text) == (status, True)


def test_polls_within_a_minute_find_the_same_page(site: Site) -> None:
    add(site, Metric.CPU, "worker-0", [0.2, 0.4])
    site.world.now = site.world.now.replace(second=5)
    etag = site.get(PATH).headers["ETag"]
    site.world.now += timedelta(seconds=50)
    assert site.get(PATH, If_None_Match=etag).status_code == 304


@pytest.mark.parametrize(
    ("age", "hours", "period_s"),
    [
        (timedelta(minutes=5), "", 60),
        (timedelta(hours=4), "", 60),
        (timedelta(days=7), "", 2520),
        (timedelta(days=7), "1", 60),
    ],
)
def test_line_has_a_bounded_number_of_values(
    site: Site, age: timedelta, hours: str, period_s: int
) -> None:
    job = site.world.job
    assert job.started_at is not None
    start, end, period = time_range(job, job.started_at + age, hours)
    assert period == period_s
    assert (end - start).total_seconds() / period <= PERIODS_MAX
    assert end.timestamp() % period == 0
    assert end <= job.started_at + age


def test_ended_job_shows_its_last_reports(site: Site) -> None:
    cancel_job("digits_1", "anna", site.world.deps)
    job = site.world.job
    assert job.ended_at is not None
    for later in (timedelta(minutes=5), timedelta(days=30)):
        _, end, _ = time_range(job, job.ended_at + later, "")
        assert timedelta(minutes=2) <= end - job.ended_at < timedelta(minutes=3)


def test_line_is_interrupted_where_nothing_was_measured() -> None:
    times = [START + timedelta(minutes=minute) for minute in (1, 2, 3, 30, 31, 50)]
    line = Line("worker", dict.fromkeys(times, 0.5), {}, {})
    chart = draw_chart("CPU", [line], TimeAxis(START, START + timedelta(hours=1), 60), Scale.SHARE)
    (drawn,) = chart.lines
    assert [len(path.split()) for path in drawn.paths] == [3, 2]
    assert len(drawn.dots) == 1


@pytest.mark.parametrize(
    ("highest", "label"), [(0, "1 B/s"), (1.5e6, "2.0 MB/s"), (7e3, "10.0 kB/s"), (5e6, "5.0 MB/s")]
)
def test_axis_of_traffic_ends_at_a_round_value(highest: float, label: str) -> None:
    chart = draw_chart(
        "Network",
        [Line("ps", {START: highest}, {}, {})],
        TimeAxis(START, START + timedelta(hours=1), 60),
        Scale.RATE,
    )
    assert chart.y_ticks[-1][1] == label


def test_cache_asks_once_for_the_same_and_keeps_no_error() -> None:
    metrics = FakeMetrics(error=TemporaryError("later"))
    cache = MetricCache(metrics)
    query = MetricQuery("digits_1", Metric.CPU, START, START + timedelta(hours=1))
    with pytest.raises(TemporaryError):
        cache.read(query)
    metrics.error = None
    assert cache.read(query) == cache.read(query) == []
    assert len(metrics.queries) == 1


def restart(site: Site) -> None:
    """End the program of worker 0, and start the next round 120 s later: this long its VM takes to
    stop.
    """
    world = site.world
    world.kill(WORKER_0)
    ready_at = world.now + timedelta(seconds=120)
    world.silent = {WORKER_0}
    world.deliver()
    world.now = ready_at - timedelta(seconds=1)
    world.send("vm-ready", WORKER_0)
    world.deliver()
    world.wait(600)


def bands(page: str, kind: str) -> list[tuple[float, float, str]]:
    pattern = rf'<rect class="band band-{kind}" x="([^"]+)" width="([^"]+)"[^>]*>\s*<title>([^<]+)<'
    return [(float(x), float(width), words) for x, width, words in re.findall(pattern, page)]


def test_replica_has_a_band_for_each_incarnation_with_its_times(site: Site) -> None:
    restart(site)
    started_at, now = site.world.job.started_at, site.world.now
    assert started_at is not None
    add(site, Metric.CPU, "worker-0", [0.2] * 40)
    page = site.text(f"{PATH}?replica=worker-0")
    ((first_x, first_width, first_words),) = bands(page, "odd")
    ((second_x, _, second_words),) = bands(page, "even")
    assert first_words.startswith("attempt 1, incarnation 1, VM generation 1: ")
    assert second_words.startswith("attempt 1, incarnation 2, VM generation 1: ")
    start, end, _ = time_range(site.world.job, now, "")
    length_s = (end - start).total_seconds()
    down_s = (second_x - first_x - first_width) / (WIDTH - LEFT - RIGHT) * length_s
    assert down_s == pytest.approx(120, abs=5)
    other = site.text(f"{PATH}?replica=worker-1")
    assert bands(other, "odd") == []
    add(site, Metric.CPU, "worker-1", [0.2] * 40)
    assert len(bands(site.text(f"{PATH}?replica=worker-1"), "odd")) == 1


def test_charts_of_roles_show_when_a_replica_did_not_run(site: Site) -> None:
    add(site, Metric.CPU, "worker-0", [0.2] * 20)
    assert bands(site.text(PATH), "interrupted") == []
    restart(site)
    ((_, _, words),) = bands(site.text(PATH), "interrupted")
    assert words.startswith("chief 0, worker 0, worker 1 did not run: "), (
        "the members of a round stop together"
    )
    assert "times at which a replica was restarting" in site.text(PATH)


def test_bands_are_cut_at_the_edges_of_the_charts(site: Site) -> None:
    history = site.world.history
    now = site.world.now
    (band,) = draw_bands(incarnation_bands(history, WORKER_0, now), now - timedelta(minutes=5), now)
    assert (band.x, band.width) == (LEFT, WIDTH - LEFT - RIGHT)
    assert (
        draw_bands(incarnation_bands(history, WORKER_0, now), now, now + timedelta(minutes=5)) == ()
    )
