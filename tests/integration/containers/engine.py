"""A container engine for the tests, with images that are built here instead of downloaded.

    .images/engine/     the images, kept from one session to the next; only one session at a
                        time may use them
    /run/tm-engine-…    the engine's socket and other files that are removed at its end

It needs root and some Debian packages (`missing` names them). Containers use the machine's own
network or none: no bridge, no firewall rule, nothing that outlives the session. The image names are
invented, so that no public registry has them; a registry that the tests start serves images that
have to be pulled.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.stack import eventually
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process import container_service, exec_with_parent
from trainmaster_emulators.process.backends import BackendKind, choose_backend
from trainmaster_emulators.process.processes import LOOPBACK, Ports
from trainmaster_emulators.services import storage

FOLDER: Final = ROOT / ".images" / "engine"
SOURCES: Final = Path(__file__).parent / "images"
ENGINE: Final = {"dockerd": "docker.io", "docker": "docker.io", "iptables": "iptables"}
BUILDERS: Final = {"debootstrap": "debootstrap", "docker-registry": "docker-registry"}
PREFIX: Final = "trainmaster-tests"
BUILD_S: Final = 540.0
START_S: Final = 60.0

# The packages that Google's Debian images have besides the base system, as far as we use them; pip
# is not among them. Source: compute-image-tools, daisy_workflows/image_build/debian (python3);
# Debian's class EXTRAS (the other two).
DEBIAN_DOCKERFILE: Final = """
FROM {bare}
RUN apt-get update && apt-get clean \\
    && apt-get install --yes --no-install-recommends python3 curl ca-certificates
"""

PODMAN_STORAGE: Final = """
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""
PODMAN_REGISTRIES: Final = """
[[registry]]
location = "{registry}"
insecure = true
"""
# By default podman raises these limits, which is not permitted if this machine is a container
# itself. Its default runtime, crun, rejects control groups of both versions at once; runc is
# installed, because docker needs it.
PODMAN_CONTAINERS: Final = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""

# The contents of Google's image with the emulators: Java and gcloud.
SDK_DOCKERFILE: Final = """
FROM {debian}
RUN mkdir -p /usr/share/man/man1 && apt-get update && \\
    apt-get install --yes --no-install-recommends openjdk-17-jre-headless && apt-get clean
COPY sdk /google-cloud-sdk
ENV PATH=/google-cloud-sdk/bin:$PATH CLOUDSDK_PYTHON=python3
"""
GCS_DOCKERFILE: Final = """
FROM {debian}
COPY {program} /bin/fake-gcs-server
ENTRYPOINT ["/bin/fake-gcs-server", "-data", "/data"]
"""


def missing(programs: Mapping[str, str]) -> str:
    """Return why no engine can be started here; empty if it can.

    `programs`: those that are needed, and their Debian packages.
    """
    absent = sorted(
        {package for program, package in programs.items() if shutil.which(program) is None}
    )
    if absent:
        return f"no container engine: apt-get install --no-install-recommends {' '.join(absent)}"
    return "" if os.geteuid() == 0 else "no container engine: starting one needs root"


