"""`python -m trainmaster_emulators.logging --port PORT --state-dir DIR`."""

from __future__ import annotations

import logging
import sys

from trainmaster_emulators.logging.entries import Entries
from trainmaster_emulators.logging.server import LoggingServer
from trainmaster_emulators.rest.command_line import EmulatorParser, serve


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status."""
    parser = EmulatorParser("logging")
    parser.add_host()
    parser.add_port()
    parser.add_state_dir("the log entries")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)
    options.state_dir.mkdir(parents=True, exist_ok=True)
    store = Entries(options.state_dir / "entries.sqlite")
    return serve(options.host, options.port, LoggingServer(store))


if __name__ == "__main__":
    sys.exit(main())
