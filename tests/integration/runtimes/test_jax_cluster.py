"""`jax.distributed.initialize()` without arguments, in two processes with the variables of a job of
two machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.runtimes.test_local_packages import IMAGES
from tests.support.stack import reserved_ports
from trainmaster.agent.program import jax_cluster
from trainmaster.agent.program.conventions import launch_variables


def start(
    python: Path, site: Path, variables: dict[str, str], program: str
) -> subprocess.Popen[str]:
    """Start Python with a folder of packages that it reads as the user site of a VM."""
    code = f"import site; site.addsitedir({str(site)!r})\n{program}"
    environment = {**os.environ, **variables}
    return subprocess.Popen(
        [str(python), "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    )


def output(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    return text.strip()


@pytest.mark.slow
def test_processes_find_each_other_without_arguments(tmp_path: Path) -> None:
    jax_cluster.install(tmp_path)
    program = (
        "import jax; jax.distributed.initialize(); print(jax.process_index(), jax.process_count())"
    )
    with reserved_ports() as ports:
        platform = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports.take())}
        processes = [
            start(
                IMAGES / "jax/bin/python",
                tmp_path,
                launch_variables({**platform, "RANK": rank}, 0),
                f"{program}\n",
            )
            for rank in "01"
        ]
        assert [output(process) for process in processes] == ["0 2", "1 2"]


@pytest.mark.parametrize(
    ("names", "has_clusters", "shown"),
    [
        (jax_cluster.VARIABLES, True, "['trainmaster']"),
        ((jax_cluster.ADDRESS,), True, "[]"),
        (jax_cluster.VARIABLES, False, "another JAX"),
    ],
)
def test_cluster_is_registered_where_jax_has_clusters(
    names: tuple[str, ...], has_clusters: bool, shown: str, tmp_path: Path
) -> None:
    for _ in range(2):
        jax_cluster.install(tmp_path)
    folder = tmp_path / "jax" / "_src"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    show = (
        "from jax._src.clusters import ClusterEnv; print([kind.name for kind in"
        " ClusterEnv.__subclasses__()])"
    )
    (folder / "distributed.py").write_text(show if has_clusters else "print('another JAX')")
    if has_clusters:
        (folder / "clusters.py").write_text("class ClusterEnv: pass")
    process = start(
        Path(sys.executable), tmp_path, dict.fromkeys(names, "1"), "import jax._src.distributed"
    )
    assert output(process) == shown
