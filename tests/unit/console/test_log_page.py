"""The log page: every line is shown once and in order, or the page says which lines it
leaves out.
"""

from __future__ import annotations

import html
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.console_browser import log_entry
from tests.support.console_site import Site
from tests.support.jobs import a_spec
from tests.support.world import World
from tests.unit.console.pages import between
from trainmaster.console.pages import log_download, log_window
from trainmaster.console.pages.log_window import FOLLOWED_MAX, LogPosition

LOGS = "/jobs/digits_1/logs"
WINDOW = 100
"""Lines of a window of `short`. Those of the browser tests are as long as users see them."""


@pytest.fixture
def log(site: Site) -> Site:
    site.world.start_running()
    return site


@pytest.fixture
def short(log: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a console with short windows, which need fewer lines."""
    monkeypatch.setattr(log_window, "LINES_MAX", WINDOW)
    return log


def an_entry(
    number: int, second: float, *, vm: str = "a", severity: str = "INFO", text: str = ""
) -> dict[str, Any]:
    """Return line `number` of a VM; `second` counts from 03:00:00."""
    minutes, seconds = divmod(second, 60)
    return {
        "timestamp": f"2026-11-21T03:{int(minutes):02d}:{seconds:012.9f}Z",
        "insertId": f"{vm}-{number:06d}",
        "severity": severity,
        "labels": {
            "ml.googleapis.com/task_name": f"worker-replica-{ord(vm) - ord('a')}",
            "trainmaster/vm": vm,
        },
        "textPayload": text or f"line {number}",
    }


def burst(count: int, begin: float, per_second: int = 400, first: int = 0) -> list[dict[str, Any]]:
    """Return lines of four VMs that print at the same times, as programs in lockstep do."""
    return [
        an_entry(number, begin + (number - first) // 4 * 4 / per_second, vm="abcd"[number % 4])
        for number in range(first, first + count)
    ]


def rows(page: str) -> list[str]:
    return re.findall(r'<tr id="line-([^"]+)"', page)


def link(page: str, paragraph: str) -> str:
    """Return the address in a paragraph, or an empty string."""
    found = re.search(rf'<p id="{paragraph}"(?:(?!</p>).)*?href="([^"]+)"', page, re.DOTALL)
    return LOGS + html.unescape(found[1]) if found else ""


def update(page: str) -> str:
    """Return the address by which the script updates a page."""
    found = re.search(r'data-update="([^"]*)"', page)
    assert found
    return LOGS + html.unescape(found[1])


def in_order(entries: list[dict[str, Any]]) -> list[str]:
    return [
        entry["insertId"]
        for entry in sorted(entries, key=lambda entry: (entry["timestamp"], entry["insertId"]))
    ]


def test_pages_of_older_lines_hold_each_line_once_though_many_have_one_time(short: Site) -> None:
    short.entries = burst(260, begin=10)
    page, shown = short.text(LOGS), list[str]()
    while True:
        shown = rows(page) + shown
        if not (older := link(page, "older")):
            break
        page = short.text(older)
    assert shown == in_order(short.entries)


def test_pages_from_a_time_on_hold_each_line_once(short: Site) -> None:
    short.entries = burst(260, begin=10)
    page, shown = short.text(f"{LOGS}?from=2026-11-21T03:00:10.1Z"), list[str]()
    while True:
        shown += rows(page)
        if not (newer := link(page, "newer")):
            break
        page = short.text(newer)
    lines_before = 40  # 0.1 s at 400 lines per second
    assert shown == in_order(short.entries)[lines_before:]
    assert 'name="from" value="2026-11-21T03:00:10.1Z"' in short.text(
        f"{LOGS}?from=2026-11-21T03:00:10.1Z"
    )


def test_address_of_a_line_shows_it_though_many_follow_within_seconds(short: Site) -> None:
    short.entries = burst(600, begin=10)
    number = 242
    linked = short.entries[number]
    shown = rows(short.text(f"{LOGS}?around={linked['timestamp']}"))
    place = shown.index(linked["insertId"])
    assert len(shown) == WINDOW
    assert place == pytest.approx(WINDOW / 2, abs=10), "in the middle"
    first = number - place
    assert shown == in_order(short.entries)[first : first + WINDOW]


def test_live_page_shows_each_line_of_moderate_bursts_and_late_ones(short: Site) -> None:
    short.entries = burst(90, begin=10)
    page, seen = short.text(LOGS), set[str]()
    late = an_entry(1, second=10.0401, vm="e")  # its time is among lines that are shown already
    for number in range(1, 5):
        seen |= set(rows(page))
        short.entries += burst(90, 10 + number, first=90 * number)
        if number == 1:
            short.entries.append(late)
        page = short.text(update(page))
        assert 'id="gap"' not in page
        assert rows(page) == sorted(rows(page), key=in_order(short.entries).index)
    assert seen | set(rows(page)) >= {
        entry["insertId"] for entry in short.entries if entry is not late
    }


def test_live_page_shows_every_line_of_a_large_burst(short: Site) -> None:
    short.entries = burst(50, begin=10)
    page = short.text(LOGS)
    shown = rows(page)
    short.entries += burst(440, begin=20, first=50)
    short.queries.clear()
    page = short.text(update(page))
    assert 'id="gap"' not in page
    assert len(short.queries) == FOLLOWED_MAX
    assert len(rows(page)) <= FOLLOWED_MAX * WINDOW
    burst_and_before = 440 + 50
    assert (shown + rows(page))[-burst_and_before:] == in_order(short.entries)
    short.queries.clear()
    assert len(rows(short.text(update(page)))) == WINDOW
    assert len(short.queries) == 1, "a page that is not behind reads one window"


def test_live_page_that_cloud_logging_refuses_further_windows_names_the_gap(short: Site) -> None:
    short.entries = burst(50, begin=10)
    page = short.text(LOGS)
    short.entries += burst(300, begin=20, first=50)
    short.log_calls_left = 2
    page = short.text(update(page))
    assert 'id="problem"' not in page
    assert rows(page) == in_order(short.entries)[-2 * WINDOW :]
    assert 'id="gap"' in page


def test_live_page_that_falls_behind_names_what_it_does_not_show(short: Site) -> None:
    short.entries = burst(50, begin=10)
    page = short.text(LOGS)
    shown = rows(page)
    short.entries += burst(800, begin=20, first=50)
    page = short.text(update(page))
    # The page shows the first burst, which ends 10.12 s after 03:00:00, and of the second one the
    # last five windows, which begin at 20.75 s.
    assert "an unknown number of lines from 2026-11-21T03:00:10.120" in page
    assert "to 2026-11-21T03:00:20.750Z are not shown" in page
    newest, gap = rows(page), link(page, "gap")
    assert link(short.text(update(page)), "gap") == gap, "it stays named while the page is updated"
    assert 'id="gap"' not in short.text(LOGS)
    following = short.text(gap)
    missing = rows(following)
    while newest[0] not in missing:
        following = short.text(link(following, "newer"))
        missing += rows(following)
    between = missing[: missing.index(newest[0])]
    assert shown + between + newest == in_order(short.entries)


def test_filters_have_their_effect_and_stay_in_the_links(log: Site) -> None:
    log.entries = [
        *(
            an_entry(number, 10 + number / 1_000, severity="ERROR", text="the loss")
            for number in range(1_200)
        ),
        *(
            an_entry(number, 10 + number / 1_000, vm="b", severity="ERROR", text="the loss")
            for number in range(5)
        ),
        an_entry(9_000, second=15, severity="INFO", text="the loss"),
        an_entry(9_001, second=15, severity="ERROR", text="fine"),
    ]
    page = log.text(f"{LOGS}?task=worker-replica-0&severity=ERROR&text=loss")
    shown = rows(page)
    assert shown == [f"a-{number:06d}" for number in range(200, 1_200)]
    assert rows(log.text(link(page, "older"))) == [f"a-{number:06d}" for number in range(200)]


def test_times_without_a_fraction_come_before_later_ones_of_their_second() -> None:
    times = ("2026-11-21T03:00:05Z", "2026-11-21T03:00:05.000000001Z", "2026-11-21T03:00:05.5Z")
    keys = [LogPosition(time).key for time in times]
    assert keys == sorted(keys)
    assert LogPosition("2026-11-21T04:00:05+01:00").key == keys[0]


@pytest.mark.parametrize("name", ["from", "before", "around", "follow", "gap"])
@pytest.mark.parametrize(
    "time", ["yesterday", "2026-11-21T03:000Z", "2026-11-21T03:00:Z", "2026-11-21.03:00:00Z"]
)
def test_wrong_time_is_refused_with_the_parameter(log: Site, name: str, time: str) -> None:
    response = log.get(f"{LOGS}?{name}={time}")
    assert response.status_code == 400
    assert f"{name}: must be a time" in response.text


@pytest.mark.parametrize("name", ["from", "before", "around", "follow", "gap"])
@pytest.mark.parametrize(
    "time", ['2026-11-21"03Z', "2026-11-21 03:00Z", "0001-01-01T00:00:00+14:00"]
)
def test_time_that_would_change_the_query_is_refused(log: Site, name: str, time: str) -> None:
    """A quotation mark between date and time would end the text in the filter of Cloud Logging."""
    response = log.get(f"{LOGS}?{urlencode({name: time + '/) OR severity>DEBUG --'})}")
    assert response.status_code == HTTPStatus.BAD_REQUEST
    assert f"{name}: must be a time" in response.text


def test_page_of_many_replicas_says_that_it_suggests_only_the_first() -> None:
    site = Site(World())
    site.open()
    site.world.submit(a_spec(workerCount=250))
    site.world.deliver()
    page = site.text(f"{LOGS}?task=worker-replica-249")
    total = len(site.world.replicas)
    assert total > 200
    note = f"Suggests 200 of {total} replicas; type the name of any other."
    assert note in " ".join(page.split())
    assert 'name="task" list="tasks" value="worker-replica-249"' in page


def test_file_holds_the_filtered_lines_in_order(log: Site) -> None:
    log.entries = [
        *burst(2_500, begin=10, per_second=4_000),
        an_entry(9_999, second=30, severity="ERROR", text="the \x1b[31mloss"),
    ]
    page = log.text(f"{LOGS}?task=worker-replica-1")
    address = re.search(r'href="([^"]+)">Download', page)
    assert address
    response = log.get(html.unescape(address[1]))
    assert response.headers["Content-Disposition"] == 'attachment; filename="digits_1.log"'
    texts = [line.rpartition(" ")[2] for line in response.text.splitlines()]
    assert texts == [str(number) for number in range(1, 2_500, 4)]
    assert (
        log.text(f"{LOGS}.txt?severity=ERROR")
        == "2026-11-21T03:00:30Z worker-replica-0 ERROR the loss\n"
    )


def test_file_that_is_too_long_says_how_to_get_the_rest(
    log: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_download, "DOWNLOAD_LINES_MAX", 1_200)
    log.entries = burst(2_000, begin=10)
    *lines, last = log.text(f"{LOGS}.txt").splitlines()
    assert len(lines) == 1_200
    assert last.startswith("# These are the first 1200 lines.")
    rest = log.text(f"/jobs/digits_1/{last.rpartition(' ')[2]}").splitlines()
    numbers = [int(line.rpartition(" ")[2]) for line in lines + rest]
    assert numbers == [int(insert_id[2:]) for insert_id in in_order(log.entries)]


def test_program_forges_no_line_of_another_source_in_a_file(log: Site) -> None:
    for end in ("\n", "\r\n", "\u2028", "\x85"):
        log.entries = [
            {
                "timestamp": "2026-11-21T03:00:30Z",
                "severity": "INFO",
                "jsonPayload": {
                    "message": f"ok{end}2026-11-21T03:00:30Z service ERROR sign in again"
                },
                "labels": {"ml.googleapis.com/task_name": "worker-replica-0"},
            }
        ]
        lines = log.text(f"{LOGS}.txt").splitlines()
        assert [line.split()[1] for line in lines] == ["worker-replica-0"] * len(lines)


def test_file_of_an_unknown_job_is_404(site: Site) -> None:
    assert site.get("/jobs/nobody/logs.txt").status_code == 404


def test_only_what_the_program_printed_is_shown_if_asked_for(site: Site) -> None:
    site.world.start_running()
    own = log_entry("INFO", "worker-replica-0", "Running task with arguments: …", "own")
    labels = {"ml.googleapis.com/task_name": "worker-replica-0", "trainmaster/writer": "agent"}
    own["labels"] = labels
    site.entries = [
        own,
        log_entry("INFO", "service", "RUNNING", "service"),
        log_entry("INFO", "worker-replica-0", "epoch 1", "printed"),
    ]
    assert set(rows(site.text(LOGS))) == {"own", "service", "printed"}
    page = site.text(f"{LOGS}?lines=program")
    assert rows(page) == ["printed"]
    assert '<option value="program" selected>of the program</option>' in page
    assert "lines=program" in between(page, "logs.txt?", '"')
    assert site.text(f"{LOGS}.txt?lines=program").count("epoch 1") == 1
    response = site.get(f"{LOGS}?lines=mine")
    assert response.status_code == 400
    assert "lines: must be program, or be left out" in response.text
