"""Jobs that several tests of the console show, and what its pages contain."""

from __future__ import annotations

import html
import re

from tests.support.console_site import Site
from tests.support.jobs import WORKER_0, a_spec
from tests.support.world import World
from trainmaster.core.model.job import JobState


def words(page: str) -> str:
    """Return the text of a page without its tags, as one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def between(page: str, begin: str, end: str) -> str:
    """Return the part of the page from the first `begin` to the next `end`, without both."""
    assert begin in page, page
    return page.partition(begin)[2].partition(end)[0]


def three_jobs(site: Site) -> None:
    """Submit `digits_1` of the team vision, `digits_2` of the team speech, and `digits_3`."""
    for number, labels in ((1, {"team": "vision"}), (2, {"team": "speech"}), (3, {})):
        site.world.job_id = f"digits_{number}"
        spec = {**a_spec(), "labels": labels} if labels else a_spec()
        site.world.wait(10)
        site.world.submit(spec, source=f"gs://b/jobs/{number}.yaml#1")
    site.world.deliver()


def job_rows(page: str) -> list[str]:
    """Return the ids of the jobs in the list, in its order."""
    return re.findall(r'<tr id="job-([^"]+)"', page)


def failed_job(site: Site) -> World:
    """Let `digits_1` fail because worker 0 printed an ImportError, with markup in its output."""
    world = site.world
    world.start_running()
    world.wait(30)
    error = {
        "type": "ImportError",
        "message": "no module named x",
        "frame": "task.py:3 in <module>",
    }
    world.exit_program(
        WORKER_0, 1, error=error, tail="Traceback\nImportError: <b>no</b> module named x"
    )
    world.deliver()
    assert world.state == JobState.FAILED
    return world
