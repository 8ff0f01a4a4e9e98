"""Options of `trainmaster submit`: those of `gcloud ai-platform jobs submit training`, with the same names."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

_program = partial(typer.Option, rich_help_panel="Program")
_place = partial(typer.Option, rich_help_panel="Location and identity")
_vms = partial(typer.Option, rich_help_panel="VMs")

JOB_HELP: Final = "Job file, or the id of a job that the options describe."
CHIEF_HELP: Final = "Call the primary `chief` instead of `master` in TF_CONFIG. Only for containers."
TIERS: Final = "basic, standard-1, premium-1, basic-gpu, basic-tpu, or custom."

Job = Annotated[str, typer.Argument(help=JOB_HELP, metavar="FILE|JOB")]
Config = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Job file. Options override it.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended. Exit status 1 unless it SUCCEEDED.")]
Async = Annotated[bool, typer.Option("--async", hidden=True, help="Return at once. This is the default.")]
StreamLogs = Annotated[bool, typer.Option("--stream-logs", help="Show the job's log while waiting for its end.")]

PackagePath = Annotated[
    Path | None, _program(exists=True, file_okay=False, metavar="DIR", help="Folder of the Python package to run.")
]
Packages = Annotated[
    str | None, _program(metavar="LIST", help="More packages: local files and gs:// URIs, separated by commas.")
]
StagingBucket = Annotated[str | None, _program(metavar="BUCKET", help="Bucket that local packages are uploaded to.")]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Show what the job would lack, and do not submit it. Exit status 1 if there is a problem."
    ),
]
ModuleName = Annotated[str | None, _program(metavar="MODULE", help="Module to run: python -m MODULE.")]
RuntimeVersion = Annotated[str | None, _program(metavar="VERSION", help="Preinstalled framework: 2.21, pytorch-2.9.")]
PythonVersion = Annotated[str | None, _program(metavar="VERSION", help="Ignored: the runtime version decides.")]
JobDir = Annotated[str | None, _program(metavar="URI", help="gs:// folder for the job's output.")]
UseChief = Annotated[bool | None, _program(help=CHIEF_HELP)]

Region = Annotated[str | None, _place(metavar="REGION", help="Region of the VMs.")]
ServiceAccount = Annotated[str | None, _place(metavar="EMAIL", help="Service account of the VMs.")]
Network = Annotated[str | None, _place(metavar="NETWORK", help="projects/NUMBER/global/networks/NAME.")]
Labels = Annotated[str | None, _place(metavar="LABELS", help="KEY=VALUE, separated by commas.")]
MaxRunningTime = Annotated[str | None, _place(metavar="TIME", help="Cancel the job after this time: 7200s.")]

ScaleTier = Annotated[str | None, _vms(metavar="TIER", help=TIERS)]
MachineType = Annotated[
    str | None, _vms(metavar="TYPE", help="Compute Engine machine type, or AI Platform's own name of one.")
]
Accelerator = Annotated[str | None, _vms(metavar="GPU", help="type=nvidia-tesla-t4,count=1.")]
ImageUri = Annotated[str | None, _vms(metavar="IMAGE", help="Container image to run instead of Python packages.")]
Count = Annotated[int | None, _vms(min=0, metavar="N", help="Number of VMs.")]
