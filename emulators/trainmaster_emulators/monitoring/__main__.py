"""`python -m trainmaster_emulators.monitoring --port PORT --state-dir DIR [--deny monitoring.timeSeries.create]`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from trainmaster_emulators.monitoring.series_store import SeriesStore
from trainmaster_emulators.monitoring.server import PERMISSIONS, MonitoringServer
from trainmaster_emulators.rest.server import serving


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m trainmaster_emulators.monitoring", description="Emulator of Cloud Monitoring."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-dir", type=Path, required=True, help="directory of the time series")
    parser.add_argument(
        "--deny", action="append", default=[], choices=PERMISSIONS, help="a permission that callers lack"
    )
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)
    options.state_dir.mkdir(parents=True, exist_ok=True)
    store = SeriesStore(options.state_dir / "series.sqlite")
    with serving(options.host, options.port, MonitoringServer(store, frozenset(options.deny))) as stopped:
        stopped.wait()
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
