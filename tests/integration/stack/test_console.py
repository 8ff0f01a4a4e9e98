"""`trainmaster local up` serves the console of its stack, and stops it with the stack."""

from __future__ import annotations

import re
import signal
import subprocess
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest

from tests.support.stack import clean_environment, recording_functions
from trainmaster_emulators.process import state_dirs

pytestmark = [pytest.mark.emulator, pytest.mark.slow]


@pytest.mark.heavy(
    fact="the console ends with its stack",
    quick="`integration/stack/test_lifetime.py`, the watchdog without a stack",
)
def test_local_up_prints_the_address_of_its_console_which_ends_with_the_stack(
    tmp_path: Path,
) -> None:
    folder = recording_functions(tmp_path / "functions")
    # Another installation in the environment must not be shown in place of the stack.
    environment = {
        **clean_environment(),
        state_dirs.STATE_DIR_VARIABLE: str(tmp_path / "state"),
        "TRAINMASTER_PROJECT": "another-project",
        "PYTHONUNBUFFERED": "1",
    }
    command = ["trainmaster", "local", "up", "--no-compute", "--functions-dir", str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        try:
            address = next(
                line.partition(": ")[2].strip() for line in up.stdout if line.startswith("Its jobs")
            )
            assert re.fullmatch(r"http://[0-9a-f]{16}\.localhost:\d+/\?token=[\w-]{40,}", address)
            browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
            # Browsers resolve names below localhost to loopback themselves, and urllib does not.
            name = urlsplit(address).netloc
            request = Request(
                address.replace(name.partition(":")[0], "127.0.0.1"), headers={"Host": name}
            )
            with browser.open(request) as response:
                page = response.read().decode()
            assert "There are no jobs in the project trainmaster-local yet" in page
        finally:
            up.send_signal(signal.SIGINT)
        assert up.wait(60) in (0, 130)
    with pytest.raises(URLError):
        browser.open(request)
