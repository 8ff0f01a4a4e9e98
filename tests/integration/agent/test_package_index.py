"""The installation's package index: pip uses it in place of PyPI, with the VM's token if it is
Artifact Registry.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.serving import serving
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.package_index import KEY, PackageIndex, with_token
from trainmaster.agent.setup.setup_errors import Retrier

from .support.cloud import Cloud
from .support.packages import wheel
from .support.vm import Vm


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A package index on a port of this machine, which has one package."""
    (tmp_path / "mirror" / "framework").mkdir(parents=True)
    (tmp_path / "mirror" / "framework" / "framework-0.1-py3-none-any.whl").write_bytes(
        wheel("framework", "NAME = 1")
    )
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "mirror"))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as address:
        yield f"{address}/"


def test_runtime_packages_come_from_the_index_of_the_installation(
    cloud: Cloud, offline: Vm, mirror: str
) -> None:
    del offline.environ["PIP_NO_INDEX"]
    offline.environ["PIP_INDEX_URL"] = "http://127.0.0.1:1/simple"
    offline.program("import framework; print('TRAINED')")
    offline.environ["PYTHONPATH"] = str(offline.home.parent / "code")
    cloud.set(KEY, mirror)
    offline.configure(packages=["framework==0.*"])
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "https://us-central1-python.pkg.dev/p/pypi/simple/",
            "https://oauth2accesstoken:secret@us-central1-python.pkg.dev/p/pypi/simple/",
        ),
        (
            "http://us-central1-python.pkg.dev/p/pypi/simple/",
            "http://us-central1-python.pkg.dev/p/pypi/simple/",
        ),
        ("https://pypi.example.com/simple/", "https://pypi.example.com/simple/"),
        ("https://pkg.dev.example.com/simple/", "https://pkg.dev.example.com/simple/"),
    ],
)
def test_only_artifact_registry_gets_the_token_of_the_vm(
    url: str, expected: str, cloud: Cloud
) -> None:
    cloud.set(KEY, url)
    assert package_index(cloud).environment() == {"PIP_INDEX_URL": expected}


def test_pip_keeps_its_own_index_without_one_of_the_installation(cloud: Cloud) -> None:
    assert package_index(cloud).environment() == {}


def test_token_is_quoted_in_the_url() -> None:
    assert (
        with_token("https://h/simple/", "a/b@c:d")
        == "https://oauth2accesstoken:a%2Fb%40c%3Ad@h/simple/"
    )


def package_index(cloud: Cloud) -> PackageIndex:
    console = Console(os.open(os.devnull, os.O_WRONLY))
    return PackageIndex(MetadataServer(cloud.host), Retrier(console, lambda _: None))
