"""The runtime's packages: what pip adds to the image so that it is the runtime that the job asked for.

Nothing is run, and nothing downloaded, for what is there already: an image that was made for its
runtime starts at once, and needs no network.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

from shared.agent.setup.pip import pip_failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.agent.control.workspace import Place
    from shared.agent.setup.pip import Pip

_PINNED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*==\s*([A-Za-z0-9.+!-]+?)(\.\*)?\s*")


class Runtime:
    def __init__(self, pip: Pip, place: Place) -> None:
        self._pip = pip
        self._folder = place.work / "runtime"

    def install(self, requirements: Sequence[str]) -> None:
        """Raises SetupError. May be repeated."""
        missing = [each for each in requirements if not is_satisfied(each)]
        if not missing:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        ended = self._pip.install([], missing, self._folder)
        if ended.exit_status != 0:
            raise pip_failure(", ".join(missing), ended)


def is_satisfied(requirement: str) -> bool:
    """Whether a distribution of that version is installed. Extras are not looked at: an image that has TensorFlow for
    its machine has what it needs beside it. Anything but ``NAME==VERSION`` and ``NAME==VERSION.*`` is left to pip."""
    pinned = _PINNED.fullmatch(requirement)
    if pinned is None:
        return False
    name, desired, is_prefix = pinned.groups()
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    public = installed.split("+")[0]  # "2.13.0+cpu": the build is the image's choice, as for pip
    return public == desired or (bool(is_prefix) and public.startswith(f"{desired}."))
