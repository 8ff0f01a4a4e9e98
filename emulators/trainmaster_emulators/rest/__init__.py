"""Parts that emulators share: HTTP servers, and the errors and timestamps of Google's newer REST APIs."""
