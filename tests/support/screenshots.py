"""Take the screenshots of the console in docs/images: `python -m tests.support.screenshots
[FOLDER]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import exp, sin
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.support.console_browser import Scheme, add_progress, chromium_browser, log_entry, opened
from tests.support.console_site import Site
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.ports.metrics import Metric
from trainmaster_emulators.process.state import ROOT

WIDTH = 1280
HEIGHT = 860
JOB_HEIGHT = 1230
"""Down to the first curve of the page of a job."""
WORKER_JOB = "resnet_imagenet_7"


def incident_world() -> World:
    """Return a job of four workers: one was killed, one was preempted, one is being replaced.

    Two jobs wait for it.
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


def add_metrics(site: Site, path: str) -> None:
    """Let the chief and two workers have used CPU and memory in each minute; the page of the job
    shows its training.
    """
    minutes = 18
    first = site.world.now.replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    for number, replica in enumerate((CHIEF, WORKER_0, WORKER_1)):
        task = str(replica).replace(" ", "-")
        cpu = tuple(0.72 - 0.1 * number + 0.06 * sin(minute + number) for minute in range(minutes))
        memory = tuple(min(0.3 + 0.02 * minute, 0.55) + 0.04 * number for minute in range(minutes))
        site.metrics.add(Metric.CPU, task, first, cpu)
        site.metrics.add(Metric.MEMORY, task, first, memory)
    if WORKER_JOB in path:
        add_training(site, minutes)


def add_training(site: Site, minutes: int) -> None:
    """Let the program have reported its losses, and have printed a line for each epoch
    of a minute.
    """
    losses = [3 * exp(-minute / 8) for minute in range(minutes)]
    values = {"metric/loss": losses, "metric/val_loss": [1.1 * loss + 0.05 for loss in losses]}
    position = {
        "share": [minute / 40 for minute in range(minutes)],
        "step": [1562.0 * n for n in range(minutes)],
    }
    add_progress(site, WORKER_JOB, {**values, **position, "steps": [62480.0] * minutes})
    for number, loss in enumerate(losses, start=1):
        entry = log_entry(
            "INFO",
            "master-replica-0",
            f"epoch {number}/40 loss: {loss:.4f}",
            str(number),
            50 + 60 * number,
        )
        entry["labels"] = {
            "ml.googleapis.com/job_id": WORKER_JOB,
            "ml.googleapis.com/task_name": "master-replica-0",
        }
        site.entries.append(entry)


@contextmanager
def page_of(browser: Browser, world: World, path: str, scheme: Scheme) -> Iterator[Page]:
    with opened(browser, world) as (page, site):
        is_job = path == f"/jobs/{WORKER_JOB}"
        page.set_viewport_size({"width": WIDTH, "height": JOB_HEIGHT if is_job else HEIGHT})
        page.emulate_media(color_scheme=scheme)
        add_metrics(site, path)
        page.goto(path)
        yield page


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    shots: list[tuple[str, World, str, Scheme]] = [
        ("console-jobs-dark", with_queue(incident_world()), "/jobs", "dark"),
        ("console-job", incident_world(), f"/jobs/{WORKER_JOB}", "light"),
        ("console-resources", incident_world(), f"/jobs/{WORKER_JOB}/resources", "light"),
    ]
    with chromium_browser() as browser:
        for name, world, path, scheme in shots:
            with page_of(browser, world, path, scheme) as page:
                page.screenshot(path=folder / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
