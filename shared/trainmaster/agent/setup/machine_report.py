"""The agent's first line: what this machine is made of, so that a wrong image or driver is seen at
once.
"""

from __future__ import annotations

import subprocess
import sys

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.program.container_engine import ContainerEngine
from trainmaster.agent.program.devices import (
    driver_version,
    has_gpu,
    has_tpu,
    lacks_gpu_driver,
    tool_output,
)


def describe_machine(metadata: MetadataServer, engine: ContainerEngine | None) -> str:
    """Return boot image, Python, accelerator with its driver, and container engine.

    Raises nothing.
    """
    parts = (_image(metadata), f"Python {sys.version.split()[0]}", _accelerator(), _engine(engine))
    return f"This VM: {', '.join(parts)}."


def _image(metadata: MetadataServer) -> str:
    """Return `PROJECT/NAME` of the boot image. Source: predefined metadata keys, instance/image."""
    try:
        image = metadata.get("instance/image").strip()
    except HttpError:
        image = ""
    if not image:
        return "unknown image"
    return f"image {image.replace('projects/', '').replace('/global/images/', '/')}"


def _accelerator() -> str:
    if has_gpu():
        return f"NVIDIA driver {driver_version() or 'of unknown version'}"
    if lacks_gpu_driver():
        return "GPU without driver"
    return "TPU" if has_tpu() else "no GPU"


def _engine(engine: ContainerEngine | None) -> str:
    if engine is None:
        return "no container engine"
    try:
        output = tool_output(engine.version_command())
    except (OSError, subprocess.SubprocessError):
        output = ""
    return output.strip().partition(",")[0] or "container engine of unknown version"
