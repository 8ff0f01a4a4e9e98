"""The command lines of the emulators: `python -m trainmaster_emulators.NAME --port PORT …`.

Each has a function `main(argv: list[str] | None = None) -> int`, which serves until SIGTERM or
SIGINT and returns the exit status. The options that several emulators have are declared here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trainmaster_emulators.rest.server import serving


class EmulatorParser(argparse.ArgumentParser):
    """The parser of one emulator. `module`: its name below `trainmaster_emulators`."""

    def __init__(self, module: str, description: str | None = None) -> None:
        super().__init__(prog=f"python -m trainmaster_emulators.{module}", description=description)

    def add_host(self) -> None:
        """Add `--host`, the address to listen on."""
        self.add_argument("--host", default="127.0.0.1")

    def add_port(self) -> None:
        """Add `--port`."""
        self.add_argument(
            "--port", type=int, required=True, help="loopback port to listen on; 0: a free port"
        )

    def add_state_dir(self, content: str) -> None:
        """Add `--state-dir`. `content`: what the folder is for."""
        self.add_argument("--state-dir", type=Path, required=True, help=f"folder of {content}")

    def add_token_file(self) -> None:
        """Add `--token-file`, whose token has the secret of the stack."""
        self.add_argument(
            "--token-file",
            type=Path,
            required=True,
            help="file with the access token of local-stack",
        )

    def add_infra(self) -> None:
        """Add `--infra`, whose table says which account may do what."""
        self.add_argument(
            "--infra", type=Path, required=True, metavar="DIR", help="folder of the table of grants"
        )


def split_pairs(options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of options such as `submit=8080`."""
    for option in options:
        name, _, value = option.partition("=")
        yield name, value


def serve(host: str, port: int, application: Callable[..., Iterable[bytes]]) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status."""
    with serving(host, port, application) as stopped:
        stopped.wait()
    return 0
