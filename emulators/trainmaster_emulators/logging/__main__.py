"""`python -m trainmaster_emulators.logging --port PORT --state-dir DIR`."""

from trainmaster_emulators.logging.entries import Entries
from trainmaster_emulators.logging.server import LoggingServer
from trainmaster_emulators.rest.server import serve_folder

if __name__ == "__main__":
    serve_folder("logging", lambda folder: LoggingServer(Entries(folder / "entries.sqlite")))
