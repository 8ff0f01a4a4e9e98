"""`trainmaster console` on an installation, and machine time in `describe`."""

from __future__ import annotations

import json
import re
import socket
from http.cookiejar import CookieJar
from typing import NoReturn
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest
from google.api_core.exceptions import Forbidden
from typer.testing import CliRunner

from tests.integration.cli.conftest import Installation
from tests.support.jobs import WORKER_0, a_spec
from tests.support.serving import serving
from tests.support.world import World
from trainmaster.cli.console import start
from trainmaster.cli.main import app
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.wiring import log_reader


def under_its_name(address: str, path: str = "") -> Request:
    """Return a request as browsers send it, which resolve names below localhost to loopback
    themselves.
    """
    url = urlsplit(address)
    return Request(
        f"http://127.0.0.1:{url.port}{path or f'/?{url.query}'}", headers={"Host": url.netloc}
    )


def test_printed_address_signs_in_once_and_shows_jobs_and_their_logs(
    installation: Installation,
) -> None:
    submit.handle(
        json.dumps({"jobId": "digits_1", **a_spec()}).encode(),
        "gs://b/jobs/1.yaml#1",
        installation.deps,
    )
    server, address = start(0)
    with serving(server):
        assert re.fullmatch(
            rf"http://[0-9a-f]{{16}}\.localhost:{server.server_port}/\?token=[\w-]{{40,}}", address
        )
        browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
        with browser.open(under_its_name(address)) as response:
            assert response.url.endswith("/jobs")
            assert b'id="job-digits_1"' in response.read()
        with browser.open(under_its_name(address, "/jobs/digits_1/logs")) as response:
            assert b"The job has printed nothing yet" in response.read()
        for stranger, refusal in (
            (under_its_name(address), "401"),
            (under_its_name(address).full_url, "403"),
        ):
            with pytest.raises(HTTPError, match=refusal):
                build_opener(ProxyHandler({})).open(stranger)


def test_log_page_of_a_user_without_the_role_names_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def page(self, _query: str, _token: str, *, newest_first: bool, limit: int) -> NoReturn:
            raise Forbidden("Permission 'logging.logEntries.list' denied")

    monkeypatch.setattr(log_reader, "log_entries", Refusing)
    submit.handle(
        json.dumps({"jobId": "digits_1", **a_spec()}).encode(),
        "gs://b/jobs/1.yaml#1",
        installation.deps,
    )
    server, address = start(0)
    with serving(server):
        browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
        browser.open(under_its_name(address)).close()
        with browser.open(under_its_name(address, "/jobs/digits_1/logs")) as response:
            page = response.read().decode()
    assert "logging.logEntries.list" in page
    assert "roles/logging.viewer" in page


def test_own_name_is_optional_for_browsers_that_do_not_find_it(installation: Installation) -> None:
    server, address = start(0, own_name=False)
    server.server_close()
    assert address.startswith(f"http://127.0.0.1:{server.server_port}/?token=")


def test_no_other_program_can_listen_where_browsers_connect_first(
    installation: Installation,
) -> None:
    server, _ = start(0)
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("::1", server.server_port))
    server.server_close()
    del server
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(PermanentError, match=f"another program listens on .::1.:{port}"):
            start(port)


def test_port_in_use_is_an_error_that_names_the_option(installation: Installation) -> None:
    server, _ = start(0)
    try:
        with pytest.raises(PermanentError, match=f"--port {server.server_port}: cannot listen"):
            start(server.server_port)
    finally:
        server.server_close()


def test_describe_shows_machine_time_by_phase_and_a_link_to_the_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.start_running()
    world.wait(3600)
    world.kill(WORKER_0)
    world.deliver()
    monkeypatch.setattr("trainmaster.cli.jobs.open_store", lambda: world.store)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_CONSOLE_ADDRESS", "https://console.example.com/")
    from trainmaster.settings import settings

    settings.cache_clear()
    try:
        result = CliRunner().invoke(app, ["jobs", "describe", "digits_1", "--format", "json"])
        text = CliRunner().invoke(app, ["jobs", "describe", "digits_1"]).stdout
    finally:
        settings.cache_clear()
    view = json.loads(result.stdout)["trainmaster"]
    assert view["console"] == "https://console.example.com/jobs/digits_1"
    (attempt,) = view["machineTime"]["attempts"]
    assert attempt["counted"]["running"] >= 3 * 3600
    assert sum(attempt["counted"].values()) == pytest.approx(
        view["machineTime"]["countedMachineSeconds"], abs=0.01
    )
    # No checkpoint is known, so all three machines may have lost the whole hour before the kill.
    assert view["machineTime"]["lostAtMostMachineSeconds"] == pytest.approx(3 * 3602, abs=6)
    assert "console: https://console.example.com/jobs/digits_1" in text
    assert "goodput: " in text
    assert "machine-hours of attempt 1: " in text
