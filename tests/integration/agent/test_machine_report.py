"""The agent's first line, which describes the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.program import devices
from trainmaster.agent.program.container_engine import ContainerEngine
from trainmaster.agent.setup.machine_report import describe_machine

from .support.cloud import Cloud
from .support.vm import Vm

# Source: /proc/driver/nvidia/version of NVIDIA's open and proprietary kernel modules.
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (dvs)\nGCC"
    " version:"
)
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC"
    " version: 12\n"
)


def test_first_line_names_image_python_driver_and_engine(cloud: Cloud, vm: Vm) -> None:
    vm.program("print('TRAINED')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot({"PATH": f"{Path(vm.environ['PATH'].split(os.pathsep)[0])}{os.pathsep}/bin"})
    cloud.wait_for_message("replica-exit")
    first = vm.lines("[trainmaster]")[0].decode()
    assert first.startswith(
        "[trainmaster] This VM: image deeplearning-platform-release/common-v20261101,"
        f" Python {platform.python_version()}, "
    )


@pytest.mark.parametrize(("text", "version"), [(OPEN, "580.159.03"), (PROPRIETARY, "535.183.01")])
def test_driver_version_is_read_from_either_kind_of_module(
    text: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud: Cloud
) -> None:
    (tmp_path / "nvidia0").touch()
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(devices, "_DEVICES", tmp_path)
    monkeypatch.setattr(devices, "_DRIVER_VERSION", tmp_path / "version")
    assert f"NVIDIA driver {version}," in describe_machine(MetadataServer(cloud.host), None)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("echo Docker version 28.2.2, build e6534b4", "Docker version 28.2.2."),
        ("exit 1", "engine of unknown version."),
    ],
)
def test_engine_is_shown_with_its_version(
    script: str, shown: str, tmp_path: Path, cloud: Cloud
) -> None:
    (program := tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    line = describe_machine(MetadataServer(cloud.host), ContainerEngine(str(program), "vm"))
    assert line.endswith(shown)
    assert "unknown image" in line
