"""Python packages in layers, on VMs that one job after another uses.

    layers/runtime-HASH   what pip adds to the image: HASH of the runtime's requirements
    layers/job-HASH       the job's packages and their dependencies: HASH of both

Each is a folder for `pip install --user`. The layer of the job is the upper one; its `.pth` file
lists the lower one, so that Python finds the packages of both. A job with equal packages needs no
pip; one with an edited program gets another upper layer.

A seal is a hash of a complete layer's files. A layer that a program has changed no longer has its
seal and is built again, so what works on a VM that another job has used works on a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import site
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainmaster.agent.setup import machine_state
from trainmaster.agent.setup.first_record import read_record

USER_BASE = "PYTHONUSERBASE"
HIDE_PACKAGES = ("PYTHONNOUSERSITE", USER_BASE)
"""Variables with which a program's Python looks elsewhere than where pip has installed packages."""
SEALS = "seals.json"
"""File with the seal of each complete layer, by the layer's name."""
HASH_CHARS = 16
"""Length of the hash in the name of a layer."""
LOWER = "lower"
"""File in the upper layer with the path of the lower one."""


def user_base() -> Mapping[str, str]:
    """Return the environment variable that names the folder of `pip install --user`, if it is set.
    Without it, Python uses its default folder.
    """
    return {USER_BASE: os.environ[USER_BASE]} if USER_BASE in os.environ else {}


def program_folders() -> Sequence[str]:
    """Return where pip has installed the commands of packages, the upper layer first."""
    upper = site.getuserbase()
    lower = Path(upper) / LOWER
    others = [lower.read_text(encoding="utf-8").strip()] if lower.exists() else []
    return [f"{folder}/bin" for folder in (upper, *others)]


class PackageLayers:
    """The two layers of one job. Call `install` once per VM, or `enter` after a restart."""

    def __init__(self, work: Path, runtime: Sequence[str], packages: Sequence[str]) -> None:
        """`runtime`: pip's requirements. `packages`: URIs of the job's packages."""
        self._folder = work / "layers"
        self._lower = self._folder / f"runtime-{_hash([sys.version, *runtime])}"
        # The empty text ends the runtime's requirements, so that no other split has the same hash.
        self._upper = self._folder / f"job-{_hash([sys.version, *runtime, '', *packages])}"
        self._is_fixed = all("#" in uri for uri in packages)
        """Whether each URI names a version: otherwise the packages may have changed since they were
        installed.
        """

    def enter(self) -> None:
        """Let this process and its programs use the layers, which were installed before."""
        self._enter(self._upper)

    def install(
        self, install_runtime: Callable[[], None], install_packages: Callable[[], None]
    ) -> None:
        """Install what is missing, and let this process and its programs use the layers.

        Raises SetupError.

        The upper layer is built on the lower one, so a new lower layer needs a new upper one.
        """
        seals = self._read_seals()
        intact = {name for name, seal in seals.items() if seal == _seal(self._folder / name)}
        has_lower = self._lower.name in intact
        has_upper = has_lower and self._upper.name in intact and self._is_fixed
        if not has_lower:
            self._install(self._lower, install_runtime)
        if has_upper:
            self.enter()
        else:
            sys.path.append(_site_of(self._lower))  # Python has not seen it at its start
            self._install(self._upper, install_packages)
        self._remove_others()

    def _install(self, layer: Path, install: Callable[[], None]) -> None:
        """Install into an empty folder, and seal it. `install` calls pip. Raises SetupError."""
        machine_state.remove(layer)
        packages = Path(_site_of(layer))
        packages.mkdir(parents=True)
        if layer is self._upper:
            text = _site_of(self._lower) + "\n"
            (packages / "trainmaster-layers.pth").write_text(text, encoding="utf-8")
            (layer / LOWER).write_text(str(self._lower), encoding="utf-8")
        self._enter(layer)
        install()
        self._write_seals({**self._read_seals(), layer.name: _seal(layer)})

    @staticmethod
    def _enter(layer: Path) -> None:
        os.environ[USER_BASE] = str(layer)
        site.USER_BASE = str(layer)
        site.USER_SITE = _site_of(layer)

    def _remove_others(self) -> None:
        used = (self._lower.name, self._upper.name)
        for entry in self._folder.iterdir():
            if entry.is_dir() and entry.name not in used:
                machine_state.remove(entry)
        self._write_seals({name: self._read_seals()[name] for name in used})

    def _read_seals(self) -> dict[str, str]:
        stored = read_record(self._folder / SEALS) or {}
        return {name: str(seal) for name, seal in stored.items()}

    def _write_seals(self, seals: Mapping[str, str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / SEALS).write_text(json.dumps(seals), encoding="utf-8")


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:HASH_CHARS]


def _site_of(layer: Path) -> str:
    """Return the folder of the packages in a layer.

    Source: the scheme `posix_user` of sysconfig.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return str(layer / "lib" / version / "site-packages")


def _seal(layer: Path) -> str:
    """Return a hash of the names, sizes and times of all files.

    Compiled files (`__pycache__`) do not count: Python writes them when a package is first used.
    """
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(layer):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            status = (Path(folder) / name).lstat()
            line = f"{folder}/{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
            digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()
