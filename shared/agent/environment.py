"""What the program is started with: its command line and its environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.agent.gang import Gang


def environment_of(gang: Gang, index: int) -> dict[str, str]:
    """The variables the program sees besides the VM's own: TF_CONFIG, CLUSTER_SPEC, RANK and the gang's."""
    environment = {name: str(value) for name, value in gang.environment.items()}
    for name, spec in (("TF_CONFIG", gang.tf_config), ("CLUSTER_SPEC", gang.cluster_spec)):
        if spec is not None:
            environment[name] = json.dumps({**spec, "task": {**spec.get("task", {}), "index": index}})
    if gang.rank_base is not None:
        environment["RANK"] = str(gang.rank_base + index)
    return environment


def command_of(gang: Gang) -> list[str]:
    """The documented command line; ``--job-dir`` comes last, as two tokens, even where the arguments hold one too."""
    command = ["python3", "-m", gang.python_module, *(str(arg) for arg in gang.args)]
    return [*command, "--job-dir", gang.job_dir] if gang.job_dir else command
