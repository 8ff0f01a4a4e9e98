"""Parts that emulators share: HTTP servers, and the errors and timestamps of Google's newer REST
APIs.
"""

HEALTH = "/emulator/v1/health"
"""Path that responds with status 200 as soon as an emulator runs."""
