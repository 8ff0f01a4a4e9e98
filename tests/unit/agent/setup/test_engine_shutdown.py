"""Docker runs until the shutdown script has ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.engine_shutdown import FILE, TEXT, UNITS, stop_engine_last
from trainmaster.agent.workspace import EMULATED_VM, Workspace


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """A systemctl that records its calls."""
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    (tmp_path / UNITS).mkdir(parents=True)
    calls = tmp_path / "calls"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >>{calls}\nexit ${{STATUS:-0}}\n')
    systemctl.chmod(0o755)
    return calls


def workspace(tmp_path: Path, log: str = os.devnull, **environ: str) -> Workspace:
    console = Console(os.open(log, os.O_WRONLY | os.O_CREAT))
    return Workspace(tmp_path, {"PATH": str(tmp_path / "bin"), **environ}, console)


def test_shutdown_script_is_stopped_before_the_engine(tmp_path: Path, calls: Path) -> None:
    for _ in range(2):
        stop_engine_last(workspace(tmp_path), tmp_path)
    assert (tmp_path / FILE).read_text() == TEXT
    assert calls.read_text() == "daemon-reload\n"


def test_local_vm_leaves_its_machines_services_alone(tmp_path: Path, calls: Path) -> None:
    stop_engine_last(workspace(tmp_path, **{EMULATED_VM: "1"}), tmp_path)
    assert not (tmp_path / FILE).exists()
    assert not calls.exists()


def test_machine_without_systemd_is_left_alone(tmp_path: Path, calls: Path) -> None:
    (tmp_path / UNITS).rmdir()
    stop_engine_last(workspace(tmp_path), tmp_path)
    assert not (tmp_path / UNITS).exists()
    assert not calls.exists()


def test_failure_is_logged(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "1")
    log = tmp_path / "log"
    stop_engine_last(workspace(tmp_path, str(log)), tmp_path)
    assert "Docker may stop before the program" in log.read_text()
