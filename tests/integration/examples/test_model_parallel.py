"""The JAX examples: the same losses on every mesh, also over several hosts."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.heavy(
        fact="each mesh of the model-parallel example computes the same",
        quick=(
            "`integration/runtimes/test_jax_cluster.py`; its package and flags in"
            " `integration/examples/test_examples.py`"
        ),
    ),
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).resolve().parents[3]
MESH = re.compile(r"mesh (\{.*\})")
PATIENCE_S = 120


def start(
    job_dir: Path, *arguments: str, devices: int = 8, **variables: str
) -> subprocess.Popen[str]:
    python = ROOT / ".images" / "jax" / "bin" / "python"
    assert python.exists(), "there is no runtime image jax: build it with `make images`"
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        **variables,
    }
    command = [str(python), "-m", "trainer.task", "--job-dir", str(job_dir), *arguments]
    folder, piped = ROOT / "examples" / "tpu_jax", subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=piped, stderr=subprocess.STDOUT, text=True
    )


def run(job_dir: Path, *arguments: str) -> str:
    process = start(job_dir, *arguments)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    return output


def losses(output: str) -> list[str]:
    return re.findall(r"epoch \d+/\d+ loss ([\d.]+)", output)


def test_every_mesh_computes_the_same_as_data_parallelism(tmp_path: Path) -> None:
    expected = losses(run(tmp_path / "1", "--epochs", "3"))
    assert len(expected) == 3
    for columns in (2, 8):
        output = run(tmp_path / str(columns), "--epochs", "3", "--model-parallel", str(columns))
        assert MESH.findall(output) == [f"{{'data': {8 // columns}, 'model': {columns}}}"]
        assert losses(output) == expected
    metrics = json.loads((tmp_path / "2" / "metrics.json").read_text())
    assert metrics["accuracy"] > 0.9
    resumed = run(tmp_path / "2", "--epochs", "4", "--model-parallel", "4")
    assert "resuming from epoch 4\nepoch 4/4 " in resumed, "a checkpoint fits every mesh"


def test_four_hosts_form_one_mesh_and_all_complete(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    common = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    hosts = [
        start(
            tmp_path, "--epochs", "2", "--model-parallel", "2", devices=1, RANK=str(rank), **common
        )
        for rank in range(4)
    ]
    outputs = [host.communicate(timeout=PATIENCE_S)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0, 0, 0], outputs
    assert all("mesh {'data': 2, 'model': 2}" in output for output in outputs)
    assert len({tuple(losses(output)) for output in outputs}) == 1
    assert json.loads((tmp_path / "metrics.json").read_text())["hosts"] == 4


def test_mesh_that_does_not_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    process = start(tmp_path, "--model-parallel", "3")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "--model-parallel 3 must divide the 8 devices and the 128 hidden units" in output
