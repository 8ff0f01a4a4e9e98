"""What a program writes below /gcs is in its bucket, or its exit 0 does not count.

With the emulator's gcsfuse.

Each case runs in a mount namespace of its own (`support/gcs_driver.py`), below a folder of the test
instead of /gcs.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.serving import serving
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.machines.gcsfuse.server import find_obstacle, gcsfuse_program
from trainmaster_emulators.services import storage

HEAVY = pytest.mark.heavy(
    fact="gcsfuse may end at any request of a save", quick="the same test with every fourth request"
)

pytestmark = [pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())]

CONTENT: Final = "weights of a long training\n"
SAVE: Final = f"""
import os, sys
folder = os.environ["GCS"] + "/" + os.environ["BUCKET"] + "/model"
os.makedirs(folder, exist_ok=True)
with open(folder + "/tmp.bin", "w") as out:
    out.write({CONTENT!r})
os.replace(folder + "/tmp.bin", folder + "/model.bin")
"""
"""A save as libraries do it, which ends with status 0 only if no call failed."""
CARELESS: Final = (
    f"try:\n{SAVE.replace(chr(10), chr(10) + '    ')}\nexcept OSError as error:\n    print(error)\n"
)
"""A save whose errors the program ignores."""
AT_EXIT: Final = (
    f"import atexit\n@atexit.register\ndef save():{SAVE.replace(chr(10), chr(10) + '    ')}\n"
)
FAULTY: Final = """\
#!{python}
import os, signal, sys
sys.path.insert(0, {emulators!r})
from trainmaster_emulators.machines.gcsfuse import server
handle, left = server.handle, [{number}]
def counted(files, opcode, node, body):
    if opcode != server.Opcode.INIT:
        left[0] -= 1
        if left[0] == 0 and {is_before}:
            os.kill(os.getpid(), signal.SIGKILL)
    reply = handle(files, opcode, node, body)
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return reply
server.handle, server.THREADS = counted, 1
server.main()
"""
"""The emulator's gcsfuse, killed before or after it has handled a request, without a reply."""


