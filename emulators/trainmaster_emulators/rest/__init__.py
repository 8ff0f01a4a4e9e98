"""Parts that emulators share.

server, quiet_http    HTTP servers: routes, JSON bodies, shutdown on a signal
command_line          `python -m trainmaster_emulators.NAME`
api_errors            errors of Google's newer REST APIs
pages                 pages of lists, and their tokens
times                 timestamps with nanoseconds
"""

HEALTH = "/emulator/v1/health"
"""Path that responds with status 200 as soon as an emulator runs."""
