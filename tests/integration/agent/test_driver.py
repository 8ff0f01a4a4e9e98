"""A GPU that no driver has taken: waited for, and never trained without."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.agent.control.workspace import Place
from shared.agent.reporting.serial_console import Console
from shared.agent.setup import devices
from shared.agent.setup.devices import has_gpu
from shared.agent.setup.failure import SetupError
from shared.agent.setup.gpu_driver import WAIT_S, await_driver


class Machine:
    """Its devices, and a clock that its pauses move."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.waited_s = 0.0
        self.comes_after_s: float | None = None
        for folder in ("bus", "dev", "taken"):
            (root / folder).mkdir()

    def plug(self, maker: str, kind: str) -> None:
        device = self._root / "bus" / "0000:00:04.0"
        device.mkdir()
        (device / "vendor").write_text(f"{maker}\n")
        (device / "class").write_text(f"{kind}\n")

    def take(self) -> None:
        (self._root / "taken" / "0000:00:04.0").mkdir()

    def pause(self, seconds: float) -> None:
        self.waited_s += seconds
        if self.comes_after_s is not None and self.waited_s >= self.comes_after_s:
            self.comes_after_s = None
            self.take()

    def start(self) -> None:
        await_driver(Place(self._root, {}, Console()), self.pause)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name, folder in (("_BUS", "bus"), ("_DEVICES", "dev"), ("_TAKEN", "taken")):
        monkeypatch.setattr(devices, name, tmp_path / folder)
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("maker", "kind"),
    [("0x1ae0", "0x088000"), ("0x10de", "0x068000"), ("0x1af4", "0x030000")],
    ids=["a network card", "NVIDIA's bridge", "another's screen"],
)
def test_what_is_no_gpu_of_nvidias_needs_no_driver(machine: Machine, maker: str, kind: str) -> None:
    machine.plug(maker, kind)
    machine.start()
    assert not has_gpu()
    assert machine.waited_s == 0


def test_a_gpu_that_is_taken_is_there_before_its_device_files(machine: Machine) -> None:
    machine.plug("0x10de", "0x030200")
    machine.take()
    machine.start()
    assert has_gpu()
    assert machine.waited_s == 0


def test_a_driver_that_is_installed_at_the_first_boot_is_waited_for(machine: Machine) -> None:
    machine.plug("0x10de", "0x030200")
    machine.comes_after_s = 240
    machine.start()
    assert machine.waited_s == 240


def test_nothing_starts_on_a_gpu_that_no_driver_takes(machine: Machine) -> None:
    machine.plug("0x10de", "0x030200")
    with pytest.raises(SetupError, match="no driver has taken this VM's GPU: use an image that has one") as raised:
        machine.start()
    assert machine.waited_s == WAIT_S
    assert raised.value.failure.cause == "install"
