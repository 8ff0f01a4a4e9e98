"""The page of a job: why it failed or waits, its decisions, and updates without a reload."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape

import pytest
from playwright.sync_api import Browser, Page, expect
from typer.testing import CliRunner

from tests.support.console_browser import (
    UPDATE_MS,
    failed_world,
    log_entry,
    opened,
    running_world,
)
from tests.support.console_site import Site
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.cli.main import app
from trainmaster.core.events import ReplicaExited
from trainmaster.settings import settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Why = Callable[[World, str], list[str]]


@pytest.fixture
def why(monkeypatch: pytest.MonkeyPatch) -> Iterator[Why]:
    """Return a function that runs `trainmaster why` on a world, and returns its lines."""
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    settings.cache_clear()

    def run(world: World, *options: str) -> list[str]:
        monkeypatch.setattr("trainmaster.cli.why.open_store", lambda: world.store)
        result = CliRunner().invoke(app, ["why", world.job_id, *filter(None, options)])
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    yield run
    settings.cache_clear()


def test_failed_job_shows_rule_sentence_replica_exit_code_and_output_without_reading_logs(
    browser: Browser,
) -> None:
    world = failed_world()
    event = world.ledger[-1].event
    assert isinstance(event, ReplicaExited)
    with opened(browser, world) as (page, site):
        page.goto("/jobs/digits_1")
        text = page.locator("#failure").inner_text()
        assert "The replica worker 0 exited with a non-zero status of 1" in text
        assert "worker 0, incarnation 1" in text
        assert f"rule {int(world.ledger[-1].decision.rule)}" in text
        assert page.locator("pre.tail").inner_text().strip() == event.tail
        assert site.queries == []


NEWEST_IS_SHOWN = """box => {
  const last = document.createRange();
  last.selectNodeContents(box);
  const bottoms = [...last.getClientRects()].map(place => place.bottom);
  return Math.max(...bottoms) <= box.getBoundingClientRect().bottom;
}"""
"""Whether the last line of a box's text is in its visible part."""


def test_last_lines_of_a_log_and_of_an_output_are_shown_without_scrolling(
    browser: Browser,
) -> None:
    world = running_world()
    lines = "\n".join(f"line {number}" for number in range(60))
    error = {"type": "ImportError", "message": "x", "frame": "task.py:3 in f"}
    world.exit_program(WORKER_0, 1, error=error, tail=lines)
    world.deliver()
    with opened(browser, world) as (page, _):
        page.goto("/jobs/digits_1")
        output = page.locator("#failure pre.tail")
        assert output.evaluate("box => box.scrollHeight > box.clientHeight")
        assert output.evaluate(NEWEST_IS_SHOWN)
    with opened(browser, running_world()) as (page, site):
        site.entries = [log_entry("INFO", "worker-replica-0", lines)]
        page.goto("/jobs/digits_1")
        log = page.locator("#log pre.tail")
        assert log.evaluate("box => box.scrollHeight > box.clientHeight")
        assert log.evaluate(NEWEST_IS_SHOWN)


def stockout() -> World:
    """Return a job whose region has no capacity in any zone."""
    world = World()
    world.fleet.stockout_zones = {
        "us-central1-a",
        "us-central1-b",
        "us-central1-c",
        "us-central1-f",
    }
    world.submit()
    world.deliver()
    return world


def held() -> World:
    """Return a job that was told of a preemption, in which the program of a peer then failed:
    whether the peer's failure counts is held open until the loss of the machine is known.
    """
    world = World()
    world.submit(a_spec())
    world.deliver()
    world.report_all_ready()
    world.wait(100)
    world.send("maintenance", WORKER_0, cause="preemption")
    world.exit_program(WORKER_1, 1)
    world.deliver()
    return world


def preparing() -> World:
    """Return a job whose VMs exist, and have not reported that they are ready."""
    world = World()
    world.submit()
    world.deliver()
    return world


