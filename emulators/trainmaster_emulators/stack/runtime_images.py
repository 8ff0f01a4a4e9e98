"""The Python environment that replaces each VM image on the local stack.

A runtime image is a virtual environment that `trainmaster local images` builds. A stamp file marks
it as complete. The Compute emulator gets a table from image families to these environments, with a
default for any other image.

The software versions of real TPU VMs contain no framework; users' packages install JAX. Here they
include JAX.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster_emulators.tpu.catalog import RUNTIME_VERSIONS

STAMP: Final = ".complete"
DEFAULT: Final = "default"
TPU_RUNTIME: Final = "jax"


def image_table(images_dir: Path) -> dict[str, str]:
    """Return image family to environment path, for each runtime that has been built.

    The first runtime is also the default for all other images. If none has been built, VMs use the
    stack's own Python.
    """
    names = {runtime.image.rpartition("/")[2]: runtime.name for runtime in RUNTIMES.values()}
    names |= dict.fromkeys(RUNTIME_VERSIONS, TPU_RUNTIME)
    built: dict[str, str] = {}
    for image, name in names.items():
        folder = (images_dir / name).absolute()
        if (folder / STAMP).is_file():
            built[image] = str(folder)
    return built | {DEFAULT: next(iter(built.values()), sys.prefix)}
