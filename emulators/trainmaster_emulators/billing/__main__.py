"""`python -m trainmaster_emulators.billing --port PORT`: serve the catalogue until SIGTERM or
SIGINT.
"""

from __future__ import annotations

import sys

from trainmaster_emulators.billing.server import BillingServer
from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.rest.command_line import EmulatorParser, serve


def main(argv: list[str] | None = None) -> int:
    parser = EmulatorParser("billing", "Emulator of Cloud Billing's catalogue.")
    parser.add_port()
    options = parser.parse_args(argv)
    return serve(LOOPBACK, options.port, BillingServer())


if __name__ == "__main__":
    sys.exit(main())
