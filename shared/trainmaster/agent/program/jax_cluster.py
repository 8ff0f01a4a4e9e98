"""How `jax.distributed.initialize()` finds its peers: JAX asks the kinds of clusters that it knows,
and no others.

`install` copies this file beside the job's packages, where a `.pth` file makes each Python of the
VM import it. JAX is told of this cluster when it is imported. Slurm, MPI and Kubernetes, which it
asks before, keep their precedence. Source: jax/_src/clusters/cluster.py, and
jax/_src/distributed.py, which imports it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

NAME = "trainmaster_jax_cluster"
ADDRESS = "JAX_COORDINATOR_ADDRESS"
COUNT = "JAX_NUM_PROCESSES"
RANK = "JAX_PROCESS_ID"
VARIABLES = (ADDRESS, COUNT, RANK)


def install(packages: Path) -> None:
    """Make each Python that reads this folder of packages tell JAX of the cluster.

    May be repeated.
    """
    packages.mkdir(parents=True, exist_ok=True)
    (packages / f"{NAME}.py").write_bytes(pkgutil.get_data(__package__, "jax_cluster.py") or b"")
    (packages / f"{NAME}.pth").write_text(f"import {NAME}; {NAME}.await_jax()\n", encoding="utf-8")


def await_jax() -> None:
    """Register the cluster as soon as the program imports JAX, if the variables describe one."""
    if all(name in os.environ for name in VARIABLES):
        sys.meta_path.insert(0, _OnImport())


class _OnImport:
    def find_spec(self, fullname: str, *_: object) -> None:
        """Find nothing, like an import hook that leaves the module to the next one."""
        if fullname == "jax._src.distributed":
            sys.meta_path.remove(self)
            # Another version of JAX asks for arguments, as it does elsewhere.
            with contextlib.suppress(Exception):
                _register(importlib.import_module("jax._src.clusters").ClusterEnv)


def _register(base: Any) -> None:
    """Define the cluster. JAX knows each subclass of ClusterEnv."""
    attributes: dict[str, Any] = {
        "name": "trainmaster",
        "is_env_present": staticmethod(lambda: True),
        "get_coordinator_address": staticmethod(lambda *_, **__: os.environ[ADDRESS]),
        "get_process_count": staticmethod(lambda: int(os.environ[COUNT])),
        "get_process_id": staticmethod(lambda: int(os.environ[RANK])),
    }
    type("TrainmasterCluster", (base,), attributes)
