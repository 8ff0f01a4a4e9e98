"""GPUs by a program named nvidia-smi on the PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.agent.utilization.gpus import FAILURES_MAX, GpuReading, Gpus, parse_readings


def install(folder: Path, script: str) -> dict[str, str]:
    """Write the program, and return an environment that finds it."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}/usr/bin:/bin"}


def test_each_sample_is_one_run_for_all_gpus(tmp_path: Path) -> None:
    environ = install(
        tmp_path, f'echo "$@" >> {tmp_path}/runs; printf "0, 97, 8000, 16000\\n1, 3, 0, 16000\\n"'
    )
    assert Gpus(environ, pytest.fail).read() == [
        GpuReading(index=0, utilization=0.97, memory=0.5),
        GpuReading(index=1, utilization=0.03, memory=0.0),
    ]
    query = (
        "--query-gpu=index,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits"
    )
    assert (tmp_path / "runs").read_text().splitlines() == [query]


def test_machine_without_nvidia_smi_has_no_gpus(tmp_path: Path) -> None:
    assert Gpus({"PATH": str(tmp_path)}, pytest.fail).read() == []


def test_driver_that_fails_is_reported_once_and_not_asked_again(tmp_path: Path) -> None:
    environ = install(tmp_path, f"echo run >> {tmp_path}/runs; exit 9")
    problems: list[str] = []
    gpus = Gpus(environ, problems.append)
    for _ in range(FAILURES_MAX + 3):
        assert gpus.read() == []
    assert len(problems) == 1
    assert "exit status 9" in problems[0]
    assert len((tmp_path / "runs").read_text().splitlines()) == FAILURES_MAX


def test_transient_failures_are_forgotten(tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/works && echo 0, 50, 1, 4"
    gpus = Gpus(install(tmp_path, script), pytest.fail)
    for _ in range(3):
        for _ in range(FAILURES_MAX - 1):
            assert gpus.read() == []
        (tmp_path / "works").touch()
        assert gpus.read() == [GpuReading(index=0, utilization=0.5, memory=0.25)]
        (tmp_path / "works").unlink()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0, [N/A], [N/A], [N/A]", GpuReading(0, utilization=None, memory=None)),
        ("3, 100, 16160, 16160", GpuReading(index=3, utilization=1.0, memory=1.0)),
        ("0, [Not Supported], 1, 2", GpuReading(index=0, utilization=None, memory=0.5)),
    ],
)
def test_values_that_a_gpu_does_not_report_are_left_out(line: str, expected: GpuReading) -> None:
    assert parse_readings(f"{line}\n") == [expected]


@pytest.mark.parametrize("output", ["No devices were found", "0, 1", "0, many, 1, 2", "x, 1, 1, 2"])
def test_other_output_is_an_error(output: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_readings(output)
