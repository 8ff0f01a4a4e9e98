"""`python -m emulators.billing --port PORT`: serve the catalogue until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from emulators.billing.server import BillingServer, listen
from emulators.stack.processes import LOOPBACK


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m emulators.billing", description="Emulator of Cloud Billing's catalogue."
    )
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(argv)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    server = listen(LOOPBACK, options.port, BillingServer())
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    stopped.wait()
    server.shutdown()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
