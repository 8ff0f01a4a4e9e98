"""The order in which a VM shuts down: first the agent ends the program, then docker is stopped.

Without this order, systemd stops docker.service and the unit of the shutdown script at the same
time. Docker then closes the connections of `docker run`, so that the agent would take the container
for ended, and would end itself while the program saves. systemd stops units in the reverse order of
their start. Source: systemd.unit(5), Before= and After=; google-shutdown-scripts.service of
GoogleCloudPlatform/guest-configs.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from trainmaster.agent.workspace import EMULATED_VM, Workspace

UNITS = Path("run/systemd/system")
"""Below the root. It exists where systemd runs, and is empty after a reboot. Source:
sd_booted(3).
"""
FILE = UNITS / "google-shutdown-scripts.service.d" / "trainmaster.conf"
TEXT = "[Unit]\nAfter=docker.service containerd.service\n"
RELOAD_S = 30  # timeout of systemctl


def stop_engine_last(workspace: Workspace, root: Path = Path("/")) -> None:
    """Let docker run until the shutdown script has ended. May be repeated.

    Nothing is done without systemd, and on a local VM, which shares its machine's services. A
    failure is logged: the program can run, but its save may be cut short.
    """
    systemctl = shutil.which("systemctl", path=workspace.environ.get("PATH"))
    has_systemd = systemctl is not None and (root / UNITS).is_dir()
    file = root / FILE
    if EMULATED_VM in workspace.environ or not has_systemd or file.exists():
        return
    try:
        file.parent.mkdir(exist_ok=True)
        file.write_text(TEXT, encoding="utf-8")
        subprocess.run(
            [str(systemctl), "daemon-reload"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=RELOAD_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        workspace.log(f"Docker may stop before the program at this VM's shutdown: {error}")
