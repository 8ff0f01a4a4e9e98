"""Actions in the browser: cancel, clone, resubmit, labels and delete; double clicks; and a
read-only console.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.support.console_browser import failed_world, opened, running_world
from tests.support.console_site import READ_ONLY
from trainmaster.core.model.job import JobState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_two_clicks_make_one_cancellation_by_the_user(browser: Browser) -> None:
    world = running_world()
    with opened(browser, world) as (page, _):
        page.goto("/jobs/digits_1/cancel")
        page.get_by_role("button", name="Cancel the job").dblclick()
        page.locator("#job-state .state-cancelled").wait_for()
    assert world.state == JobState.CANCELLED
    assert [entry.key for entry in world.ledger].count("cancel") == 1
    assert "anna@example.com" in repr(world.ledger[-1].event)


def test_clone_shows_problems_by_field_and_then_opens_the_new_job(browser: Browser) -> None:
    world = failed_world()
    with opened(browser, world, expected=("422",), has_prompt_polls=True) as (page, _):
        page.goto("/jobs/digits_1")
        page.get_by_role("link", name="Clone…").click()
        editor = page.locator("#spec")
        good = editor.input_value()
        editor.fill(good.replace("workerCount: 2", "workerCount: many"))
        page.get_by_role("button", name="Submit the job").click()
        page.locator("#problems").wait_for()
        assert "trainingInput.workerCount" in page.locator("#problems").inner_text()
        assert "many" in editor.input_value()
        editor.fill(good.replace("workerCount: 2", "workerCount: 4"))
        page.get_by_label("Id of the new job").fill("digits_large")
        page.get_by_role("button", name="Submit the job").dblclick()
        page.locator("#outcome").wait_for()
        world.deliver()
        page.locator("#job-state").wait_for()
        assert "4 x n1-standard-4 (worker)" in page.locator("#facts").inner_text()
    assert len(world.store.recent_jobs(10)) == 2
    assert world.store.rejections() == ()


def test_labels_are_edited_and_an_ended_job_is_deleted(browser: Browser) -> None:
    world = failed_world()
    with opened(browser, world) as (page, _):
        page.goto("/jobs/digits_1")
        page.get_by_role("link", name="Labels…").click()
        page.get_by_label("in a line").fill("team=vision\nphase=2")
        page.get_by_role("button", name="Change the labels").click()
        page.wait_for_url("**/jobs/digits_1")
        assert page.locator("#facts .label").all_inner_texts() == ["phase=2", "team=vision"]
        page.get_by_role("link", name="Delete…").click()
        page.get_by_role("button", name="Delete the job").dblclick()
        page.locator("#empty").wait_for()
    assert world.job.deleted_at is not None


def test_viewer_sees_disabled_buttons_and_what_is_missing(browser: Browser) -> None:
    world = running_world()
    with opened(browser, world, is_read_only=True) as (page, _):
        page.goto("/jobs/digits_1")
        buttons = page.locator("#actions button")
        assert buttons.all_inner_texts() == ["Cancel…", "Clone…", "Resubmit…", "Labels…"]
        assert all(button.is_disabled() for button in buttons.all())
        assert page.locator("#denied").inner_text() == READ_ONLY
        assert page.locator("#actions a").count() == 0
        for path in ("cancel", "clone", "resubmit", "labels"):
            page.goto(f"/jobs/digits_1/{path}")
            assert READ_ONLY in page.locator("main").inner_text()
            assert page.locator("form[method=post] button:not([disabled])").count() == 0
    assert world.state == JobState.RUNNING
