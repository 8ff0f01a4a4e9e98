"""`python -m trainmaster_emulators.monitoring --port PORT --state-dir DIR`."""

from trainmaster_emulators.monitoring.series_store import SeriesStore
from trainmaster_emulators.monitoring.server import MonitoringServer
from trainmaster_emulators.rest.server import serve_folder

if __name__ == "__main__":
    serve_folder(
        "monitoring", lambda folder: MonitoringServer(SeriesStore(folder / "series.sqlite"))
    )
