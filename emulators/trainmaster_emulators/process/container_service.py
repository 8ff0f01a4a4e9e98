"""Run one emulator in a container, in the foreground, on machines without the Cloud SDK.

    python -m trainmaster_emulators.process.container_service VOLUME LOCALHOST IMAGE ARG…

The container uses the host's network, because Pub/Sub pushes to functions that listen on the
loopback address.

The container ends with this process. This process holds the container's standard input; when it
ends for any reason, the engine closes that input, and the shell around the emulator kills the
emulator. Therefore testcontainers' reaper, a privileged extra container, is not needed. The
container also carries the stack's id as a label, which `processes.kill_stack` uses.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from trainmaster_emulators.process import processes

GOOGLE: Final = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"
"""Contains the emulators and Java. Source: https://cloud.google.com/sdk/docs/downloads-docker."""
FAKE_GCS: Final = "fsouza/fake-gcs-server:1.54.0"
"""Image of the Cloud Storage emulator, of the same version as the program in the wheel.

Source: https://hub.docker.com/r/fsouza/fake-gcs-server.
"""
EMULATOR_HOST: Final = "_EMULATOR_HOST"
"""Suffix of the variables that hold other emulators' addresses; the container gets these variables.
"""

_WHILE_STDIN: Final = """
exec 3<&0
"$@" 3<&- &
emulator=$!
(cat <&3 >/dev/null; kill -KILL $emulator) &
wait $emulator
"""


def command(image: str, arguments: list[str], volume: str = "", localhost: str = "") -> list[str]:
    """Return the command line that runs this module.

    `volume`: a folder to mount at the same path, or empty. `localhost`: another address of that
    name, or empty.
    """
    return [
        sys.executable,
        "-P",
        "-m",
        "trainmaster_emulators.process.container_service",
        volume,
        localhost,
        image,
        *arguments,
    ]


def fetch_images() -> None:
    """Fetch the images of all emulators that the engine does not have yet.

    The first time takes minutes.
    """
    import docker

    client = docker.from_env()
    for image in (GOOGLE, FAKE_GCS):
        if not client.images.list(image):
            sys.stderr.write(f"fetching {image}\n")
            client.images.pull(image)
    client.close()


def main(argv: list[str]) -> int:
    from docker.utils.socket import frames_iter
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    volume, localhost, image, *arguments = argv
    testcontainers_config.ryuk_disabled = True
    container = DockerContainer(image).with_command(arguments)
    container.with_envs(
        **{name: value for name, value in os.environ.items() if name.endswith(EMULATOR_HOST)}
    )
    container.with_kwargs(
        entrypoint=["sh", "-c", _WHILE_STDIN, "sh"],
        network_mode="host",
        stdin_open=True,
        auto_remove=True,
        # Files that the container writes into our folder must belong to us, so that we can remove
        # them.
        user=f"{os.getuid()}:{os.getgid()}" if volume else None,
        extra_hosts={"localhost": localhost} if localhost else None,
        labels={processes.STACK_ID: os.environ.get(processes.STACK_ID, "")},
    )
    if volume:
        container.with_volume_mapping(volume, volume, "rw")
    container.start()
    attached = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "logs": 1}
    stream = container.get_wrapped_container().attach_socket(params=attached)
    for _, output in frames_iter(stream, tty=False):
        sys.stdout.buffer.write(output)
        sys.stdout.flush()
    return 1  # the emulator ended unexpectedly


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
