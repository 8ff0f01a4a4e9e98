"""Build a boot image with a runtime's packages and a container engine.

    make image RUNTIME=2.21 PROJECT=… ZONE=…

It starts a VM from Google's image, which installs what the agent would install at every start
(bake.sh); stops the VM; makes an image of its disk; and deletes the VM. It needs gcloud.
Afterwards, add the image to the variable `boot_images` of infra/. Build a new image when a release
of Trainmaster changes the runtime. An image with older packages stays correct, because the agent
installs what is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from trainmaster.core.model.installation import name_in_installation
from trainmaster.jobspec.catalog.algorithms import ALGORITHMS
from trainmaster.jobspec.catalog.runtimes import DEEP_LEARNING_IMAGES, RUNTIMES, Runtime
from trainmaster.packaging.algorithms_archive import REQUIREMENTS

SCRIPT: Final = Path(__file__).with_name("bake.sh")
"""Startup script of the VM."""
COMPLETE: Final = "trainmaster-bake: complete"
FAILED: Final = "trainmaster-bake: failed"
"""Last lines of the script on the serial console: it has succeeded, or it has not."""
MACHINE: Final = "e2-standard-8"
LIMIT_S: Final = 3600
"""Longest installation, and time after which Compute Engine deletes the VM in any case."""
POLL_S: Final = 15.0
"""Pause between two looks at the serial console, in seconds."""
FAILURE_LINES: Final = 20
"""Last lines of the serial console in the message about a failure."""
DEEP_LEARNING_DISK_GB: Final = 50
"""Size of Google's Deep Learning VM images."""
DISK_GB: Final = 10
"""Size of Google's other images."""

Gcloud = Callable[[Sequence[str]], str]
"""Runs gcloud with these words, and returns its output. Raises BakeError."""


class BakeError(Exception):
    """The image was not built; the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """An image to build, and the place of the VM that builds it."""

    project: str
    zone: str
    runtime: Runtime

    @property
    def google_family(self) -> str:
        """Family of Google's image: NAME of `projects/PROJECT/global/images/family/NAME`."""
        return self.runtime.image.rpartition("/")[2]

    @property
    def google_project(self) -> str:
        """Project of Google's image."""
        return self.runtime.image.split("/")[1]

    @property
    def family(self) -> str:
        """Family of the image that is built."""
        return f"trainmaster-{self.google_family}"

    @property
    def disk_gb(self) -> int:
        """Size of Google's image: a job may request a boot disk as small as that."""
        is_deep_learning = self.runtime.image.startswith(DEEP_LEARNING_IMAGES)
        return DEEP_LEARNING_DISK_GB if is_deep_learning else DISK_GB

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages for VMs with GPUs, which also work without GPUs, and those of the
        algorithms that use the runtime.
        """
        packages = self.runtime.gpu_packages or self.runtime.packages
        of_algorithms = [RUNTIMES[algorithm.runtime] for algorithm in ALGORITHMS.values()]
        if self.runtime not in of_algorithms:
            return packages
        return (*packages, *REQUIREMENTS)


def run_gcloud(words: Sequence[str]) -> str:
    """Run gcloud and return its output. Raises BakeError with its error message."""
    try:
        done = subprocess.run(
            ["gcloud", *words, "--quiet"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise BakeError("gcloud is missing: install the Google Cloud CLI") from None
    if done.returncode != 0:
        raise BakeError(f"gcloud {' '.join(words[:3])}: {done.stderr.strip()}")
    return done.stdout


def bake(
    target: Target,
    now: datetime,
    gcloud: Gcloud = run_gcloud,
    pause: Callable[[float], object] = time.sleep,
) -> str:
    """Build the image and return its name. The VM is deleted in any case. Raises BakeError."""
    stamp = now.strftime("%y%m%d%H%M")
    vm = f"trainmaster-bake-{stamp}"
    image = f"{target.family}-{stamp}"
    place = (f"--project={target.project}", f"--zone={target.zone}")
    gcloud(_create_command(target, vm, place))
    try:
        _wait_until_installed(vm, place, gcloud, pause)
        gcloud(("compute", "instances", "stop", vm, *place))
        gcloud(
            [
                "compute",
                "images",
                "create",
                image,
                f"--project={target.project}",
                f"--family={target.family}",
                f"--source-disk={vm}",
                f"--source-disk-zone={target.zone}",
            ]
        )
    finally:
        gcloud(("compute", "instances", "delete", vm, *place))
    return image


def _create_command(target: Target, vm: str, place: Sequence[str]) -> tuple[str, ...]:
    """Return gcloud's words that create the VM. `place`: the options for its project and zone."""
    region = target.zone.rpartition("-")[0]
    return (
        "compute",
        "instances",
        "create",
        vm,
        *place,
        f"--machine-type={MACHINE}",
        f"--image-family={target.google_family}",
        f"--image-project={target.google_project}",
        f"--boot-disk-size={target.disk_gb}GB",
        "--boot-disk-type=pd-ssd",
        f"--subnet={name_in_installation('trainmaster')}-{region}",
        "--no-address",
        "--no-service-account",
        "--no-scopes",
        f"--max-run-duration={LIMIT_S}s",
        "--instance-termination-action=DELETE",
        f"--metadata=trainmaster-packages={' '.join(target.packages)}",
        f"--metadata-from-file=startup-script={SCRIPT}",
    )


def _wait_until_installed(
    vm: str, place: Sequence[str], gcloud: Gcloud, pause: Callable[[float], object]
) -> None:
    """Wait for the end of the startup script, as the serial console shows it while the VM runs.

    Raises BakeError if the script fails, or does not end within `LIMIT_S`.
    """
    output = ""
    for _ in range(int(LIMIT_S / POLL_S)):
        output = gcloud(("compute", "instances", "get-serial-port-output", vm, *place))
        if COMPLETE in output:
            return
        if FAILED in output:
            break
        pause(POLL_S)
    last = "\n".join(output.splitlines()[-FAILURE_LINES:])
    raise BakeError(f"the installation on {vm} failed; the end of its serial console:\n{last}")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bake_image", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--runtime", required=True, choices=tuple(RUNTIMES))
    parser.add_argument("--project", required=True)
    parser.add_argument("--zone", required=True, help="a zone of one of worker_regions")
    options = parser.parse_args(argv)
    target = Target(options.project, options.zone, RUNTIMES[options.runtime])
    try:
        image = bake(target, datetime.now(UTC))
    except BakeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    family = f"projects/{target.project}/global/images/family/{target.family}"
    setting = f'boot_images = {{ "{target.google_family}" = "{family}" }}'
    sys.stdout.write(f"{image} is built. In infra/terraform.tfvars:\n{setting}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
