"""`python -m trainmaster_emulators.logging --host 127.0.0.1 --port PORT --state-dir DIR [--refuse-type ml_job]`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from trainmaster_emulators.logging.entries import Entries
from trainmaster_emulators.logging.server import LoggingServer
from trainmaster_emulators.rest.server import serving


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m trainmaster_emulators.logging", description="Emulator of Cloud Logging."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-dir", type=Path, required=True, help="directory of the entries")
    parser.add_argument("--refuse-type", action="append", default=[], help="a resource type that writes may not use")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)
    options.state_dir.mkdir(parents=True, exist_ok=True)
    entries = Entries(options.state_dir / "entries.sqlite")
    with serving(options.host, options.port, LoggingServer(entries, frozenset(options.refuse_type))) as stopped:
        stopped.wait()
    entries.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
