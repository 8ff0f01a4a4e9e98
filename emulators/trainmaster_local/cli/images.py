"""`trainmaster local images`: build the Python environments that stand for the images of VMs.

The stamp of an image is a copy of its locked requirements, and is written last: a build that was
interrupted, or had other requirements, is repeated.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from trainmaster.cli.output import say
from trainmaster.errors import PermanentError
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process.stack_config import IMAGES
from trainmaster_emulators.stack.runtime_images import STAMP

TORCH: Final = ("torch==2.13.0", "torchvision==0.28.0", "torchaudio==2.11.0")
"""Not locked with hashes: builds for CPUs and for CUDA have the same versions, and the package
index decides.
"""
COMPANIONS: Final = {
    "torchvision": (
        "from torchvision.ops import nms; nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1),"
        " 0.5)"
    ),
    "torchaudio": (
        "from torchaudio.functional import lfilter; lfilter(torch.zeros(1, 9), torch.ones(3),"
        " torch.ones(3))"
    ),
}
"""Packages whose builds fit one build of torch → a program that calls their native code.

A torch for CPUs cannot load builds for CUDA, such as PyPI's. An image with such a torch is built
without these packages.
"""


class Runtime(StrEnum):
    """The frameworks for which an image can be built."""

    TENSORFLOW = "tensorflow"
    SCIKIT_LEARN = "scikit-learn"
    PYTORCH = "pytorch"
    JAX = "jax"


def images(
    runtimes: Annotated[
        list[Runtime] | None,
        typer.Argument(
            metavar="[RUNTIME]...", help=f"Runtimes: {', '.join(Runtime)}. [default: all]"
        ),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Only show which ones are complete.")
    ] = False,
) -> None:
    """Build runtime images, so that VMs of the local stack need not download their packages.
    Complete ones stay.
    """
    for name in runtimes or Runtime:
        folder = IMAGES / name
        requirements = ROOT / "requirements" / f"runtime-{name}.txt"
        if not list_only:
            _build(name, folder, requirements)
        say(f"{name}: {folder if _is_complete(folder, requirements) else 'not built'}")


def _is_complete(folder: Path, requirements: Path) -> bool:
    """Return whether the image was built, from these requirements."""
    stamp = folder / STAMP
    return stamp.is_file() and stamp.read_bytes() == requirements.read_bytes()


def _build(name: Runtime, folder: Path, requirements: Path) -> None:
    """Build the image, unless it is complete. Another process that builds it ends first.

    Raises PermanentError if the installation fails.
    """
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (IMAGES / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another build of it ends first
        if not _is_complete(folder, requirements):
            say(f"{name}: installing up to 1 GB of packages")
            (folder / STAMP).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _install(folder, requirements, with_torch=name is Runtime.PYTORCH)
            except subprocess.CalledProcessError as error:
                raise PermanentError(
                    f"{name} is not complete: {error}. Begin again when that is repaired"
                ) from None
        # Also for a complete image: `make` compares times.
        shutil.copyfile(requirements, folder / STAMP)


def _install(folder: Path, requirements: Path, *, with_torch: bool) -> None:
    """Create the environment, and install the packages. Raises CalledProcessError."""
    run = partial(subprocess.run, check=True, env={**os.environ, "VIRTUAL_ENV": str(folder)})
    run([sys.executable, "-P", "-m", "venv", folder])
    uv = Path(sys.executable).with_name("uv")
    python = folder / "bin" / "python"
    pip = [uv, "pip"] if uv.exists() else [python, "-P", "-m", "pip"]  # a checkout has uv
    run([*pip, "install", "--no-deps", "--require-hashes", "--requirement", requirements])
    if with_torch:
        run([*pip, "install", *TORCH])
        for name, call in COMPANIONS.items():
            program = f"import torch; {call}"
            tried = run([python, "-P", "-c", program], check=False, stderr=subprocess.DEVNULL)
            if tried.returncode != 0:
                say(
                    f"{name} is left out: what the package index has of it cannot be loaded with"
                    " its torch"
                )
                run([*pip, "uninstall", "--yes", name])
