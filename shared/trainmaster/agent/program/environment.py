"""The arguments and the environment that the program is started with.

`launcher.py` uses them at each start. They come from the VM config, which the control plane writes
into the metadata once per role, and from what only this VM knows: its index, its host within a TPU
slice, its GPUs, and addresses. The variables have the names that AI Platform Training, Vertex AI,
torchrun and Cloud TPU give them, so that programs run unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trainmaster.agent.model.vm_config import AgentIdentity, VmConfig
from trainmaster.agent.program.conventions import launch_variables, run_variables
from trainmaster.agent.program.launchers import LAUNCHERS
from trainmaster.agent.program.stacks import VARIABLE as FAULTHANDLER

RANK_VARIABLES = (
    "RANK",
    "NODE_RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Programs take them for a sign that a launcher has started them, and then expect its peers.

A job with one rank therefore gets only those that it asks for, by `RANK: $(RANK)` in its variables.
"""


def environment_of(
    identity: AgentIdentity, secrets: Mapping[str, str], slices: Sequence[str] = (), gpus: int = 0
) -> dict[str, str]:
    """Return the variables that the program gets besides the VM's own.

    Defaults for launchers (torchrun, Accelerate) and experiment trackers (MLflow, W&B) come first,
    then the job's variables, its secrets, and the platform's variables; the last one of a name
    wins. `slices` and `gpus`: as in `platform_variables`.
    """
    config = identity.config
    platform = platform_variables(identity, slices, gpus)
    requested = set(RANK_VARIABLES) & set(config.variables)
    if has_one_rank(platform):
        platform = {
            name: value
            for name, value in platform.items()
            if name in requested or name not in RANK_VARIABLES
        }
    own = {
        name: value
        for name, value in {**config.variables, **secrets}.items()
        if name not in RANK_VARIABLES  # the job can only request them, not set them
    }
    defaults = {} if config.independent else launch_variables(platform, gpus)
    if identity.is_primary:
        defaults.update(run_variables(config.project, config.job_id, own, config.tracking_run))
    return {FAULTHANDLER: "1", **defaults, **own, **platform}


def has_one_rank(platform: Mapping[str, str]) -> bool:
    """Return whether the job has one rank. An elastic job may have more in its next round."""
    return platform.get("WORLD_SIZE") == "1" and "TRAINMASTER_REPLICAS" not in platform


def platform_variables(
    identity: AgentIdentity, slices: Sequence[str] = (), gpus: int = 0
) -> dict[str, str]:
    """Return the platform's variables: TF_CONFIG, CLUSTER_SPEC, ranks, those of the VM config and
    of a TPU slice.

    `slices`: addresses of the job's slices, as in the directive. `gpus`: GPUs of this machine.
    """
    config = identity.config
    platform = {name: str(value) for name, value in config.environment.items()}
    for name, spec in (("TF_CONFIG", config.tf_config), ("CLUSTER_SPEC", config.cluster_spec)):
        if spec is not None:
            platform[name] = json.dumps(
                {**spec, "task": {**spec.get("task", {}), "index": identity.index}}
            )
    environment = {name: _with_slice_addresses(text, slices) for name, text in platform.items()}
    if identity.project_number and "CLOUD_ML_PROJECT_ID" in environment:
        # AI Platform Training set it to the project's number, not to its id.
        environment["CLOUD_ML_PROJECT_ID"] = identity.project_number
    host = identity.host  # None: a VM, not a host of a TPU slice
    if config.slice_base is not None:
        environment["MEGASCALE_SLICE_ID"] = str(config.slice_base + identity.index)
    if config.rank_base is not None:  # the role is part of a cluster with ranks
        host_number = host.number if host is not None else 0
        rank = str(config.rank_base + identity.index * config.hosts + host_number)
        environment["RANK"] = environment["NODE_RANK"] = rank
        if gpus <= 1:
            # With several GPUs, the program starts one process for each. Launchers (torchrun,
            # Lightning, Accelerate) set these variables then, and some of them start nothing where
            # LOCAL_RANK exists.
            environment.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    if host is not None:
        environment["TPU_WORKER_ID"] = environment["CLOUD_TPU_TASK_ID"] = str(host.number)
        environment["TPU_WORKER_HOSTNAMES"] = ",".join(host.addresses)
        has_rank_0 = config.rank_base == 0 and identity.index == 0  # on the first host of the slice
        if has_rank_0 and host.addresses:
            # The name of a TPU node does not resolve to the address of that host.
            environment["MASTER_ADDR"] = host.addresses[0]
    return environment


def _with_slice_addresses(text: str, slices: Sequence[str]) -> str:
    """Replace the placeholder names of slices, which the control plane wrote before their addresses
    were known (`core.reconcile.slice_addresses`). A slice without an address has completed.
    """
    for number, address in enumerate(slices):
        text = text.replace(
            f"slice-{number}.trainmaster.internal",
            address or f"slice-{number}.trainmaster.internal",
        )
    return text


def arguments_of(config: VmConfig) -> list[str]:
    """Return the program's arguments.

    ``--job-dir`` comes last, as two tokens, even if the arguments hold one too.
    """
    arguments = [str(argument) for argument in config.args]
    return [*arguments, "--job-dir", config.job_dir] if config.job_dir else arguments


def command_of(config: VmConfig) -> list[str]:
    """Return the command line of a module, as AI Platform Training documented it."""
    return ["python3", "-m", config.python_module, *arguments_of(config)]


def program_package(config: VmConfig) -> str:
    """Return the top-level package of the program, also of one that a launcher runs:
    `torch.distributed.run -m A.B`.
    """
    package = config.python_module.partition(".")[0]
    if package in {launcher.package for launcher in LAUNCHERS}:
        args = list(config.args)
        for option, value in zip(args, args[1:]):
            if option in ("-m", "--module"):
                return value.partition(".")[0]
    return package


def task_line(identity: AgentIdentity) -> str:
    """Return the first log line of a replica, as the launcher of AI Platform Training
    printed it.
    """
    tf_config = identity.config.tf_config or {}
    task = {
        "type": tf_config.get("task", {}).get("type", identity.config.task_type),
        "index": identity.index,
    }
    values = {
        "cluster": tf_config.get("cluster", {}),
        "task": task,
        "job": tf_config.get("job", {}),
    }
    arguments = [
        f"--{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    ]
    if "TPU_CONFIG" in identity.config.environment:
        arguments.append(f"--tpu_node={identity.config.environment['TPU_CONFIG']}")
    return f"Running task with arguments: {' '.join(arguments)}"
