"""One of Google's emulators in a container, in the foreground: `python -m emulators.container firestore PORT`.

For machines without the Cloud SDK. testcontainers' reaper removes the container when this process is gone, however it
went, so the stack's guarantee (nothing is left) holds here as well.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

from emulators.processes import LOOPBACK

# The tag with the emulators and Java in it. Source: the Cloud SDK's own documentation of its images.
IMAGE: Final = "google/cloud-sdk:emulators"


def main(argv: list[str]) -> int:
    from testcontainers.core.container import DockerContainer

    emulator, port = argv
    # The host's network: Pub/Sub pushes to functions that listen on the host's loopback address.
    container = DockerContainer(IMAGE).with_kwargs(network_mode="host")
    container.with_command(
        ["gcloud", "beta", "emulators", emulator, "start", f"--host-port={LOOPBACK}:{port}", "--quiet"]
    )
    with container:
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    # Blocked before testcontainers starts a thread, so that none of them takes the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main(sys.argv[1:]))
