"""The startup script and the agent on Debian root file systems, where they install what the image
lacks.

A container stands in for the VM. It has its own file system and processes, and it reaches the
metadata server, Pub/Sub and Cloud Storage of the agent's tests over the loopback address.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.agent.support.cloud import Cloud, Message
from tests.integration.agent.support.packages import sdist
from tests.integration.agent.support.vm import Vm
from tests.integration.containers.engine import PREFIX, Engine
from tests.support.stack import eventually
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.packaging.agent_archive import AGENT

pytestmark = [
    pytest.mark.heavy(
        fact="the agent starts on real Debian images",
        quick=(
            "`integration/agent/test_startup_script.py`,"
            " `integration/agent/test_engine_installation.py`"
        ),
    ),
    pytest.mark.timeout(900),
]

TRAINER = "gs://b/jobs/trainer-0.1.tar.gz"
TASK = """
import os, platform, sys
version = platform.python_version()
print("TRAINED ON", version, "AS", sys.argv[1:], "IN", os.environ["TF_CONFIG"][:10])
"""
SCIKIT_LEARN_TASK = """
import sklearn
from sklearn import datasets, linear_model
model = linear_model.LogisticRegression(max_iter=5000).fit(*datasets.load_iris(return_X_y=True))
print("LEARNED WITH", sklearn.__version__, model.score(*datasets.load_iris(return_X_y=True)))
"""
TRUSTED_CERTIFICATES = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
APT_S = 300.0
NO_APT = (
    "FROM {image}\nRUN rm -rf /etc/apt/sources.list /etc/apt/sources.list.d /var/lib/apt/lists\n"
)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Google Cloud for one VM, with a job of one package."""
    cloud = Cloud()
    Vm(cloud, tmp_path).configure(
        package_uris=[TRAINER], args=["--epochs", "5"], job_dir="gs://b/d"
    )
    cloud.objects[TRAINER] = sdist("trainer", TASK)
    cloud.direct(attempt=1, incarnation=1)
    yield cloud
    cloud.close()


@pytest.fixture
def boot(engine: Engine, cloud: Cloud) -> Iterator[Callable[..., str]]:
    """A function that starts a VM with an image's disk and options of `docker run`; it returns the
    container's id.
    """
    script = AGENT / "startup.sh"
    environment = {
        "GCE_METADATA_HOST": cloud.host,
        "TRAINMASTER_PUBSUB_ENDPOINT": cloud.host,
        "STORAGE_EMULATOR_HOST": f"http://{cloud.host}",
    }
    booted: list[str] = []

    def boot(image: str, *more: str) -> str:
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        mount = f"--volume={script}:/startup.sh:ro"
        options = ["--detach", "--network=host", mount, *variables, *more]
        booted.append(engine.docker("run", *options, image, "/bin/bash", "/startup.sh"))
        return booted[-1]

    yield boot
    for container in booted:
        engine.docker("rm", "--force", container)


def wait_for_message(cloud: Cloud, topic: str, console: Callable[[], str]) -> Message:
    def is_published() -> bool:
        return any(message.topic == topic for message in cloud.messages)

    try:
        eventually(is_published, within_s=APT_S)
    except AssertionError:
        raise AssertionError(console()) from None
    return next(message for message in cloud.messages if message.topic == topic)


@pytest.mark.parametrize(("suite", "python"), [("bullseye", "3.9"), ("bookworm", "3.11")])
@pytest.mark.parametrize("kind", ["google", "bare"])
def test_package_is_installed_and_run_on_debian(
    engine: Engine, cloud: Cloud, boot: Callable[..., str], suite: str, python: str, kind: str
) -> None:
    vm = boot(engine.bare_debian(suite) if kind == "bare" else engine.debian(suite))
    exit_event = wait_for_message(cloud, "replica-exit", lambda: engine.docker("logs", vm))
    assert exit_event.body["exit_status"] == 0, exit_event.body
    assert [topic for topic, _ in cloud.published()] == ["vm-ready", "replica-exit"]
    console = engine.docker("logs", vm)
    assert f"TRAINED ON {python}." in console
    assert "AS ['--epochs', '5', '--job-dir', 'gs://b/d'] IN {\"cluster\"" in console


def test_scikit_learn_runtime_has_its_version_on_debian_12(
    engine: Engine, cloud: Cloud, boot: Callable[..., str], tmp_path: Path
) -> None:
    runtime = RUNTIMES["scikit-learn-1.9"]
    assert runtime.image.endswith("/debian-12")
    cloud.objects[TRAINER] = sdist("trainer", SCIKIT_LEARN_TASK)
    (folder := tmp_path / "again").mkdir()
    Vm(cloud, folder).configure(package_uris=[TRAINER], packages=list(runtime.packages))
    # The package index may be behind a proxy with its own certificates, which this machine trusts.
    trusted = f"--volume={TRUSTED_CERTIFICATES}:/trusted.pem:ro"
    vm = boot(engine.debian("bookworm"), trusted, "--env=PIP_CERT=/trusted.pem")
    exit_event = wait_for_message(cloud, "replica-exit", lambda: engine.docker("logs", vm))
    assert exit_event.body["exit_status"] == 0, exit_event.body
    assert "LEARNED WITH 1.9" in engine.docker("logs", vm)


def test_missing_pip_is_reported_by_the_replica(
    engine: Engine, cloud: Cloud, boot: Callable[..., str]
) -> None:
    image = engine.build(f"{PREFIX}/debian:no-pip", NO_APT.format(image=engine.debian("bookworm")))
    vm = boot(image)
    exit_event = wait_for_message(cloud, "replica-exit", lambda: engine.docker("logs", vm))
    assert exit_event.body["cause"] == "install"
    assert "No module named pip" in exit_event.body["error"]["message"] + exit_event.body["tail"]
    assert "pip is missing and cannot be installed here" in engine.docker("logs", vm)


def test_missing_python_is_reported_on_the_console(
    engine: Engine, boot: Callable[..., str]
) -> None:
    image = engine.build(
        f"{PREFIX}/debian:no-python", NO_APT.format(image=engine.bare_debian("bookworm"))
    )
    vm = boot(image)
    assert engine.docker("wait", vm, within_s=APT_S) == "1"
    assert "Python 3.8 or newer is missing and cannot be installed here" in engine.docker(
        "logs", vm
    )


def test_container_engine_is_installed_on_an_image_without_one(
    engine: Engine, cloud: Cloud, boot: Callable[..., str], tmp_path: Path
) -> None:
    """A container has no service manager, so the installed engine does not run: its client is what
    can be checked.
    """
    (folder := tmp_path / "again").mkdir()
    Vm(cloud, folder).configure(
        container={"image": "us-docker.pkg.dev/p/r/i:1", "command": []}, python_module=""
    )
    vm = boot(engine.debian("bookworm"))
    exit_event = wait_for_message(cloud, "replica-exit", lambda: engine.docker("logs", vm))
    console = engine.docker("logs", vm)
    assert ", no container engine." in console, console
    assert "This image has no container engine: installing docker.io." in console
    assert "Pulling the image" in console or "Cannot connect to the Docker daemon" in console, (
        console
    )
    assert exit_event.body["cause"] == "setup"
    assert engine.docker("exec", vm, "docker", "--version").startswith("Docker version")
