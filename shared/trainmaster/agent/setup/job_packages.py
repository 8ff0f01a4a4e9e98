"""The job's own packages: downloaded, and installed with the commands that AI Platform Training
documented.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from trainmaster.agent.setup.cloud_storage import StorageReader, split_uri
from trainmaster.agent.setup.framework_builds import keep_builds
from trainmaster.agent.setup.installed_packages import require_nothing
from trainmaster.agent.setup.pip import Pip, pip_error
from trainmaster.agent.setup.runtime_packages import installed_version
from trainmaster.agent.setup.setup_errors import new_setup_error
from trainmaster.agent.workspace import Workspace

# gs://BUCKET/NAME#sha256=HASH names a package by its content, and not by its generation.
SHA256 = "sha256="
NO_ISOLATION = "--no-build-isolation"


class JobPackages:
    """Installs packages in two passes: all packages without dependencies, in order, and then all
    dependencies.

    A package may require another one of the job. In the second pass both are installed, so that pip
    does not ask the package index for the name, where a stranger may have registered it.

    The second pass is left out if no package requires another one: pip would take seconds to change
    nothing.
    """

    def __init__(self, storage: StorageReader, pip: Pip, workspace: Workspace) -> None:
        self._storage = storage
        self._pip = pip
        self._workspace = workspace
        self._folder = workspace.work / "packages"

    def install(self, uris: Sequence[str]) -> None:
        """Install the packages. Raises SetupError. May be repeated."""
        if not uris:
            self._workspace.log("No packages to install.")
            return
        packages = [self._download(uri) for uri in uris]
        for package, uri in zip(packages, uris):
            self._workspace.log(f"Installing the package: {uri}")
            self._run_pip(["--upgrade", "--force-reinstall", "--no-deps"], [package])
        if require_nothing(packages):
            self._workspace.log("The packages require no others.")
        else:
            self._run_pip(options=[], packages=packages, kept=keep_builds(self._folder))

    def _download(self, uri: str) -> Path:
        object_uri, _, version = uri.partition("#")
        sha256 = version[len(SHA256) :] if version.startswith(SHA256) else ""
        generation = "" if sha256 else version
        bucket, name = split_uri(object_uri)
        package = self._folder / name.rsplit("/", 1)[-1]
        if not bucket or package == self._folder:
            problem = f"{uri} is not the URI of a package in Cloud Storage (gs://BUCKET/PACKAGE)"
            raise new_setup_error("PackageError", problem, transient=False)
        self._workspace.log(f"Downloading the package: {uri}")
        self._storage.download(object_uri, package, int(generation) if generation else None)
        if sha256 and hashlib.sha256(package.read_bytes()).hexdigest() != sha256:
            problem = (
                f"{object_uri} does not have the SHA-256 hash {sha256}: its content was replaced"
            )
            raise new_setup_error("PackageError", problem, transient=False)
        return package

    def _run_pip(
        self, options: Sequence[str], packages: Sequence[Path], kept: Sequence[str] = ()
    ) -> None:
        """Install the packages together. Raises SetupError.

        `kept`: options with which pip keeps the frameworks (TensorFlow, PyTorch) as the image has
        them built. pip builds a wheel of each source package, in an environment of its own
        (isolated) or with this VM's setuptools.
        """
        sources = [package for package in packages if package.suffix != ".whl"]
        is_isolated = not all(builds_without_isolation(source) for source in sources)
        building = [NO_ISOLATION] if sources and not is_isolated else []
        names = [_relative_name(package) for package in packages]
        pip_exit = self._pip.install(options, names, self._folder, [*building, *kept])
        if pip_exit.exit_status != 0 and is_isolated and has_setuptools():
            # Without a network, an isolated build cannot download its build tools. Those of the VM
            # may suffice.
            self._workspace.log("Trying again with the build tools of this VM.")
            building = [NO_ISOLATION]
            if has_check_option():
                building.append("--check-build-dependencies")
            second_exit = self._pip.install(options, names, self._folder, [*building, *kept])
            if second_exit.exit_status == 0:
                return
        if pip_exit.exit_status != 0:
            raise pip_error(", ".join(names), pip_exit)


def _relative_name(package: Path) -> str:
    """Return the package's name in its folder, so that pip does not take it for an option."""
    return f"./{package.name}" if package.name.startswith("-") else package.name


def has_check_option() -> bool:
    """Return whether pip has --check-build-dependencies: since 22.1.1 (its news).

    Ubuntu 22.04 has 22.0. All of 22.1 is left out here, because only the first two numbers of the
    version are compared.
    """
    try:
        version = tuple(int(part) for part in installed_version("pip").split(".")[:2])
    except ValueError:
        return False
    return version >= (22, 2)


def has_setuptools() -> bool:
    """Return whether this Python can build a wheel without downloading anything."""
    setuptools = importlib.util.find_spec("setuptools")
    if setuptools is None or setuptools.origin is None:
        return False
    has_bdist_wheel = (Path(setuptools.origin).parent / "command" / "bdist_wheel.py").exists()
    # Setuptools before 70.1 needs the distribution `wheel`.
    return has_bdist_wheel or importlib.util.find_spec("wheel") is not None


def builds_without_isolation(package: Path) -> bool:
    """Return whether to build with the VM's own setuptools: only if the package has a ``setup.py``
    alone.

    ``gcloud`` makes such packages. The pip of AI Platform Training always built without isolation,
    and so do pips before version 25.3; later ones download setuptools first.
    """
    import tarfile
    import zipfile

    try:
        if package.name.endswith(".zip"):
            with zipfile.ZipFile(package) as archive:
                names = archive.namelist()
        elif package.name.endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")):
            with tarfile.open(package) as tar:
                names = tar.getnames()
        else:
            return False
    except Exception:  # noqa: BLE001 - archives raise errors of many modules, and RecursionError
        return False  # pip's error message will explain it
    has_pyproject = any(re.fullmatch(r"(\./)?([^/]+/)?pyproject\.toml", name) for name in names)
    return has_setuptools() and not has_pyproject
