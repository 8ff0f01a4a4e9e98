"""The console on a machine with other users: what their processes and their servers learn.

In a real Chromium.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser
from werkzeug.serving import make_server

from tests.support.console_browser import running_world
from tests.support.console_site import Site
from tests.support.serving import serving
from tests.support.stack import eventually
from trainmaster.cli.console import redirect_page
from trainmaster.core.model.job import JobState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOBODY = 65534
WATCH = """
import glob, os, time
while True:
    for folder in glob.glob("/proc/[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                text = open(f"{folder}/{name}", "rb").read()
            except OSError:
                continue
            if b"token=" in text and folder != f"/proc/{os.getpid()}":
                print(name, text, flush=True)
    time.sleep(0.2)
"""
"""A process of another user, who looks for the token in all processes."""
ENVIRONMENT = {
    "TRAINMASTER_PROJECT": "my-project",
    "FIRESTORE_EMULATOR_HOST": "127.0.0.1:9",
    "PUBSUB_EMULATOR_HOST": "127.0.0.1:9",
}


class CookieRecorder(BaseHTTPRequestHandler):
    """Another server of the machine, such as a TensorBoard.

    It keeps the cookies of its requests.
    """

    cookies: list[str | None]

    def do_GET(self) -> None:
        self.cookies.append(self.headers.get("Cookie"))
        self.send_response(200)
        self.send_header("Set-Cookie", "own=1")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def named_site() -> Iterator[tuple[Site, str]]:
    """Yield a console under a name of its own, as `trainmaster console` serves it, and the address
    that signs in.
    """
    site = Site(running_world())
    server = make_server("127.0.0.1", 0, site.app, threaded=True)
    site.sign_in.hosts = (f"0123456789abcdef.localhost:{server.server_port}",)
    with serving(server):
        yield site, f"http://{site.sign_in.hosts[0]}/?token={site.sign_in.token}"


def test_file_signs_in_and_other_servers_of_the_machine_get_no_session(
    browser: Browser, named_site: tuple[Site, str]
) -> None:
    _, address = named_site
    host = urlsplit(address).netloc
    cookies: list[str | None] = []
    CookieRecorder.cookies = cookies
    other = ThreadingHTTPServer(("127.0.0.1", 0), CookieRecorder)
    with serving(other), redirect_page(address) as file:
        assert Path(urlsplit(file).path).stat().st_mode & 0o077 == 0
        context = browser.new_context()
        page = context.new_page()
        page.goto(file)
        page.wait_for_url(f"http://{host}/jobs")
        assert page.get_by_role("link", name="digits_1").is_visible()
        assert page.reload().status == 200  # type: ignore[union-attr]
        for name in ("127.0.0.1", "localhost", "other.localhost"):
            for _ in range(2):
                page.goto(f"http://{name}:{other.server_port}/")
        assert page.goto(f"http://{host}/jobs").status == 200  # type: ignore[union-attr]
        context.close()
    assert set(cookies) == {None, "own=1"}, "it received cookies, and only its own"


def test_form_of_another_server_of_the_machine_has_no_session(
    browser: Browser, named_site: tuple[Site, str]
) -> None:
    """Even if it knows the name: the cookie is not sent with forms of other sites."""
    site, address = named_site
    host = urlsplit(address).netloc
    page = browser.new_context().new_page()
    page.goto(address)
    page.goto("data:text/html,<form method=post></form>")
    page.evaluate(
        f"document.forms[0].action = 'http://{host}/jobs/digits_1/cancel';"
        " document.forms[0].submit()"
    )
    page.wait_for_url(f"http://{host}/**")
    assert "not signed in" in page.inner_text("body")
    page.context.close()
    assert site.world.state == JobState.RUNNING


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_other_user_of_the_machine_finds_no_token_and_the_browser_may_run_in_the_foreground(
    tmp_path: Path,
) -> None:
    opened = tmp_path / "opened"
    program = tmp_path / "browser"
    program.write_text(
        f'#!/bin/sh\nsleep 2\ncp "${{1#file://}}" {opened}.new && mv {opened}.new {opened}\n'
    )
    program.chmod(0o755)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    command = [python, "-c", WATCH]
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            env={},
        ) as watcher,
        subprocess.Popen(
            [Path(sys.executable).with_name("trainmaster"), "console"],
            env={**os.environ, **ENVIRONMENT, "BROWSER": f"{program} %s"},
            stdout=subprocess.PIPE,
            text=True,
        ) as console,
    ):
        assert console.stdout is not None
        address = console.stdout.readline().strip()
        eventually(opened.exists, within_s=60)
        watcher.kill()
        seen = watcher.communicate()[0]
        console.send_signal(signal.SIGINT)
        console.wait(30)
    assert address in opened.read_text(), "the browser got the address"
    assert seen == ""