def next_sentences(world: World) -> list[str]:
    """Return what comes next according to the page of the world's job, without a browser."""
    site = Site(world)
    site.open()
    section = (
        site.text(f"/jobs/{world.job_id}").partition('id="next"')[2].partition("</section>")[0]
    )
    return [unescape(sentence) for sentence in re.findall("<li>(.*?)</li>", section)]


@pytest.mark.parametrize("make_world", [stockout, held, preparing, running_world])
def test_waiting_job_shows_the_sentences_of_why(why: Why, make_world: Callable[[], World]) -> None:
    world = make_world()
    expected = [line.removeprefix("Next: ") for line in why(world, "") if line.startswith("Next: ")]
    assert expected
    assert next_sentences(world) == expected


def test_job_in_the_admission_queue_shows_its_position() -> None:
    world = World(limits={"vcpus": 12})
    for number in (1, 2, 3):
        world.job_id = f"digits_{number}"
        world.wait(1)
        world.submit(source=f"gs://b/jobs/{number}.yaml#1")
    world.deliver()
    (sentence,) = next_sentences(world)
    assert sentence.startswith("Position 2 in the admission queue: it needs 12 vcpus")


def scripted() -> World:
    """Return a world with restarts, a preemption, a repeated event and a reactivation."""
    world = running_world()
    world.kill(WORKER_0)
    world.deliver()
    world.wait(20)
    world.send("vm-ready", WORKER_0)
    world.wait(100)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    world.wait(50)
    world.send("vm-ready", WORKER_1)
    world.wait(100)
    world.kill(CHIEF)
    world.deliver()
    return world


def decision_lines(page: Page) -> list[str]:
    """Return the decisions of the page in the form of `trainmaster why --all`."""
    lines = []
    for row in page.locator("table.decisions tbody tr").all():
        cells = row.locator("td")
        moment = cells.nth(0).inner_text()[11:]
        sentence, *details = (
            line for line in cells.nth(2).inner_text().splitlines() if line.strip()
        )
        rule = cells.nth(3).inner_text()
        lines.append(f"{moment}  {sentence}" + (f"  [rule {rule}]" if rule else ""))
        lines += [
            f"            {line.replace('→', '->')}"
            for line in sorted(details)
            if line != "log lines at that time"
        ]
        if effects := cells.nth(4).inner_text():
            names, state = effects.splitlines()
            confirmed = re.sub(r"^done \S+ ", "confirmed at ", state)
            lines.append(f"            effects: {names}, {confirmed}")
    return lines


def test_decisions_equal_those_of_why_line_for_line(browser: Browser, why: Why) -> None:
    world = scripted()
    lines = why(world, "--all")
    expected = lines[1 : lines.index("")]  # the first line is the job's state
    with opened(browser, world) as (page, _):
        page.goto("/jobs/digits_1?all=1")
        shown = decision_lines(page)
    assert list(filter(begins_decision, shown)) == list(filter(begins_decision, expected))
    assert sorted(shown) == sorted(expected)
    assert any("restarts used: 0 -> 1" in line for line in shown)


def begins_decision(line: str) -> bool:
    """Return whether the line is the first one of a decision, which begins with its time."""
    return re.match(r"\d\d:", line) is not None


def test_pending_effects_are_flagged_until_they_are_seen_done(browser: Browser) -> None:
    world = running_world()
    with opened(browser, world, has_prompt_polls=True) as (page, _):
        page.goto("/jobs/digits_1")
        assert page.locator("tr.pending").count() == 0
        world.kill(WORKER_0)
        page.locator("tr.pending").wait_for()
        (pending,) = (entry for entry in world.ledger if entry.is_pending)
        assert page.locator("tr.pending").get_attribute("id") == f"decision-{pending.key}"
        assert "not confirmed yet" in page.locator("tr.pending").inner_text()
        world.deliver()
        assert not any(entry.is_pending for entry in world.ledger)
        # A poll between two of the deliveries may show both decisions as pending.
        expect(page.locator("tr.pending")).to_have_count(0, timeout=UPDATE_MS)
