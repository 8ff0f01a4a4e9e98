"""The tables of machines in docs/job-format.md, from the catalogue of the job formats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from trainmaster.core.machines.gpus import GPUS
from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    GPU_NAMES,
    LEGACY_MACHINES,
    RETIRED_GPUS,
    Gpu,
)
from trainmaster.jobspec.catalog.scale_tiers import TIERS, TierRole

HIGHCPU_VCPUS: Final = 64
"""Some GPUs cannot be attached to other n1 machines of this size."""


def tiers() -> str:
    """Return the scale tiers, and the machines behind the service's own names."""
    rows = [
        (f"`{name}`", _role(tier.master), _role(tier.worker), _role(tier.parameter_server))
        for name, tier in TIERS.items()
    ]
    clusters = _table(("scaleTier", "master", "workers", "parameter servers"), rows)
    names = [(f"`{name}`", str(machine)) for name, machine in LEGACY_MACHINES.items()]
    return f"{clusters}\n{_table(('name of the service', 'machine'), names)}"


def built_in_gpus() -> str:
    """Return the machine types with built-in GPUs, by type of GPU."""
    machines: dict[str, list[str]] = defaultdict(list)
    for name, gpu in sorted(BUILT_IN_GPUS.items(), key=lambda item: item[1].count):
        machines[gpu.type].append(f"`{name}` ({gpu.count})")
    rows = [(f"`{gpu}`", ", ".join(names)) for gpu, names in machines.items()]
    return _table(("accelerator type", "machine types (GPUs)"), rows)


def attached_gpus() -> str:
    """Return how many GPUs an n1 machine may have."""
    columns = sorted({limit for counts in GPU_COUNTS.values() for limit in counts})
    rows = [
        (
            f"`{name}`",
            *(_numbers(name, limit) for limit in columns),
            _state(name),
        )
        for name in GPU_COUNTS
    ]
    heads = [f"to {limit} vCPUs" for limit in columns]
    return _table(("GPUs on n1", *heads, "today"), rows)


def _state(name: str) -> str:
    """Return what a job gets today that asks for this GPU."""
    retired = RETIRED_GPUS.get(name)
    if retired:
        return f"replaced by `{retired.replaced_by}`, at most {max(retired.counts.values())}"
    return "" if GPUS[GPU_NAMES[name]].has_driver else "needs a boot image of your own"


def _role(role: TierRole | None) -> str:
    if role is None:
        return ""
    gpu = f" + {_gpu(role.gpu)}" if role.gpu else ""
    return f"{role.count} `{role.machine_type}`{gpu}"


def _gpu(gpu: Gpu) -> str:
    return f"{gpu.count} `{gpu.type}`"


def _numbers(gpu: str, vcpus: int) -> str:
    text = ", ".join(map(str, GPU_COUNTS[gpu].get(vcpus, ()))) or "none"
    is_only_for_highcpu = vcpus == HIGHCPU_VCPUS and GPUS[GPU_NAMES[gpu]].only_highcpu_at_64
    return f"{text} (highcpu)" if is_only_for_highcpu else text


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [tuple(heads)]
    lines += [tuple("---" for _ in lines[0]), *map(tuple, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
