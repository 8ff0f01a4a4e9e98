"""Names of fields in other tools' files, and what says the same in a job file."""

from __future__ import annotations

from typing import Final

from trainmaster.jobspec.problems import yaml_line

_GPU_MACHINE: Final = "a2-highgpu-1g"
_MASTER: Final = "masterConfig"

_MACHINE: Final = f'masterType: "{_GPU_MACHINE}"; `trainmaster machines` lists machine types'
_GPUS: Final = f'masterType: "{_GPU_MACHINE}"; `trainmaster machines` lists machines with GPUs'
_NODES: Final = 'scaleTier: "CUSTOM", workerCount: 1: the machines besides the master'
_PROGRAM: Final = "leave it out, and submit with `trainmaster submit FILE --folder . -- COMMAND`"
_PROGRAM_OF_POOL: Final = (
    f"{yaml_line({'containerSpec': {'command': ['python', 'train.py']}})} of a worker pool"
)
_IMAGE: Final = {"imageUri": "us-docker.pkg.dev/my-project/training/a:1"}
_CONTAINER: Final = yaml_line({_MASTER: _IMAGE})
_CONTAINER_OF_POOL: Final = f"{yaml_line({'containerSpec': _IMAGE})} of a worker pool"
_BOOT_IMAGE: Final = "trainmaster.image is the boot image of the VMs"
_TIME: Final = yaml_line({"scheduling": {"maxRunningTime": "7200s"}})
_DISK: Final = yaml_line({_MASTER: {"diskConfig": {"bootDiskSizeGb": 200}}})
_ENV: Final = "trainmaster: {env: {LEVEL: debug}}"
_SPOT: Final = "trainmaster: {spot: all}"
_PACKAGES: Final = "list the packages in requirements.txt of the folder that --folder names"
_PACKAGES_OF_POOL: Final = (
    "list the packages in the setup.py of a package of pythonPackageSpec, or install them in the"
    " image of containerSpec"
)
_MACHINE_OF_POOL: Final = (
    f'machineSpec: {{machineType: "{_GPU_MACHINE}"}} of a worker pool;'
    " `trainmaster machines` lists machine types with their GPUs"
)

# Names in other tools' files → what to write in a job of AI Platform, and in one of Vertex AI.
_MEANINGS: Final = {
    "accelerator accelerators gpu gpus gpucount gputype numgpus": (_GPUS, _MACHINE_OF_POOL),
    "instancetype machine machines vmtype": (_MACHINE, _MACHINE_OF_POOL),
    "machinetype": (_MACHINE, None),
    "instancecount nnodes nodecount nodes numnodes numworkers replicas workers": (
        _NODES,
        "replicaCount: 2 of a worker pool",
    ),
    "cmd command entrypoint run script workdir workingdir": (_PROGRAM, _PROGRAM_OF_POOL),
    "container containerimage containerspec docker dockerimage imageuri": (
        _CONTAINER,
        _CONTAINER_OF_POOL,
    ),
    "image": (f"{_CONTAINER}; {_BOOT_IMAGE}", f"{_CONTAINER_OF_POOL}; {_BOOT_IMAGE}"),
    "duration maxduration maxruntime maxrunduration timelimit timeout": (
        _TIME,
        yaml_line({"scheduling": {"timeout": "7200s"}}),
    ),
    "disk disksize disksizegb": (
        _DISK,
        "diskSpec: {bootDiskSizeGb: 200} of a worker pool",
    ),
    "environment envs envvars": (_ENV, _ENV),
    "preemptible spotinstances usespot": (_SPOT, _SPOT),
    "pip pippackages requirements setup": (_PACKAGES, _PACKAGES_OF_POOL),
}
_BY_NAME: Final = {name: meaning for names, meaning in _MEANINGS.items() for name in names.split()}


def meaning_of(name: str, *, is_vertex: bool) -> str | None:
    """Return what to write in place of the name; None: no other tool is known to have it.

    `is_vertex`: the job is in Vertex AI's format, and not in that of AI Platform.
    """
    of_ai_platform, of_vertex = _BY_NAME.get(name.lower().replace("_", ""), (None, None))
    return of_vertex if is_vertex else of_ai_platform
