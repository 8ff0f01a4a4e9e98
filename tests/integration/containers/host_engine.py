"""A container engine for quick tests: it starts in a second, and downloads nothing.

Its images have a few folders, a program, and no Python. The machine's own /usr and Pythons are
mounted into each container, read-only, by the command that the VMs use as `docker`.
"""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.integration.containers.engine import Client, run_folder, running_daemon
from trainmaster_emulators.checkout import ROOT

PYTORCH: Final = (ROOT / ".images" / "pytorch").resolve()
PYTHON: Final = Path(sys.base_prefix, "bin", "python3")
MOUNTED: Final = (Path("/usr"), Path(sys.base_prefix), PYTORCH)
FOLDERS: Final = ("app", "dev", "etc", "proc", "root", "sbin", "sys", "tmp", "usr", "var/tmp")
"""Folders of an image. The engine adds its init program to /sbin, which is no link therefore."""
LINKS: Final = ("bin", "lib", "lib64")
PATH: Final = f"{PYTHON.parent}:{PYTORCH}/bin:/usr/bin"
CLIENT: Final = """\
#!/bin/sh
export DOCKER_HOST={host}
if [ "$1" = run ]; then
  shift
  exec {docker} run {options} "$@"
fi
exec {docker} "$@"
"""


@dataclass(frozen=True)
class HostEngine:
    """`host`: the value of DOCKER_HOST."""

    host: str

    @property
    def client(self) -> Client:
        return Client("docker", {"DOCKER_HOST": self.host})

    def image(self, name: str, files: Mapping[str, str], *configuration: str) -> str:
        """Create an image and return its name.

        `files`: contents by path. `configuration`: lines of a Dockerfile, such as an ENTRYPOINT.
        """
        command = ["docker", "import", "--change", f"ENV PATH={PATH}"]
        for line in configuration:
            command += ["--change", line]
        subprocess.run(
            [*command, "-", name],
            env=self.client.environment,
            input=_root(files),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return name

    def install_client(self, folder: Path, *options: str) -> Path:
        """Write a command `docker` into a folder, and return the folder.

        `options` of `docker run` are added for each container.
        """
        volumes = [f"--volume={path}:{path}:ro" for path in _outermost(MOUNTED)]
        client = folder / "docker"
        client.write_text(
            CLIENT.format(
                host=shlex.quote(self.host),
                docker=shutil.which("docker"),
                options=shlex.join([*volumes, *options]),
            )
        )
        client.chmod(0o755)
        return folder


@contextmanager
def running_host_engine(data: Path) -> Iterator[HostEngine]:
    """Run an engine during the block. It ends with this process, even if that is killed."""
    with (
        run_folder() as run,
        running_daemon(run, data) as host,
    ):
        engine = HostEngine(host)
        yield engine
        if left := engine.client.containers():
            engine.client.run("rm", "--force", "--volumes", *left)


def _root(files: Mapping[str, str]) -> bytes:
    """Return the archive of an image's file system."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            folder.mode = 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(folder)
        for name in LINKS:
            link = tarfile.TarInfo(name)
            link.type = tarfile.SYMTYPE
            link.linkname = f"usr/{name}"
            tar.addfile(link)
        passwd = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n"
        for name, content in {"etc/passwd": passwd, **files}.items():
            file = tarfile.TarInfo(name)
            file.size = len(content.encode())
            file.mode = 0o755
            tar.addfile(file, io.BytesIO(content.encode()))
    return archive.getvalue()


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Return the paths that are below no other one."""
    return [path for path in paths if not any(other in path.parents for other in paths)]
