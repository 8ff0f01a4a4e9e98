"""A shell on a VM of Google Cloud: `gcloud compute ssh` through Identity-Aware Proxy.

gcloud knows the user's account, keys and proxies, so it opens the connection. Before, it reads the
VM's metadata: a refused connection would take a minute to fail, and would not name the reason.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, Final

from trainmaster.cli.ssh.target import Target
from trainmaster.errors import PermanentError

OS_LOGIN: Final = "enable-oslogin"
INSTALL: Final = "https://cloud.google.com/sdk/docs/install"


def ssh_command(target: Target, project: str, command: str, *, has_terminal: bool) -> list[str]:
    """Return gcloud's command line. `command` is a line of shell; empty: an interactive shell.

    IAP for TPU hosts is in gcloud's alpha commands only.
    """
    place = [f"--zone={target.zone}", f"--project={project}", "--tunnel-through-iap"]
    remote = [f"--command={command}"] if command else []
    terminal = ["--", "-t"] if command and has_terminal else []
    if target.is_tpu:
        kind = ["alpha", "compute", "tpus", "tpu-vm", "ssh"]
        return ["gcloud", *kind, target.vm, f"--worker={target.host}", *place, *remote, *terminal]
    return ["gcloud", "compute", "ssh", target.vm, *place, *remote, *terminal]


def describe_command(target: Target, project: str) -> list[str]:
    """Return the command line that prints the VM's metadata as JSON."""
    kind = ["compute", "tpus", "tpu-vm"] if target.is_tpu else ["compute", "instances"]
    place = [f"--zone={target.zone}", f"--project={project}", "--format=json(metadata)"]
    return ["gcloud", *kind, "describe", target.vm, *place]


def run(target: Target, project: str, command: str, *, has_terminal: bool) -> int:
    """Run the command, or a shell, and return its exit status.

    255 is ssh's own status for a failed connection. Raises PermanentError if gcloud is missing, the
    VM is gone, or SSH is not enabled on it.
    """
    if shutil.which("gcloud") is None:
        raise PermanentError(f"gcloud is not installed, and `trainmaster ssh` needs it: {INSTALL}")
    _require_os_login(target, project)
    return subprocess.run(
        ssh_command(target, project, command, has_terminal=has_terminal), check=False
    ).returncode


def _require_os_login(target: Target, project: str) -> None:
    done = subprocess.run(
        describe_command(target, project), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"gcloud ended with status {done.returncode}"]
        raise PermanentError(f"{target.vm} cannot be read: {lines[-1]}")
    if _metadata(json.loads(done.stdout)).get(OS_LOGIN, "").upper() != "TRUE":
        raise PermanentError(
            f"SSH is not enabled on {target.vm}. Set `ssh_users` in infra/ and run `terraform"
            " apply`; VMs that are created afterwards accept connections"
        )


def _metadata(description: dict[str, Any] | None) -> dict[str, str]:
    """Return the metadata of an instance, which is a list, or of a TPU node, which is an object."""
    metadata = (description or {}).get("metadata") or {}
    items = metadata.get("items")
    return {item["key"]: item["value"] for item in items} if isinstance(items, list) else metadata
