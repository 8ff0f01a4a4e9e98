"""`python -m trainmaster_emulators.billing --port PORT`: serve the catalogue until SIGTERM or
SIGINT.
"""

from __future__ import annotations

import argparse
import sys

from trainmaster_emulators.billing.server import BillingServer
from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.rest.server import serving


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainmaster_emulators.billing",
        description="Emulator of Cloud Billing's catalogue.",
    )
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(argv)
    with serving(LOOPBACK, options.port, BillingServer()) as stopped:
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
