"""One of the stack's emulators in a container, in the foreground: `python -m emulators.stack.container_service VOLUME IMAGE ARG…`.

For machines without the Cloud SDK. The container has the host's network: Pub/Sub pushes to functions that listen on the
loopback address. It incarnations as long as this process, which holds its standard input: the engine closes that when we are
gone, however we went, and the shell around the emulator then ends it. So there is no need of testcontainers' reaper,
a container of its own with power over the engine; the stack's id is a label all the same (`processes.kill_stack`).
"""

from __future__ import annotations

import os
import sys
from typing import Final

from emulators.stack import processes

GOOGLE: Final = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"
"""With the emulators and Java in it. Source: https://cloud.google.com/sdk/docs/downloads-docker."""
FAKE_GCS: Final = "fsouza/fake-gcs-server:1.54.0"
"""The version of the program in the wheel. Source: https://hub.docker.com/r/fsouza/fake-gcs-server."""
EMULATOR_HOST: Final = "_EMULATOR_HOST"  # how one emulator is told of another

_WHILE_STDIN: Final = """
exec 3<&0
"$@" 3<&- &
emulator=$!
(cat <&3 >/dev/null; kill -KILL $emulator) &
wait $emulator
"""


def command(image: str, arguments: list[str], volume: str = "") -> list[str]:
    """`volume`: a folder that is the same one inside and outside."""
    return [sys.executable, "-m", "emulators.stack.container_service", volume, image, *arguments]


def provide() -> None:
    """The images of all emulators, fetched where they are not there yet: that takes minutes, once."""
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

    volume, image, *arguments = argv
    testcontainers_config.ryuk_disabled = True
    container = DockerContainer(image).with_command(arguments)
    container.with_envs(**{name: value for name, value in os.environ.items() if name.endswith(EMULATOR_HOST)})
    container.with_kwargs(
        entrypoint=["sh", "-c", _WHILE_STDIN, "sh"],
        network_mode="host",
        stdin_open=True,
        auto_remove=True,
        # What it writes into a folder of ours must be ours to remove.
        user=f"{os.getuid()}:{os.getgid()}" if volume else None,
        labels={processes.STACK_ID: os.environ.get(processes.STACK_ID, "")},
    )
    if volume:
        container.with_volume_mapping(volume, volume, "rw")
    container.start()
    attached = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "logs": 1}
    stream = container.get_wrapped_container().attach_socket(params=attached)
    for _, said in frames_iter(stream, tty=False):
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
    return 1  # it ended by itself


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
