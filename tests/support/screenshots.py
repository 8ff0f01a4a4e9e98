"""Take the screenshots of the console in docs/images: `python -m tests.support.screenshots`.

With the address that `trainmaster console` prints and a job id, it takes console-job.png, of that
job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import sin
from pathlib import Path
from urllib.parse import urljoin

from playwright.sync_api import Browser, FloatRect, Page

from tests.support.console_browser import Scheme, chromium_browser, opened
from tests.support.console_site import Site
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.ports.metrics import Metric
from trainmaster_emulators.checkout import ROOT

# Size of the browser's window in pixels.
WIDTH = 1280
HEIGHT = 860
WORKER_JOB = "resnet_imagenet_7"


def incident_world() -> World:
    """Return a job of four workers: one was killed, one was preempted, one is being replaced.

    With `limits`, other jobs wait for it. The waits are seconds, as such incidents take them.
    """
    world = World(job_id=WORKER_JOB, limits={"vcpus": 40})
    world.submit(
        {**a_spec(workerType="n1-standard-8", workerCount=4), "labels": {"team": "vision"}}
    )
    world.wait(20)
    world.deliver()
    world.wait(20)
    world.report_all_ready()
    world.wait(400)
    world.kill(WORKER_0)
    world.deliver()
    world.wait(12)
    world.send("vm-ready", WORKER_0)
    world.wait(300)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    world.wait(75)
    world.send("vm-ready", WORKER_1)
    world.wait(280)
    world.send("maintenance", ReplicaId(TaskType.WORKER, 3), cause="preemption")
    world.wait(28)
    return world


def with_queue(world: World) -> World:
    """Add jobs that wait for the running one."""
    for job_id, workers in (("bert_finetune_2", 2), ("digits_1", 1)):
        world.job_id = job_id
        world.submit(a_spec(workerCount=workers), source=f"gs://b/jobs/{job_id}.yaml#1")
        world.wait(15)
        world.deliver()
    world.job_id = WORKER_JOB
    return world


def add_metrics(site: Site) -> None:
    """Let the chief and two workers have used CPU and memory in each minute."""
    minutes = 18
    first = site.world.now.replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    for number, replica in enumerate((CHIEF, WORKER_0, WORKER_1)):
        task = str(replica).replace(" ", "-")
        cpu = tuple(0.72 - 0.1 * number + 0.06 * sin(minute + number) for minute in range(minutes))
        memory = tuple(min(0.3 + 0.02 * minute, 0.55) + 0.04 * number for minute in range(minutes))
        site.metrics.add(Metric.CPU, task, first, cpu)
        site.metrics.add(Metric.MEMORY, task, first, memory)


@contextmanager
def page_of(browser: Browser, world: World, path: str, scheme: Scheme) -> Iterator[Page]:
    """Yield the console's page at this path, in the light or dark scheme."""
    with opened(browser, world) as (page, site):
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        page.emulate_media(color_scheme=scheme)
        add_metrics(site)
        page.goto(path)
        yield page


SHOTS: list[tuple[str, World, str, Scheme]] = [
    ("console-jobs-dark", with_queue(incident_world()), "/jobs", "dark"),
    ("console-resources", incident_world(), f"/jobs/{WORKER_JOB}/resources", "light"),
]


def take_job(browser: Browser, address: str, job_id: str, folder: Path) -> None:
    """Take the page of a job that really ran, down to its decisions.

    `address`: what `trainmaster console` prints.
    """
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(address)
    page.goto(urljoin(address, f"/jobs/{job_id}"))
    below = page.locator("#decisions").bounding_box()
    height = below["y"] if below else HEIGHT
    area: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": height}
    page.screenshot(path=folder / "console-job.png", full_page=True, clip=area)


def main() -> int:
    """Take the screenshots of docs/images.

    With two arguments, the address of a console and a job id, take only that of this job.
    """
    folder = ROOT / "docs" / "images"
    with chromium_browser() as browser:
        if len(sys.argv) > 1:
            address, job_id = sys.argv[1:]
            take_job(browser, address, job_id, folder)
            return 0
        for name, world, path, scheme in SHOTS:
            with page_of(browser, world, path, scheme) as page:
                page.screenshot(path=folder / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
