"""Which Python environment stands in for which VM image.

A runtime image is a virtual environment, `.images/RUNTIME`, built by `make`; its stamp file says that it is complete.
The Compute emulator is told which image families those stand for, and what a VM of any other image gets. Cloud TPU's
software versions are bare; here they have JAX on board, which its users' packages bring.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from emulators.tpu.catalog import RUNTIME_VERSIONS
from shared.jobspec.catalog.runtimes import RUNTIMES

STAMP: Final = ".complete"
ANY_OTHER: Final = "default"
TPU: Final = "jax"


def table(images_dir: Path) -> dict[str, str]:
    """Image family to environment, for each runtime that is built; the first of those is every other image's as well.

    Without any, VMs run on the stack's own Python.
    """
    names = {runtime.image.rpartition("/")[2]: runtime.name for runtime in RUNTIMES.values()}
    names |= dict.fromkeys(RUNTIME_VERSIONS, TPU)
    built = {
        image: str(folder)
        for image, name in names.items()
        if ((folder := (images_dir / name).absolute()) / STAMP).is_file()
    }
    return built | {ANY_OTHER: next(iter(built.values()), sys.prefix)}


def write_table(images_dir: Path, target: Path) -> None:
    """The file for the Compute emulator's `--images`."""
    target.write_text(json.dumps(table(images_dir), indent=1) + "\n", encoding="utf-8")
