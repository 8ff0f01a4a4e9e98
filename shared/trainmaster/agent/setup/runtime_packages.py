"""The packages that pip adds to the image, so that it becomes the runtime that the job requested.

pip runs only for packages that are missing: an image made for its runtime starts at once, and needs
no network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainmaster.agent.setup.framework_builds import is_framework, keep_builds
from trainmaster.agent.setup.pip import Pip, pip_error
from trainmaster.agent.workspace import Workspace

_PINNED = re.compile(
    r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*==\s*([A-Za-z0-9.+!-]+?)(\.\*)?\s*"
)
"""A requirement with one version or one prefix: `keras==3.*`. The groups: name, version, `.*`."""


class RuntimePackages:
    """Installs the requirements of the runtime version that are missing."""

    def __init__(self, pip: Pip, workspace: Workspace) -> None:
        self._pip = pip
        self._workspace = workspace
        self._folder = workspace.work / "runtime"

    def install(self, requirements: Sequence[str]) -> None:
        """Install the missing requirements. Raises SetupError. May be repeated."""
        missing: list[str] = []
        cuda_builds: list[str] = []
        for requirement in requirements:
            if is_another_build(requirement):
                cuda_builds.append(requirement)
            elif not is_satisfied(requirement):
                missing.append(requirement)
        if cuda_builds:
            self._workspace.log(
                f"Not installing {', '.join(cuda_builds)}: a build for CUDA, unlike this image's"
                " torch."
            )
        if not missing:
            return
        self._workspace.log(
            f"The VM's image lacks {', '.join(missing)}: downloading them, which may be gigabytes."
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        frameworks = [requirement for requirement in missing if is_framework(requirement)]
        others = [requirement for requirement in missing if requirement not in frameworks]
        # Frameworks first: the second run is told to keep their builds, whatever it requires.
        self._run_pip(frameworks, extra_options=[])
        self._run_pip(others, extra_options=keep_builds(self._folder))

    def _run_pip(self, requirements: Sequence[str], extra_options: Sequence[str]) -> None:
        if not requirements:
            return
        pip_exit = self._pip.install(
            options=[], names=requirements, folder=self._folder, extra=extra_options
        )
        if pip_exit.exit_status != 0:
            raise pip_error(", ".join(requirements), pip_exit)


def is_another_build(requirement: str) -> bool:
    """Return whether the requirement is missing, and the package index has only a build of it for
    CUDA, which this image's torch for CPUs cannot load.
    """
    if not re.match(r"torch(vision|audio)\b", requirement):
        return False
    return installed_version("torch").endswith("+cpu") and not is_satisfied(requirement)


def is_satisfied(requirement: str) -> bool:
    """Return whether a distribution of the required version is installed.

    Extras are ignored: an image with TensorFlow for its machine has the extras that it needs. Only
    ``NAME==VERSION`` and ``NAME==VERSION.*`` are understood; any other requirement counts as
    missing, and pip decides.
    """
    pinned = _PINNED.fullmatch(requirement)
    if pinned is None:
        return False
    name, required, is_prefix = pinned.groups()
    # Without the build, as in "2.13.0+cpu": like pip, accept whichever build the image has.
    version = installed_version(name).split("+")[0]
    return version == required or (bool(is_prefix) and version.startswith(f"{required}."))


def installed_version(name: str) -> str:
    """Return the version of a distribution, or "" if it is not installed.

    The first that is found on the path is the one that Python imports.
    """
    from importlib import metadata

    return next((found.version for found in metadata.distributions(name=name)), "")
