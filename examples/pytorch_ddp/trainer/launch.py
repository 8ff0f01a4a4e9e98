"""Run the trainer under torchrun's launcher: several ranks on each VM, and a lost rank brought back by PyTorch itself.

    python -m trainer.launch --ranks-per-vm 2 --epochs 12 --job-dir gs://BUCKET/pytorch_torchrun

Each replica of the job runs this module. What the platform says about VMs becomes what torchrun calls nodes: WORLD_SIZE
is their number, MASTER_ADDR:MASTER_PORT the rendezvous, and RANK 0 its host. Each node starts its ranks of
`trainer.task` with variables of their own. Who repairs what:

    a rank dies           all nodes start their ranks again, at most `--restarts` times; the platform sees nothing of it
    a VM or launcher dies the platform brings it back under the same name, and the others' ranks wait for it
    the first VM dies     the rendezvous dies with it: all launchers end, and the platform starts them again

A launcher that gives up ends as its rank did, with that rank's traceback the last on its output: the platform judges
the trainer's failure, and not a `ChildFailedError` that looks the same whatever happened.
"""

import argparse
import json
import os
import sys
from typing import Any

# Each round of ranks gets a store of its own. In the one they would share, a rank's keys begin with how often its own
# launcher has restarted it: one more on the VM that lost a rank than on the others, and they would wait for ever.
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

SIGNAL_BASE = 128


def main(argv: list[str] | None = None) -> None:
    """Launch this VM's ranks; flags of the trainer's are passed on to it."""
    parser = argparse.ArgumentParser(description="Run trainer.task under torchrun's launcher.", allow_abbrev=False)
    parser.add_argument("--ranks-per-vm", type=int, default=2, help="GPUs of a VM, or what its cores can bear")
    parser.add_argument("--restarts", type=int, default=3, help="times that lost ranks are brought back in place")
    parser.add_argument("--wait-minutes", type=float, default=30.0, help="how long to wait for lost VMs")
    options, trainer_args = parser.parse_known_args(argv)
    try:
        elastic_launch(launch_config(options, os.environ), sys.executable)("-m", "trainer.task", *trainer_args)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        sys.exit(failure.exitcode if failure.exitcode > 0 else SIGNAL_BASE - failure.exitcode)


def launch_config(options: argparse.Namespace, environment: Any) -> LaunchConfig:
    """Return the platform's variables in torchrun's terms."""
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
            "join_timeout": wait_s,  # for peers
            "read_timeout": wait_s,  # for the rendezvous itself
        },
        max_restarts=options.restarts,
        local_addr=own_host(environment),
    )


def own_host(environment: Any) -> str:
    """Return the name under which peers find this VM: its own entry in TF_CONFIG, which every job's replica has."""
    config = json.loads(environment.get("TF_CONFIG", "{}"))
    task = config.get("task", {})
    addresses: list[str] = config.get("cluster", {}).get(task.get("type"), [])
    return addresses[task["index"]].rpartition(":")[0] if addresses else "127.0.0.1"


if __name__ == "__main__":
    main()
