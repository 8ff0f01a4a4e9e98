"""Images that lack what the agent needs: the startup script gets it, or says what is missing.

A PATH of its own stands in for the image's disk, and a script for Debian's package manager; the real one is tried in
`tests/integration/containers/test_debian.py`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from .support.cloud import Cloud
from .support.vm import Vm

APT_GET = """#!/bin/bash
echo "apt-get $*" >> "{home}/apt-get.log"
{behaviour}
"""
INSTALLS = 'if [ "$1" = install ]; then ln -sf {python} {bin}/python3; fi'
OLD = "#!/bin/bash\nexit 1\n"


class Disk:
    """What a PATH leads to: as little as Debian's base system has of what the script uses."""

    def __init__(self, vm: Vm) -> None:
        self.home = vm.home
        self.bin = vm.home / "bin"
        self.bin.mkdir()
        for name in ("ln", "mkdir", "sleep"):
            self.bin.joinpath(name).symlink_to(Path(shutil.which(name) or ""))
        self.script("id", "#!/bin/bash\necho 0\n")

    def script(self, name: str, text: str) -> None:
        file = self.bin / name
        file.unlink(missing_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def apt_get(self, behaviour: str) -> None:
        values = {"python": sys.executable, "bin": self.bin}
        self.script("apt-get", APT_GET.format(home=self.home, behaviour=behaviour.format(**values)))

    def asked_of_apt(self) -> list[str]:
        return (self.home / "apt-get.log").read_text().splitlines()


@pytest.fixture
def disk(vm: Vm) -> Disk:
    vm.environ["PATH"] = f"{vm.home / 'bin'}"
    return Disk(vm)


@pytest.mark.parametrize("before", ["none", "too old"])
def test_python_is_installed_where_an_image_has(before: str, cloud: Cloud, vm: Vm, disk: Disk) -> None:
    if before == "too old":
        disk.script("python3", OLD)
    disk.apt_get(INSTALLS)
    vm.program("print('TRAINED')")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("TRAINED")
    update, install = disk.asked_of_apt()
    assert update.startswith("apt-get update")
    assert "--no-install-recommends" in install
    assert install.endswith("python3 python3-pip ca-certificates")


def test_an_archive_that_is_away_for_a_moment_is_asked_again(cloud: Cloud, vm: Vm, disk: Disk) -> None:
    disk.apt_get(f'[ "$(< {vm.home}/apt-get.log)" = "apt-get update --quiet --quiet" ] && exit 100\n{INSTALLS}')
    vm.program("print('TRAINED')")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("TRAINED")
    assert len(disk.asked_of_apt()) == 3


@pytest.mark.parametrize("lacking", ["a package manager", "the right to use it"])
def test_an_image_without_python_says_so_where_it_lacks(lacking: str, vm: Vm, disk: Disk) -> None:
    if lacking == "the right to use it":
        disk.apt_get(INSTALLS)
        disk.script("id", "#!/bin/bash\necho 1000\n")
    vm.boot()
    vm.wait_for_line("[trainmaster] Python 3.8 or newer is missing, and cannot be installed here")
    assert vm.wait() == 1
    assert not (vm.home / "apt-get.log").exists()


def test_a_shutdown_does_not_wait_for_an_archive_that_stays_away(vm: Vm, disk: Disk) -> None:
    disk.apt_get("exit 100")
    vm.boot()
    vm.wait_for_line("[trainmaster] This image has no Python 3.8 with pip")
    vm.terminate()
    assert vm.wait() == 1


def test_an_image_that_has_everything_asks_for_nothing(cloud: Cloud, vm: Vm, disk: Disk) -> None:
    disk.apt_get("exit 100")
    disk.bin.joinpath("python3").symlink_to(sys.executable)
    vm.program("print('TRAINED')")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("TRAINED")
    assert not (vm.home / "apt-get.log").exists()
