"""The fake container engine of one VM, and what it recorded."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any, Final

from tests.support.python_image import bare_python

from . import fake_docker
from .vm import Vm

IMAGE: Final = "us-docker.pkg.dev/p/images/trainer:1"


class Docker:
    """Installs `fake_docker.py` as `docker` on the VM's PATH."""

    def __init__(self, vm: Vm, folder: Path) -> None:
        self._vm = vm
        self.engine = folder / "bin" / "engine"
        for name in ("images", "pulled", "containers"):
            (self.engine / name).mkdir(parents=True)
        for name in ("pull-errors", "calls"):
            (self.engine / name).touch()
        self.program = folder / "bin" / "docker"
        start = f"import sys; sys.path.insert(0, {str(Path(fake_docker.__file__).parent)!r})"
        start += "; import fake_docker; fake_docker.main(sys.argv[1:])"
        self.program.write_text(f"#!{bare_python()}\n{start}\n")
        self.program.chmod(0o755)
        vm.environ["PATH"] = f"{self.program.parent}{os.pathsep}{vm.environ['PATH']}"

    def push(self, source: str, image: str = IMAGE) -> None:
        """Add an image that can be pulled; `source` is its program."""
        (self.engine / "images" / fake_docker.file_name(image)).write_text(textwrap.dedent(source))

    def fail_pulls(self, *messages: str) -> None:
        """Make the next pulls fail with these messages."""
        (self.engine / "pull-errors").write_text("\n".join(messages))

    def calls(self, verb: str) -> list[dict[str, Any]]:
        lines = (self.engine / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call["argv"][0] == verb]

    def containers(self) -> list[str]:
        return [path.name for path in (self.engine / "containers").iterdir()]

    def close(self) -> None:
        """Remove the containers: they outlive the agent of their VM."""
        self._vm.power_off()
        if left := self.containers():
            subprocess.run([str(self.program), "rm", "--force", "--volumes", *left], check=True)
