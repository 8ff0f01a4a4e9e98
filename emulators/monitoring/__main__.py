"""`python -m emulators.monitoring --port PORT --state-dir DIR [--deny monitoring.timeSeries.create]`."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from emulators.monitoring.series_store import SeriesStore
from emulators.monitoring.server import PERMISSIONS, MonitoringServer, listen


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m emulators.monitoring", description="Emulator of Cloud Monitoring.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-dir", type=Path, required=True, help="directory of the time series")
    parser.add_argument("--deny", action="append", default=[], choices=PERMISSIONS, help="a permission nobody has")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)
    options.state_dir.mkdir(parents=True, exist_ok=True)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    store = SeriesStore(options.state_dir / "series.sqlite")
    server = listen(options.host, options.port, MonitoringServer(store, frozenset(options.deny)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    stopped.wait()
    server.shutdown()
    server.server_close()
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
