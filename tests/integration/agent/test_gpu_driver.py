"""Waiting for the driver of a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.agent.program import devices
from trainmaster.agent.program.devices import has_gpu
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.gpu_driver import WAIT_S, wait_for_driver
from trainmaster.agent.setup.setup_errors import SetupError
from trainmaster.agent.workspace import Workspace


class Machine:
    """The device files of a machine, and a clock that its pauses advance."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.waited_s = 0.0
        self.installed_after_s: float | None = None
        for folder in ("bus", "dev", "taken"):
            (root / folder).mkdir()

    def add_pci_device(self, vendor: str, device_class: str) -> None:
        device = self._root / "bus" / "0000:00:04.0"
        device.mkdir()
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{device_class}\n")

    def install_driver(self) -> None:
        (self._root / "taken" / "0000:00:04.0").mkdir()

    def pause(self, seconds: float) -> None:
        self.waited_s += seconds
        if self.installed_after_s is not None and self.waited_s >= self.installed_after_s:
            self.installed_after_s = None
            self.install_driver()

    def wait_for_driver(self) -> None:
        wait_for_driver(Workspace(self._root, environ={}, console=Console()), self.pause)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name, folder in (("_PCI_DEVICES", "bus"), ("_DEVICES", "dev"), ("_DRIVEN_GPUS", "taken")):
        monkeypatch.setattr(devices, name, tmp_path / folder)
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("vendor", "device_class"),
    [("0x1ae0", "0x088000"), ("0x10de", "0x068000"), ("0x1af4", "0x030000")],
    ids=["network card", "NVIDIA bridge", "display of another vendor"],
)
def test_device_that_is_not_an_nvidia_gpu_needs_no_driver(
    machine: Machine, vendor: str, device_class: str
) -> None:
    machine.add_pci_device(vendor, device_class)
    machine.wait_for_driver()
    assert not has_gpu()
    assert machine.waited_s == 0


def test_gpu_with_a_driver_counts_before_its_device_files_exist(machine: Machine) -> None:
    machine.add_pci_device("0x10de", "0x030200")
    machine.install_driver()
    machine.wait_for_driver()
    assert has_gpu()
    assert machine.waited_s == 0


def test_driver_installed_at_the_first_boot_is_awaited(machine: Machine) -> None:
    machine.add_pci_device("0x10de", "0x030200")
    machine.installed_after_s = 240
    machine.wait_for_driver()
    assert machine.waited_s == 240


def test_gpu_without_a_driver_is_a_permanent_failure(machine: Machine) -> None:
    machine.add_pci_device("0x10de", "0x030200")
    with pytest.raises(
        SetupError, match="this VM's GPU has no driver: use an image with a driver"
    ) as raised:
        machine.wait_for_driver()
    assert machine.waited_s == WAIT_S
    assert raised.value.failure.cause == "install"