@dataclass
class Case:
    """A bucket, and programs that write to it below /gcs."""

    folder: Path
    storage: str
    """Address of Cloud Storage."""
    bucket: str

    def run(self, program: str, gcsfuse: bytes | None = None, **environ: str) -> dict[str, Any]:
        """Return the exit that the agent reports."""
        folder = self.folder / uuid.uuid4().hex
        (folder / "gcs").mkdir(parents=True)
        (folder / "gcsfuse").write_bytes(gcsfuse_program() if gcsfuse is None else gcsfuse)
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        # Else the agent installs it on this machine. The emulated gcsfuse needs none.
        (programs / "fusermount3").write_text("#!/bin/sh\n")
        (programs / "fusermount3").chmod(0o755)
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        module = "tests.integration.agent.support.gcs_driver"
        driver = [sys.executable, "-m", module, str(folder), str(folder / "gcsfuse"), program]
        done = subprocess.run(
            ["unshare", *user, "--mount", *driver],
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "STORAGE_EMULATOR_HOST": self.storage,
                "BUCKET": self.bucket,
                **environ,
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        (self.folder / "log").write_text(done.stderr)
        exit_: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return exit_

    def read(self, name: str) -> str | None:
        path = f"/storage/v1/b/{self.bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        try:
            with urllib.request.urlopen(self.storage + path) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError:
            return None


@pytest.fixture
def case(storage_emulator: str, tmp_path: Path) -> Case:
    bucket = f"gcs-{uuid.uuid4().hex[:12]}"
    storage.create_bucket(storage_emulator, "p", bucket)
    return Case(tmp_path, f"http://{storage_emulator}", bucket)


def has_succeeded(exit_: dict[str, Any]) -> bool:
    return (exit_["cause"], exit_["exit_status"]) == ("process", 0)


@pytest.mark.parametrize("program", [SAVE, CARELESS, AT_EXIT])
def test_saved_file_is_in_its_bucket_when_the_exit_is_reported(case: Case, program: str) -> None:
    exit_ = case.run(program)
    assert has_succeeded(exit_)
    assert exit_["container"].endswith("/gcs,target=/gcs")
    assert case.read("model/model.bin") == CONTENT


@pytest.mark.parametrize(
    ("is_before", "step"),
    [(True, 4), pytest.param(True, 1, marks=HEAVY), pytest.param(False, 1, marks=HEAVY)],
)
def test_death_of_gcsfuse_at_any_request_of_a_save_never_loses_it_silently(
    case: Case, is_before: bool, step: int
) -> None:
    """Programs that ignore errors, and gcsfuse dead at request 1, 2, 3 and so on, until a save has
    no more requests.
    """
    for number in range(1, 60, step):
        gcsfuse = FAULTY.format(
            python=sys.executable,
            emulators=str(ROOT / "emulators"),
            number=number,
            is_before=is_before,
        ).encode()
        exit_ = case.run(CARELESS.replace("/model", f"/model{number}"), gcsfuse)
        if has_succeeded(exit_):
            assert case.read(f"model{number}/model{number}.bin") == CONTENT
            return
        assert exit_["cause"] == "setup"
        assert "may be lost" in exit_["tail"]
    raise AssertionError("no save completed")


LEFT_OPEN: Final = f"""
import os, subprocess, sys
out = open(os.environ["GCS"] + "/" + os.environ["BUCKET"] + "/model.bin", "w", buffering=1)
out.write({CONTENT!r})
sleep = ["sleep", os.environ["SECONDS_OPEN"]]
subprocess.Popen(sleep, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True, env={{}})
os._exit(0)
"""
"""A process that outlives the program has the file open.

It never has the agent's mark in its environment.
"""


@pytest.mark.parametrize(("seconds", "cause"), [("1", "process"), ("30", "setup")])
def test_exit_is_reported_after_the_last_upload_or_as_a_failure(
    case: Case, seconds: str, cause: str
) -> None:
    exit_ = case.run(LEFT_OPEN, SECONDS_OPEN=seconds)
    assert exit_["cause"] == cause
    assert case.read("model.bin") == CONTENT or "still open" in exit_["tail"]


TWICE: Final = """
import os, sys, urllib.request
name = os.environ["GCS"] + "/" + os.environ["BUCKET"] + "/model.bin"
out = open(name, "w")
out.write("mine")
bucket = os.environ["STORAGE_EMULATOR_HOST"] + "/upload/storage/v1/b/" + os.environ["BUCKET"]
urllib.request.urlopen(bucket + "/o?uploadType=media&name=model.bin", b"theirs")
try:
    out.close()
except OSError as error:
    print(error.errno)
    sys.exit(0 if {ignores} else error.errno)
"""


def test_second_writer_of_an_object_gets_an_error_that_cannot_be_ignored(case: Case) -> None:
    exit_ = case.run(TWICE.format(ignores=False))
    # The program's own failure.
    assert (exit_["cause"], exit_["exit_status"]) == ("process", errno.ESTALE)
    exit_ = case.run(TWICE.format(ignores=True).replace("model.bin", "other.bin"))
    assert exit_["cause"] == "setup"
    assert "stale file handle" in exit_["tail"]
    assert case.read("other.bin") == "theirs"


class Viewer(BaseHTTPRequestHandler):
    """Cloud Storage for an account that may read: other calls are refused."""

    storage = ""

    def do_GET(self) -> None:
        try:
            with urllib.request.urlopen(self.storage + self.path) as response:
                self._answer(200, response.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(403)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def viewer(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    monkeypatch.setattr(Viewer, "storage", case.storage)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Viewer)) as address:
        yield replace(case, storage=address)


def test_bucket_that_the_account_may_only_read_never_loses_a_save_silently(viewer: Case) -> None:
    honest = viewer.run(SAVE)
    assert (honest["cause"], honest["exit_status"], honest["error"]["type"]) == (
        "process",
        1,
        "PermissionError",
    )
    careless = viewer.run(CARELESS)
    assert careless["cause"] == "setup"
    assert "ermission denied" in careless["tail"]


@pytest.mark.parametrize(
    ("gcsfuse", "cause", "text"),
    [
        (b"#!/bin/sh\necho 'severity=ERROR message=\"bad flag\"'; exit 1\n", "setup", "bad flag"),
        (b"\x7fELF of another processor", "install", "cannot start gcsfuse"),
    ],
)
def test_gcsfuse_that_cannot_mount_fails_the_setup_with_its_message(
    case: Case, gcsfuse: bytes, cause: str, text: str
) -> None:
    failure = case.run(SAVE, gcsfuse)
    assert failure["cause"] == cause
    assert text in failure["error"]["message"]


def test_nothing_can_be_written_without_gcsfuse(case: Case) -> None:
    exit_ = case.run(SAVE, b"")
    assert exit_["exit_status"] == 1
    assert exit_["container"].endswith("/no-gcs,target=/gcs,readonly")
    assert "Read-only file system" in exit_["error"]["message"]
