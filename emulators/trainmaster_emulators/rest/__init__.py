"""Parts that the emulators of Google's newer REST APIs share: the HTTP server, errors, and timestamps."""
