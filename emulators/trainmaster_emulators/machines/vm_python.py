"""The Python of a VM: an overlay of its runtime image, so that each VM has packages of its own.

A runtime image is a virtual environment that all VMs share and never write to. pip installs nothing
into the user site of a virtual environment that has another version of the package, because the
environment's packages come first on `sys.path`. On a real VM, the image's packages are those of the
base interpreter, and the user site comes first.

The overlay is a virtual environment without packages. Its `.pth` file makes the image the only one
of `site.PREFIXES`, and Python puts the site-packages of these prefixes behind the user site. The
order of `sys.path` is:

    1. the standard library
    2. packages that a plain `pip install` added to the VM
    3. the user site, with packages of `pip install --user`
    4. packages of the image

Packages of the interpreter on which the image was built, which are the developer's own, are not
among them.

Source: https://docs.python.org/3/library/site.html.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from trainmaster_emulators.machines.compute_errors import Json

CONFIGURATION: Final = "pyvenv.cfg"
PTH: Final = "image.pth"
FIRST_LINE_BYTES_MAX: Final = 255
"""Source: BINPRM_BUF_SIZE in linux/binfmts.h."""
_SETTING: Final = re.compile(r"^\s*([\w-]+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_PYTHON_LINE: Final = re.compile(rb"^#!.*/python[0-9.]*$")


def create_overlay(image: Path, overlay: Path) -> Path:
    """Create the overlay unless it exists. Return the folder of its programs, for PATH.

    Later boots of the VM use the same overlay, with what the earlier ones installed.
    """
    programs = overlay / "bin"
    if (overlay / CONFIGURATION).exists():
        return programs
    settings = image_settings(image)
    python = (image / "bin" / "python3").resolve()
    packages = overlay / "lib" / f"python{_minor_version(settings)}" / "site-packages"
    for folder in (programs, packages):
        folder.mkdir(parents=True, exist_ok=True)
    for name in {"python", "python3", f"python{_minor_version(settings)}"}:
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(python)
    (packages / PTH).write_text(
        f"import site; site.PREFIXES[:] = [{str(image)!r}]\n", encoding="utf-8"
    )
    _write_programs(image / "bin", programs)
    lines = {"home": str(python.parent), **settings, "include-system-site-packages": "true"}
    # Written last: an overlay without this file is incomplete.
    (overlay / CONFIGURATION).write_text(
        "".join(f"{key} = {value}\n" for key, value in lines.items())
    )
    return programs


def image_settings(image: Path) -> Json:
    """Return the image's `pyvenv.cfg`; empty if the image is a base interpreter."""
    path = image / CONFIGURATION
    return dict(_SETTING.findall(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _minor_version(settings: Json) -> str:
    """Return `3.11`. A base interpreter is the emulator's own."""
    version = settings.get("version", f"{sys.version_info.major}.{sys.version_info.minor}")
    return ".".join(version.split(".")[:2])


def _write_programs(source: Path, target: Path) -> None:
    """Copy the image's console scripts, such as torchrun, with the overlay's Python as their
    interpreter.
    """
    interpreter = b"#!%s/python3\n" % bytes(target)
    if b" " in interpreter or len(interpreter) > FIRST_LINE_BYTES_MAX:
        return  # the kernel could not run them; the image's own scripts follow on PATH
    for script in source.iterdir():
        if script.is_symlink() or not script.is_file() or (target / script.name).exists():
            continue
        with script.open("rb") as file:
            first = file.readline(512).rstrip()
            if not _PYTHON_LINE.fullmatch(first):
                continue
            rest = file.read()
        (target / script.name).write_bytes(interpreter + rest)
        (target / script.name).chmod(0o755)
