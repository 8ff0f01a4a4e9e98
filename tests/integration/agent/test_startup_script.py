"""Images without Python or pip: the startup script installs them, or reports what is missing.

A separate PATH stands in for the image's disk, and a script for apt-get.
`tests/integration/containers/test_debian.py` uses the real apt-get.
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
INSTALLS_PYTHON = 'if [ "$1" = install ]; then ln -sf {python} {bin}/python3; fi'
OLD = "#!/bin/bash\nexit 1\n"


class Disk:
    """The folder on the PATH, with the few commands of Debian's base system that the
    script uses.
    """

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

    def apt_calls(self) -> list[str]:
        return (self.home / "apt-get.log").read_text().splitlines()


@pytest.fixture
def disk(vm: Vm) -> Disk:
    vm.environ["PATH"] = f"{vm.home / 'bin'}"
    return Disk(vm)


@pytest.mark.parametrize("before", ["none", "too old"])
def test_python_is_installed_if_missing_or_too_old(
    before: str, cloud: Cloud, vm: Vm, disk: Disk
) -> None:
    if before == "too old":
        disk.script("python3", OLD)
    disk.apt_get(INSTALLS_PYTHON)
    vm.program("print('TRAINED')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("TRAINED")
    update, install = disk.apt_calls()
    assert update.startswith("apt-get update")
    assert "--no-install-recommends" in install
    assert install.endswith("python3 python3-pip ca-certificates")


def test_installation_is_retried_after_a_transient_failure(
    cloud: Cloud, vm: Vm, disk: Disk
) -> None:
    fail_at_the_first_call = (
        f'[ "$(< {vm.home}/apt-get.log)" = "apt-get update --quiet --quiet" ] && exit 100'
    )
    disk.apt_get(f"{fail_at_the_first_call}\n{INSTALLS_PYTHON}")
    vm.program("print('TRAINED')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("TRAINED")
    assert len(disk.apt_calls()) == 3


@pytest.mark.parametrize("lacking", ["a package manager", "the right to use it"])
def test_missing_python_is_reported_if_it_cannot_be_installed(
    lacking: str, vm: Vm, disk: Disk
) -> None:
    if lacking == "the right to use it":
        disk.apt_get(INSTALLS_PYTHON)
        disk.script("id", "#!/bin/bash\necho 1000\n")
    vm.boot()
    vm.wait_for_line("[trainmaster] Python 3.8 or newer is missing and cannot be installed here")
    assert vm.wait() == 1
    assert not (vm.home / "apt-get.log").exists()


def test_shutdown_ends_the_retries_of_an_installation(vm: Vm, disk: Disk) -> None:
    disk.apt_get("exit 100")
    vm.boot()
    vm.wait_for_line("[trainmaster] This image has no Python 3.8 with pip")
    vm.terminate()
    assert vm.wait() == 1


def test_complete_image_installs_nothing_and_is_checked_with_one_start_of_python(
    cloud: Cloud, vm: Vm, disk: Disk
) -> None:
    disk.apt_get("exit 100")
    disk.script(
        "python3",
        f'#!/bin/bash\necho "${{1##*/}}" >>"{disk.home}/starts"\nexec {sys.executable} "$@"\n',
    )
    vm.program("print('TRAINED')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("TRAINED")
    assert not (vm.home / "apt-get.log").exists()
    assert (disk.home / "starts").read_text().split() == ["-c", "-c"], "check; download and agent"


def test_image_without_pip_that_cannot_be_installed_runs_the_program(
    cloud: Cloud, vm: Vm, disk: Disk
) -> None:
    lacks_pip = f'#!/bin/bash\n[[ "$*" == *find_spec* ]] && exit 1\nexec {sys.executable} "$@"\n'
    disk.script("python3", lacks_pip)
    vm.program("print('TRAINED')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("[trainmaster] pip is missing and cannot be installed here")
    vm.wait_for_line("TRAINED")


@pytest.mark.parametrize("is_local", [False, True])
def test_upgrades_of_the_first_boot_are_held_on_vms_of_their_own(
    cloud: Cloud, vm: Vm, is_local: bool
) -> None:
    disk = Disk(vm)
    disk.script("python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    disk.script(
        "systemctl", f'#!/bin/bash\necho "systemctl $*" >> "{disk.home}/systemctl.log"\nexit 1\n'
    )
    vm.program("print('TRAINED')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot({"PATH": str(disk.bin), "TRAINMASTER_EMULATED_VM": "tm-vm" if is_local else None})
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    log = disk.home / "systemctl.log"
    calls = log.read_text().splitlines() if log.exists() else []
    assert calls == (
        [] if is_local else ["systemctl mask --now apt-daily.timer apt-daily-upgrade.timer"]
    )
