"""A VM as the agent sees it: a home directory, metadata, and the real startup script as a real
process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.python_image import bare_python
from trainmaster.agent.model.vm_config import AgentIdentity, SliceHost, VmConfig, VmRef
from trainmaster.agent.program.process_table import kill_marked
from trainmaster.packaging.agent_archive import agent_archive, agent_object
from trainmaster.wiring.fleet import agent_files

from .cloud import TIMEOUT_S, Cloud

BUCKET: Final = "p-stage"
FIRST: Final = "tm-digits-1-a1b2c3d4e5f60718-worker-0"
NAME: Final = "tm-digits-1-a1b2c3d4e5f60718-worker-1"
CLUSTER: Final = {"chief": ["h0:2222"], "worker": ["h1:2222", "h2:2222"]}


def vm_config(**changes: Any) -> dict[str, Any]:
    """Return the config of two workers; the VM is the second one."""
    return {
        "version": 1,
        "project": "p",
        "job_id": "digits_1",
        "region": "us-central1",
        "zone": "us-central1-a",
        "task_type": "worker",
        "vm_names": [FIRST, NAME],
        "vm_generation": 1,
        "tf_config": {
            "cluster": CLUSTER,
            "task": {"type": "worker", "cloud": "w1-ml"},
            "job": {"args": ["ü"]},
            "environment": "cloud",
        },
        "cluster_spec": {
            "cluster": CLUSTER,
            "environment": "cloud",
            "task": {"type": "worker"},
            "job": "{}",
        },
        "rank_base": 1,
        "environment": {
            "WORLD_SIZE": "3",
            "MASTER_ADDR": "h0",
            "MASTER_PORT": "2222",
            "CLOUD_ML_JOB_ID": "digits_1",
        },
        "package_uris": [],
        "python_module": "trainer.task",
        "args": [],
        "job_dir": None,
        "grace_s": 10,
        "topics": {
            "vm_ready": "projects/p/topics/vm-ready",
            "replica_exit": "projects/p/topics/replica-exit",
            "maintenance": "projects/p/topics/maintenance",
        },
        **changes,
    }


def agent_identity(host: SliceHost | None = None, **changes: Any) -> AgentIdentity:
    """Return the identity of the agent of `NAME`. `changes`: fields of its VM config.

    `host`: the host of a slice on which the agent runs; None: a VM.
    """
    vm = VmRef(NAME, "us-central1-a", "4711")
    return AgentIdentity(vm, VmConfig.parse(json.dumps(vm_config(**changes))), vm, host)


def is_alive(pid: int) -> bool:
    """Return whether the process runs. A zombie does not: reaping it is not the agent's task."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def install_agent(cloud: Cloud) -> dict[str, str]:
    """Store the agent, and name it in the metadata; return the metadata entries that start it."""
    uri = f"gs://{BUCKET}/{agent_object(agent_archive(compiled=True))}"
    cloud.objects[uri] = agent_archive(compiled=True)
    cloud.set("instance/attributes/trainmaster-agent", uri)
    return agent_files(uri)


class Vm:
    """One VM. ``boot`` may be called again after its end and uses the same disk."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud = cloud
        self.home = folder / "home"
        self.home.mkdir()
        self.work = self.home / "trainmaster"
        self._code = folder / "code"
        self._code.mkdir()
        self.environ = {
            "PATH": f"{bare_python().parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "PYTHONPATH": str(self._code),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GCE_METADATA_HOST": cloud.host,
            "TRAINMASTER_EMULATED_VM": NAME,  # the agent must install nothing on this machine
            "TRAINMASTER_PUBSUB_ENDPOINT": cloud.host,
            "STORAGE_EMULATOR_HOST": f"http://{cloud.host}",
            "TRAINMASTER_SECRETS_ENDPOINT": f"http://{cloud.host}",
        }
        self._script = folder / "startup-script"
        self._script.write_text(install_agent(cloud)["startup-script"])
        self._changed = threading.Condition()
        self._console: list[bytes] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        for path, value in {
            "instance/name": NAME,
            "instance/id": "4711",
            "instance/image": (
                "projects/deeplearning-platform-release/global/images/common-v20261101"
            ),
            "instance/zone": "projects/123/zones/us-central1-a",
            "instance/maintenance-event": "NONE",
            "instance/preempted": "FALSE",
            "project/numeric-project-id": "123456789012",
        }.items():
            cloud.set(path, value)
        self.configure()

    def configure(self, **changes: Any) -> None:
        self.cloud.set(
            "instance/attributes/trainmaster-vm-config", json.dumps(vm_config(**changes))
        )

    def program(self, source: str) -> None:
        """Set the source that `python3 -m trainer.task` runs unless a package is installed."""
        self.module("trainer.task", source)

    def module(self, name: str, source: str) -> None:
        """Set the source of a module, which hides an installed one."""
        module = self._code.joinpath(*name.split(".")).with_suffix(".py")
        module.parent.mkdir(exist_ok=True)
        (module.parent / "__init__.py").touch()
        module.write_text(textwrap.dedent(source))

    def boot(self, environ: Mapping[str, str | None] | None = None) -> None:
        """Start the VM's startup script.

        `environ`: further environment variables; None as a value removes the variable.
        """
        variables = {**self.environ, **(environ or {})}
        environment = {name: value for name, value in variables.items() if value is not None}
        self._process = subprocess.Popen(
            ["/bin/bash", str(self._script)],
            env=environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()

    def terminate(self) -> None:
        """Send SIGTERM to the startup script, as a VM's shutdown does."""
        assert self._process is not None
        self._process.terminate()

    def wait(self) -> int:
        """Wait for the end of the startup script; return its exit status."""
        assert self._process is not None
        assert self._reader is not None
        try:
            status = self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(b"\n".join(self.console).decode("utf-8", "replace")) from None
        self._reader.join(TIMEOUT_S)
        return status

    def power_off(self) -> None:
        """Kill everything on the VM at once."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(TIMEOUT_S)
        kill_marked(self.work)
        assert self._reader is not None
        self._reader.join(TIMEOUT_S)
        self._process = None

    @property
    def console(self) -> list[bytes]:
        with self._changed:
            return list(self._console)

    def wait_for_line(self, start: str, *, number: int = 1) -> str:
        """Return the first console line that begins with `start`, or a later one by its number."""
        prefix = start.encode()

        def matches() -> list[bytes]:
            return [line for line in self._console if line.startswith(prefix)]

        with self._changed:
            if not self._changed.wait_for(lambda: len(matches()) >= number, TIMEOUT_S):
                console = b"\n".join(self._console).decode("utf-8", "replace")
                raise AssertionError(
                    f"no line {start!r} (number {number}) on the console:\n{console}"
                )
            return matches()[number - 1].decode()

    def wait_for_number(self, start: str, *, number: int = 1) -> float:
        """Return the number after `start`, in the first such line or a later one."""
        return float(self.wait_for_line(start, number=number)[len(start) :])

    def lines(self, start: str) -> list[bytes]:
        return [line for line in self.console if line.startswith(start.encode())]

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._changed:
                    self._console.append(line.rstrip(b"\n"))
                    self._changed.notify_all()
