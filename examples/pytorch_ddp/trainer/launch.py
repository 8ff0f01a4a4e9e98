"""Run the trainer under torchrun's launcher: several ranks on each VM, and lost ranks restarted by PyTorch.

    python -m trainer.launch --ranks-per-vm 2 --epochs 12 --job-dir gs://BUCKET/pytorch_torchrun

Each replica of the job runs this module. A replica of Trainmaster is a node of torchrun: WORLD_SIZE is the number of
nodes, MASTER_ADDR:MASTER_PORT the rendezvous, and RANK 0 its host. Each node starts its ranks of `trainer.task` with
their own variables.

    failure               recovery
    a rank                all nodes restart their ranks, at most `--restarts` times; Trainmaster does not notice
    a VM or launcher      Trainmaster replaces or restarts it under the same name; the other nodes' ranks wait for it
    the first VM          the rendezvous is lost with it: all launchers exit, and Trainmaster restarts them

A launcher that gives up exits with its rank's status, so that the job's exit policy applies to it. `torchrun` itself
always exits with status 1.
"""

import argparse
import json
import os
import sys
from typing import Any

# Give each round of ranks a new store. In a shared store a rank's keys begin with the number of restarts that its
# launcher has counted. The VM that lost a rank counts one more than the others, so that they would wait forever.
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

SIGNAL_BASE = 128


def main(argv: list[str] | None = None) -> None:
    """Launch this VM's ranks. Unknown flags are passed to the trainer."""
    parser = argparse.ArgumentParser(description="Run trainer.task under torchrun's launcher.", allow_abbrev=False)
    parser.add_argument("--ranks-per-vm", type=int, default=2, help="number of GPUs, or of ranks that the cores allow")
    parser.add_argument("--restarts", type=int, default=3, help="how often lost ranks are restarted")
    parser.add_argument("--wait-minutes", type=float, default=30.0, help="how long to wait for lost VMs")
    options, trainer_args = parser.parse_known_args(argv)
    try:
        elastic_launch(launch_config(options, os.environ), sys.executable)("-m", "trainer.task", *trainer_args)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        sys.exit(failure.exitcode if failure.exitcode > 0 else SIGNAL_BASE - failure.exitcode)


def launch_config(options: argparse.Namespace, environment: Any) -> LaunchConfig:
    """Translate Trainmaster's environment variables to torchrun's configuration."""
    nodes = int(environment.get("WORLD_SIZE", "1"))
    wait_s = int(options.wait_minutes * 60)
    return LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=options.ranks_per_vm,
        run_id=environment.get("CLOUD_ML_JOB_ID", "local"),
        rdzv_backend="c10d",
        rdzv_endpoint=f"{environment.get('MASTER_ADDR', '127.0.0.1')}:{environment.get('MASTER_PORT', '29400')}",
        rdzv_configs={
            "is_host": environment.get("RANK", "0") == "0",
            "join_timeout": wait_s,  # waiting for peers
            "read_timeout": wait_s,  # waiting for the rendezvous
        },
        max_restarts=options.restarts,
        local_addr=own_host(environment),
    )


def own_host(environment: Any) -> str:
    """Return the address at which peers reach this VM: its entry in TF_CONFIG, which every replica has."""
    config = json.loads(environment.get("TF_CONFIG", "{}"))
    task = config.get("task", {})
    addresses: list[str] = config.get("cluster", {}).get(task.get("type"), [])
    return addresses[task["index"]].rpartition(":")[0] if addresses else "127.0.0.1"


if __name__ == "__main__":
    main()