@dataclass(frozen=True)
class Client:
    """An engine's command line. `marks`: the variables with which it finds this engine."""

    program: str
    marks: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.marks}

    def run(self, *arguments: str, within_s: float = 60.0, stdin: str = "") -> str:
        """Return the command's output. Raises AssertionError with both outputs if it failed."""
        done = subprocess.run(
            [self.program, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=within_s,
            input=stdin,
            check=False,
        )
        assert done.returncode == 0, (
            f"{self.program} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        )
        return done.stdout.strip()

    def containers(self, *filters: str) -> list[str]:
        """Return the ids of all containers, running or not."""
        return self.run(
            "ps", "--all", "--quiet", *(f"--filter={condition}" for condition in filters)
        ).split()


@dataclass(frozen=True)
class Engine:
    """`host`: the value of DOCKER_HOST. `registry`: the host and port from which images can be
    pulled.
    """

    host: str
    registry: str

    @property
    def environment(self) -> dict[str, str]:
        return self.client.environment

    @property
    def client(self) -> Client:
        return Client("docker", {"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"})

    def docker(self, *arguments: str, within_s: float = 60.0, stdin: str = "") -> str:
        return self.client.run(*arguments, within_s=within_s, stdin=stdin)

    def has(self, image: str) -> bool:
        return bool(self.docker("image", "ls", "--quiet", image))

    def containers(self, *filters: str) -> list[str]:
        return self.client.containers(*filters)

    def build(self, tag: str, dockerfile: str, context: Path | None = None) -> str:
        """Build an image and return its name. Unchanged layers of earlier sessions are reused."""
        source = ["--file", "-", str(context)] if context else ["-"]
        self.docker(
            "build", "--network", "host", "--tag", tag, *source, within_s=BUILD_S, stdin=dockerfile
        )
        return tag

    def bare_debian(self, suite: str) -> str:
        """Return the smallest Debian image, with neither Python nor curl."""
        name = f"{PREFIX}/debian:{suite}-bare"
        if not self.has(name):
            with tempfile.TemporaryDirectory(dir=FOLDER) as root:
                done = subprocess.run(
                    ["debootstrap", "--variant=minbase", suite, root],
                    capture_output=True,
                    text=True,
                    timeout=BUILD_S,
                    check=False,
                )
                assert done.returncode == 0, done.stdout[-2000:] + done.stderr
                with subprocess.Popen(
                    ["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE
                ) as tar:
                    subprocess.run(
                        ["docker", "import", "-", name],
                        env=self.environment,
                        stdin=tar.stdout,
                        check=True,
                    )
                assert tar.returncode == 0
        return name

    def debian(self, suite: str) -> str:
        """Return an image with what the agent uses of Google's image of that release."""
        return self.build(
            f"{PREFIX}/debian:{suite}", DEBIAN_DOCKERFILE.format(bare=self.bare_debian(suite))
        )

    def program(self) -> str:
        """Return a user's training image (`images/program`)."""
        folder = SOURCES / "program"
        dockerfile = (
            (folder / "Dockerfile").read_text().replace("python:3.11-slim", self.debian("bookworm"))
        )
        return self.build(f"{PREFIX}/program:1", dockerfile, folder)

    def google_emulators(self) -> str:
        """Build Google's emulator image under its official name, from the Cloud SDK of this
        machine.
        """
        if self.has(container_service.GOOGLE):  # otherwise the builder compares a gigabyte of files
            return container_service.GOOGLE
        backend = choose_backend(BackendKind.CLOUD_SDK)
        assert backend.kind is BackendKind.CLOUD_SDK, backend.reason
        sdk = backend.firestore_jar.parents[2]
        parts = [
            *(
                sdk / name
                for name in (".install", "lib", "properties", "bin/gcloud", "bin/bootstrapping")
            ),
            backend.firestore_jar.parent,
            backend.pubsub_jar.parents[1],
        ]
        with tempfile.TemporaryDirectory(dir=FOLDER) as context:
            for part in parts:
                target = Path(context, "sdk", part.relative_to(sdk))
                target.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "--recursive", "--link", str(part), str(target)], check=True)
            dockerfile = SDK_DOCKERFILE.format(debian=self.debian("bookworm"))
            return self.build(container_service.GOOGLE, dockerfile, Path(context))

    def fake_gcs(self) -> str:
        """Build the fake-gcs-server image under its official name, from the program in
        the wheel.
        """
        program = storage.find_program()
        dockerfile = GCS_DOCKERFILE.format(debian=self.debian("bookworm"), program=program.name)
        return self.build(container_service.FAKE_GCS, dockerfile, program.parent)

    def publish(self, image: str, name: str) -> str:
        """Push an image and return its URI in the registry.

        The engine keeps no copy under that URI.
        """
        uri = f"{self.registry}/{name}"
        self.docker("tag", image, uri)
        self.docker("push", uri, within_s=BUILD_S)
        self.docker("rmi", uri)
        return uri


@contextmanager
def running_engine() -> Iterator[Engine]:
    """Run an engine and its registry during the block.

    They end with this process, even if it is killed.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        (FOLDER / "lock").open("w") as lock,
        run_folder() as run,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = FOLDER / "data"
        with _registry(run) as registry, running_daemon(run, data) as host:
            engine = Engine(host, registry)
            if left := engine.containers():  # of a session that was killed
                engine.docker("rm", "--force", "--volumes", *left)
            yield engine


@contextmanager
def run_folder() -> Iterator[Path]:
    """Create the folder of an engine's sockets for the block.

    The engine names a namespace of containerd after it, whose names have no two punctuation marks
    in a row and none at their end, as the names of `tempfile` may have.
    """
    folder = Path("/run") / f"tm-engine-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_podman(registry: str) -> Iterator[Client]:
    """Podman with separate storage, and a PATH without docker, which an agent would prefer."""
    if shutil.which("podman") is None or not (shutil.which("catatonit") or shutil.which("tini")):
        pytest.skip(
            "no podman with an init program: apt-get install --no-install-recommends podman"
            " catatonit"
        )
    with tempfile.TemporaryDirectory(prefix="tm-podman-") as name:
        folder = Path(name)
        programs = folder / "bin"
        programs.mkdir()
        for program in Path("/usr/bin").iterdir():
            if program.name != "docker":
                (programs / program.name).symlink_to(program)
        marks = {"PATH": str(programs)}
        for variable, text in (
            ("CONTAINERS_STORAGE_CONF", PODMAN_STORAGE.format(folder=folder)),
            ("CONTAINERS_REGISTRIES_CONF", PODMAN_REGISTRIES.format(registry=registry)),
            ("CONTAINERS_CONF", PODMAN_CONTAINERS),
        ):
            (folder / variable).write_text(text)
            marks[variable] = str(folder / variable)
        client = Client("podman", marks)
        yield client
        client.run("rm", "--all", "--force", "--volumes")


@contextmanager
def running_daemon(run: Path, data: Path) -> Iterator[str]:
    """Run dockerd during the block, and yield its address. It shares nothing with other engines.

    `run`: a folder for its socket and its other files; `data`: a folder for its images.
    """
    host = f"unix://{run}/docker.sock"
    command = ["dockerd", "--host", host]
    command += ["--data-root", str(data)]
    command += ["--exec-root", str(run / "exec")]
    command += ["--pidfile", str(run / "pid")]
    command += ["--containerd-namespace", run.name]
    command += ["--containerd-plugins-namespace", f"{run.name}-plugins"]
    command += ["--bridge=none", "--iptables=false", "--ip6tables=false"]
    try:
        with _running(command, run / "dockerd.log"):
            answers = ["docker", "--host", host, "version"]
            eventually(lambda: _succeeds(answers), within_s=START_S)
            yield host
    finally:
        # The daemon leaves its network namespaces there.
        for mounted in (run / "exec" / "netns").glob("*"):
            subprocess.run(["umount", str(mounted)], check=False)


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def _registry(run: Path) -> Iterator[str]:
    ports = Ports()
    address = f"{LOOPBACK}:{ports.take()}"
    config = run / "registry.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory:"
        f" {run}/registry}}}}\nhttp: {{addr: '{address}'}}\n"
    )
    with _running(["docker-registry", "serve", str(config)], run / "registry.log"):
        yield address
    ports.close()


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            exec_with_parent.command(command, signal.SIGTERM),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        status = process.poll()
        process.terminate()
        process.wait(START_S)
        assert status is None, f"{command[0]} ended: {log.read_text()[-2000:]}"
