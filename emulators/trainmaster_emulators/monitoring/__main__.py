"""`python -m trainmaster_emulators.monitoring --port PORT --state-dir DIR`."""

from __future__ import annotations

import logging
import sys

from trainmaster_emulators.monitoring.series_store import SeriesStore
from trainmaster_emulators.monitoring.server import MonitoringServer
from trainmaster_emulators.rest.command_line import EmulatorParser, serve


def main(argv: list[str] | None = None) -> int:
    parser = EmulatorParser("monitoring")
    parser.add_host()
    parser.add_port()
    parser.add_state_dir("the time series")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)
    options.state_dir.mkdir(parents=True, exist_ok=True)
    store = SeriesStore(options.state_dir / "series.sqlite")
    return serve(options.host, options.port, MonitoringServer(store))


if __name__ == "__main__":
    sys.exit(main())
