"""The startup script downloads the agent that the metadata names, and runs it only if it has the
right hash.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack import eventually
from trainmaster.packaging.agent_archive import agent_object
from trainmaster_emulators.process.processes import Ports

from .support.cloud import Cloud
from .support.vm import BUCKET, Vm

AGENT = "instance/attributes/trainmaster-agent"


def an_archive(line: str) -> bytes:
    """Return a zip application that prints one line and ends."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", f"print({line!r})")
    return archive.getvalue()


def downloads(cloud: Cloud) -> list[dict[str, str]]:
    """Return the headers of each request for an object."""
    return [headers for path, headers in cloud.requests if path.startswith("/storage/v1/b/")]


def test_agent_with_another_hash_is_never_run(cloud: Cloud, vm: Vm) -> None:
    good, forged = an_archive("GOOD"), an_archive("FORGED")
    uri = f"gs://{BUCKET}/{agent_object(good)}"
    cloud.set(AGENT, uri)
    cloud.objects[uri] = forged
    vm.boot()
    vm.wait_for_line(f"{uri} does not have the SHA-256 hash in its name")
    vm.wait_for_line("[trainmaster] The agent cannot be downloaded")
    cloud.objects[uri] = good
    vm.wait_for_line("GOOD")
    assert vm.wait() == 0
    assert not vm.lines("FORGED")


def test_agent_is_downloaded_again_after_errors_of_cloud_storage(cloud: Cloud, vm: Vm) -> None:
    archive = an_archive("STARTED")
    uri = f"gs://{BUCKET}/{agent_object(archive)}"
    cloud.set(AGENT, uri)
    cloud.objects[uri] = archive
    cloud.storage_statuses = [503, 403]
    vm.boot()
    vm.wait_for_line("[trainmaster] The agent cannot be downloaded", number=2)
    vm.wait_for_line("STARTED")
    assert vm.wait() == 0
    messages = [
        line.decode() for line in vm.lines(f"http://{cloud.host}/storage/v1/b/{BUCKET}/o/agent%2F")
    ]
    assert ["503" in messages[0], "403" in messages[1]] == [True, True]


def test_reboot_runs_the_agent_on_the_disk_without_a_download(cloud: Cloud, vm: Vm) -> None:
    archive = an_archive("STARTED")
    uri = f"gs://{BUCKET}/{agent_object(archive)}"
    cloud.set(AGENT, uri)
    cloud.objects[uri] = archive
    vm.boot()
    assert vm.wait() == 0
    del cloud.objects[uri]
    vm.boot()
    assert vm.wait() == 0
    assert len(vm.lines("STARTED")) == 2
    assert len(downloads(cloud)) == 1


def test_changed_agent_on_the_disk_is_replaced(cloud: Cloud, vm: Vm) -> None:
    archive = an_archive("STARTED")
    uri = f"gs://{BUCKET}/{agent_object(archive)}"
    cloud.set(AGENT, uri)
    cloud.objects[uri] = archive
    vm.work.mkdir()
    (vm.work / "agent.pyz").write_bytes(an_archive("CHANGED"))
    vm.boot()
    assert vm.wait() == 0
    assert (vm.lines("STARTED"), vm.lines("CHANGED")) == ([b"STARTED"], [])


@pytest.fixture
def googleapis(cloud: Cloud, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Serve https://storage.googleapis.com from the cloud; yield the variables that lead a VM
    there.
    """
    ports = Ports()
    port = ports.take()
    folder = tmp_path / "proxy"
    program = [sys.executable, "-m", "trainmaster_emulators.services.googleapis_proxy"]
    options = ["--port", str(port), "--storage", f"http://{cloud.host}", "--state-dir", str(folder)]
    ports.close()
    process = subprocess.Popen([*program, *options])
    try:
        eventually((folder / "ca.pem").exists)
        yield {
            "https_proxy": f"http://127.0.0.1:{port}",
            "SSL_CERT_FILE": str(folder / "ca.pem"),
            "no_proxy": "127.0.0.1",
        }
    finally:
        process.terminate()
        process.wait()


def test_agent_is_downloaded_from_googles_address_with_the_token_of_the_vm(
    cloud: Cloud, vm: Vm, googleapis: dict[str, str]
) -> None:
    archive = an_archive("STARTED")
    uri = f"gs://{BUCKET}/{agent_object(archive)}"
    cloud.set(AGENT, uri)
    cloud.objects[uri] = archive
    vm.boot({**googleapis, "STORAGE_EMULATOR_HOST": None})
    vm.wait_for_line("STARTED")
    assert vm.wait() == 0
    token = json.loads(cloud.metadata("instance/service-accounts/default/token", {})[1])[
        "access_token"
    ]
    assert [headers["Authorization"] for headers in downloads(cloud)] == [f"Bearer {token}"]
