"""The job's own packages: downloaded and installed with the calls that the old service documented."""

from __future__ import annotations

import importlib.util
import re
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from shared.agent.setup.cloud_storage import parts_of
from shared.agent.setup.failure import failed
from shared.agent.setup.pip import pip_failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.agent.control.workspace import Place
    from shared.agent.setup.cloud_storage import Objects
    from shared.agent.setup.pip import Pip


class Packages:
    """They are installed in order, each by two calls of pip: itself whatever is there, then what it depends on."""

    def __init__(self, objects: Objects, pip: Pip, place: Place) -> None:
        self._objects = objects
        self._pip = pip
        self._place = place

    def install(self, uris: Sequence[str]) -> None:
        """Raises SetupError. May be repeated."""
        if not uris:
            self._place.say("No packages to install.")
        for position, uri in enumerate(uris):
            self._install(uri, self._place.work / "packages" / str(position))

    def _install(self, uri: str, folder: Path) -> None:
        bucket, name = parts_of(uri)
        package = folder / name.rsplit("/", 1)[-1]
        if not bucket or package == folder:
            raise failed("PackageError", f"{uri} is no package in Cloud Storage", transient=False)
        self._place.say(f"Downloading the package: {uri}")
        self._objects.fetch(uri, package)
        self._place.say(f"Installing the package: {uri}")
        first = ["--upgrade", "--force-reinstall", "--no-deps"]
        extra = ["--no-build-isolation"] if builds_without_isolation(package) else []
        names = [package.name if not package.name.startswith("-") else f"./{package.name}"]
        ended = self._pip.install(first, names, folder, extra)
        if ended.exit_status != 0 and not extra and package.suffix != ".whl" and has_setuptools():
            # Where there is no network an isolated build cannot fetch its build tools; the VM's may be good enough.
            self._place.say("Trying again with the build tools of this VM.")
            extra = ["--no-build-isolation", "--check-build-dependencies"]
            again = self._pip.install(first, names, folder, extra)
            ended = again if again.exit_status == 0 else ended
        if ended.exit_status == 0:
            ended = self._pip.install([], names, folder, extra)
        if ended.exit_status != 0:
            raise pip_failure(package.name, ended)


def has_setuptools() -> bool:
    """Whether this Python can build a wheel without fetching anything."""
    setuptools = importlib.util.find_spec("setuptools")
    if setuptools is None or setuptools.origin is None:
        return False
    builds_wheels = (Path(setuptools.origin).parent / "command" / "bdist_wheel.py").exists()  # setuptools 70.1
    return builds_wheels or importlib.util.find_spec("wheel") is not None


def builds_without_isolation(package: Path) -> bool:
    """Whether to build with the VM's own setuptools: for a package with a ``setup.py`` only, as ``gcloud`` makes them.

    The service's pip did so always, and so does today's before version 25.3; later ones would fetch setuptools first.
    """
    try:
        if package.name.endswith(".zip"):
            with zipfile.ZipFile(package) as archive:
                names = archive.namelist()
        elif package.name.endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")):
            with tarfile.open(package) as tar:
                names = tar.getnames()
        else:
            return False
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError):
        return False  # pip says what is wrong with it
    return has_setuptools() and not any(re.fullmatch(r"(\./)?([^/]+/)?pyproject\.toml", name) for name in names)
