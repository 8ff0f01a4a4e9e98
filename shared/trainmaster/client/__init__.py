"""The Python client. Its public names are imported from `trainmaster`."""
