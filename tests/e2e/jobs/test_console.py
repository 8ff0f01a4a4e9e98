"""The console as a user runs it, in a real Chromium, on the whole local stack."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from tests.support.console_browser import UPDATE_MS, chromium_browser, watched
from tests.support.jobs import WORKER_0
from tests.support.load import is_quick
from tests.support.stack import clean_environment

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.emulator,
    pytest.mark.slow,
    pytest.mark.heavy(
        fact="the console shows a job of the whole local stack in Chromium",
        quick="`integration/browser`, on adapters in memory",
    ),
    pytest.mark.timeout(900),
]

SHOWN_S = 10.0
"""Within this time after its commit, an open page shows a decision. It polls every five seconds."""


@contextmanager
def console_address(lab: Lab) -> Iterator[str]:
    """Run `trainmaster console` in the environment of the stack; yield the address that
    it prints.
    """
    variables = {**clean_environment(), **lab.stack.environment, "PYTHONUNBUFFERED": "1"}
    command = ["trainmaster", "console", "--no-browser"]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def test_console_shows_a_crash_without_reload_logs_and_a_resubmitted_job(lab: Lab) -> None:
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait(job_id, "RUNNING")
    with console_address(lab) as address, chromium_browser() as browser:
        origin = f"http://{urlsplit(address).netloc}"
        with watched(browser, origin) as page:
            page.goto(address)
            page.locator(f"#job-{job_id} .row-link").click()
            page.locator("#job-state .state-running").wait_for()
            page.evaluate("window.isSamePage = true")

            lab.stack.run(
                "trainmaster",
                "local",
                "crash",
                lab.vm(job_id, WORKER_0).name,
                "--state-dir",
                str(lab.stack.state_dir),
            )
            lab.until(lambda: lab.replica(job_id, WORKER_0).vm_generation == 2, 60)
            began = time.monotonic()
            page.locator("svg.timeline .mark-vm-lost").wait_for(state="attached", timeout=UPDATE_MS)
            assert is_quick(time.monotonic() - began, SHOWN_S + 5)
            assert page.evaluate("window.isSamePage")
            loss = next(
                entry for entry in lab.store.ledger(job_id) if entry.event.kind == "vm_lost"
            )
            shown = page.locator(f"[id='decision-{loss.key}']")
            assert loss.decision.text in shown.inner_text()
            lab.until(lambda: lab.replica(job_id, WORKER_0).state == "RUNNING", 60)
            page.locator("#replica-worker-0 td", has_text="running").wait_for(timeout=UPDATE_MS)

            page.get_by_role("link", name="Logs").click()
            page.locator("table.log td.text", has_text="step").first.wait_for(timeout=UPDATE_MS)

            page.goto(f"{origin}/jobs/{job_id}/resubmit")
            page.get_by_label("Id of the new job").fill(f"{job_id}_again")
            page.get_by_role("button", name="Submit the job").click()
            page.wait_for_url(f"**/jobs/{job_id}_again", timeout=UPDATE_MS)
            assert "in the console, by" in page.locator("#facts").inner_text()

            for name in (job_id, f"{job_id}_again"):
                page.goto(f"{origin}/jobs/{name}/cancel")
                page.get_by_role("button", name="Cancel the job").click()
                page.locator("#job-state .state-cancelled").wait_for(timeout=UPDATE_MS)
    for name in (job_id, f"{job_id}_again"):
        lab.until(lambda name=name: not lab.fleet.list_vms(name), 60)  # type: ignore[misc]
