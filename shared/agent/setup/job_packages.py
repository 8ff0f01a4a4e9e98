"""The job's own packages: downloaded, and installed with the commands that AI Platform Training documented."""

from __future__ import annotations

import importlib.util
import re
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from shared.agent.setup.cloud_storage import split_uri
from shared.agent.setup.pip import pip_error
from shared.agent.setup.setup_errors import new_setup_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.agent.control.workspace import Workspace
    from shared.agent.setup.cloud_storage import StorageReader
    from shared.agent.setup.pip import Pip


class JobPackages:
    """Installs packages in order. pip runs twice for each: for the package itself, then for its dependencies."""

    def __init__(self, storage: StorageReader, pip: Pip, workspace: Workspace) -> None:
        self._storage = storage
        self._pip = pip
        self._workspace = workspace

    def install(self, uris: Sequence[str]) -> None:
        """Install the packages. Raises SetupError. May be repeated."""
        if not uris:
            self._workspace.log("No packages to install.")
        for position, uri in enumerate(uris):
            self._install(uri, self._workspace.work / "packages" / str(position))

    def _install(self, uri: str, folder: Path) -> None:
        bucket, name = split_uri(uri)
        package = folder / name.rsplit("/", 1)[-1]
        if not bucket or package == folder:
            problem = f"{uri} is not the URI of a package in Cloud Storage (gs://BUCKET/PACKAGE)"
            raise new_setup_error("PackageError", problem, transient=False)
        self._workspace.log(f"Downloading the package: {uri}")
        self._storage.download(uri, package)
        self._workspace.log(f"Installing the package: {uri}")
        options = ["--upgrade", "--force-reinstall", "--no-deps"]
        extra = ["--no-build-isolation"] if builds_without_isolation(package) else []
        names = [package.name if not package.name.startswith("-") else f"./{package.name}"]
        pip_exit = self._pip.install(options, names, folder, extra)
        if pip_exit.exit_status != 0 and not extra and package.suffix != ".whl" and has_setuptools():
            # Without a network an isolated build cannot download its build tools; the VM's may do.
            self._workspace.log("Trying again with the build tools of this VM.")
            extra = ["--no-build-isolation", "--check-build-dependencies"]
            second_exit = self._pip.install(options, names, folder, extra)
            pip_exit = second_exit if second_exit.exit_status == 0 else pip_exit
        if pip_exit.exit_status == 0:
            pip_exit = self._pip.install([], names, folder, extra)
        if pip_exit.exit_status != 0:
            raise pip_error(package.name, pip_exit)


def has_setuptools() -> bool:
    """Return whether this Python can build a wheel without downloading anything."""
    setuptools = importlib.util.find_spec("setuptools")
    if setuptools is None or setuptools.origin is None:
        return False
    builds_wheels = (Path(setuptools.origin).parent / "command" / "bdist_wheel.py").exists()  # setuptools 70.1
    return builds_wheels or importlib.util.find_spec("wheel") is not None


def builds_without_isolation(package: Path) -> bool:
    """Return whether to build with the VM's own setuptools: only if the package has a ``setup.py`` alone.

    ``gcloud`` makes such packages. The pip of AI Platform Training always built without isolation, and so do pips
    before version 25.3; later ones download setuptools first.
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
        return False  # pip's error message will explain it
    return has_setuptools() and not any(re.fullmatch(r"(\./)?([^/]+/)?pyproject\.toml", name) for name in names)
