"""Trainmaster's Python client.

    from trainmaster import Client

    client = Client()                       # project and address from the environment
    job = client.wait(client.submit("job.yaml"))

docs/python.md has examples.
"""

from __future__ import annotations

from trainmaster.client import Client
from trainmaster.job import Job, JobFailedError, Trial
from trainmaster.launch import package_folder

__all__ = ["Client", "Job", "JobFailedError", "Trial", "package_folder"]
