"""The job's own packages: downloaded and installed with the calls that the old service documented."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tarfile
import threading
import time
import urllib.parse
import zipfile
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from shared.agent.calls import HttpError, backoffs
from shared.agent.program import TAIL_CHARS, Program
from shared.agent.tracebacks import MESSAGE_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.agent.console import Console
    from shared.agent.metadata import Google
    from shared.agent.program import Ended

TRIES = 5  # of a download before the failure counts as the platform's


@dataclass(frozen=True)
class Failure:
    """Why a package could not be set up: ``install`` (for good) or ``setup`` (this time)."""

    cause: str
    exit_status: int | None
    error: Mapping[str, str]
    tail: str


class SetupError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error["message"])
        self.failure = failure


class Setup:
    """Downloads and installs the packages, in order, with the calls the old service documented."""

    def __init__(
        self,
        storage: Google,
        console: Console,
        work: Path,
        environ: Mapping[str, str],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._storage = storage
        self._console = console
        self._work = work
        self._pause = pause
        self._lock = threading.Lock()
        self._cancelled = False
        self._pip: Program | None = None
        self._env = {
            **{name: value for name, value in environ.items() if name != "PYTHONNOUSERSITE"},
            "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the VM is the job's: newer distributions refuse --user without it
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def install(self, uris: Sequence[str]) -> Failure | None:
        """None: all packages are installed. May be repeated."""
        try:
            for position, uri in enumerate(uris):
                self._install(uri, self._work / "packages" / str(position))
        except SetupError as error:
            return error.failure
        return None

    def cancel(self) -> None:
        """Ends pip if it runs, from another thread."""
        with self._lock:
            self._cancelled = True
            if self._pip is not None:
                self._pip.kill()

    def _install(self, uri: str, folder: Path) -> None:
        bucket, _, name = uri[len("gs://") :].partition("/")
        package = folder / name.rsplit("/", 1)[-1]
        if not uri.startswith("gs://") or not bucket or package == folder:
            raise SetupError(_failure("install", None, "PackageError", f"{uri} is no package in Cloud Storage"))
        self._download(uri, bucket, name, package)
        first = ["--upgrade", "--force-reinstall", "--no-deps"]
        extra = ["--no-build-isolation"] if builds_without_isolation(package) else []
        ended = self._run_pip(package, first, extra)
        if ended.exit_status != 0 and not extra and package.suffix != ".whl" and has_setuptools():
            # Where there is no network an isolated build cannot fetch its build tools; the VM's may be good enough.
            self._console.say("Trying again with the build tools of this VM.")
            extra = ["--no-build-isolation", "--check-build-dependencies"]
            again = self._run_pip(package, first, extra)
            ended = again if again.exit_status == 0 else ended
        if ended.exit_status == 0:
            ended = self._run_pip(package, [], extra)
        if ended.exit_status != 0:
            raise SetupError(self._pip_failure(package.name, ended))

    def _download(self, uri: str, bucket: str, name: str, package: Path) -> None:
        self._console.say(f"Downloading the package: {uri}")
        path = f"/storage/v1/b/{urllib.parse.quote(bucket, safe='')}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        waits = backoffs(8.0)
        for left in range(TRIES - 1, -1, -1):
            try:
                package.parent.mkdir(parents=True, exist_ok=True)
                self._storage.call(path, timeout=60.0, into=package)
            except (HttpError, OSError) as error:
                # 401: the token was no longer good, the next try asks for another one.
                refused = (
                    isinstance(error, HttpError)
                    and not error.passing
                    and (error.status != HTTPStatus.UNAUTHORIZED or not left)
                )
                if refused or not left:
                    kind = "install" if refused else "setup"
                    problem = f"cannot download {uri}: {error}"
                    raise SetupError(_failure(kind, None, "DownloadError", problem)) from error
                self._console.say(f"Downloading {uri} failed ({error}); trying again.")
                self._pause(next(waits))
            else:
                return

    def _run_pip(self, package: Path, options: list[str], extra: list[str]) -> Ended:
        name = package.name if not package.name.startswith("-") else f"./{package.name}"
        self._console.say(f"Running command: {shlex.join(['pip3', 'install', '--user', *options, name])}")
        command = ["python3", "-m", "pip", "install", "--user", *options, *extra, name]
        with self._lock:
            if self._cancelled:
                raise SetupError(_failure("setup", None, "Cancelled", "the VM is shutting down"))
            pip = Program(command, env=self._env, cwd=package.parent, work=self._work, console=self._console)
            self._pip = pip
        return pip.wait()

    @staticmethod
    def _pip_failure(name: str, ended: Ended) -> Failure:
        # pip says so where it was the network; everything else is about the package.
        passing = ended.signal is not None or "connection broken by" in ended.tail
        said = [line.strip() for line in ended.tail.splitlines() if line.lstrip().startswith(("ERROR:", "error:"))]
        said = [line for line in said if "subprocess-exited" not in line]  # pip's headline: says nothing
        how = f"status {ended.exit_status}" if ended.signal is None else f"signal {ended.signal}"
        message = f"cannot install {name}: pip ended with {how}" + (f": {said[-1]}" if said else "")
        failure = _failure("setup" if passing else "install", ended.exit_status, "PackageError", message, ended.tail)
        return failure if ended.error is None else Failure(failure.cause, ended.exit_status, ended.error, ended.tail)


def _failure(cause: str, exit_status: int | None, kind: str, message: str, tail: str = "") -> Failure:
    error = {"type": kind, "message": message[:MESSAGE_CHARS], "frame": ""}
    return Failure(cause, exit_status, error, tail or message[-TAIL_CHARS:])


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
