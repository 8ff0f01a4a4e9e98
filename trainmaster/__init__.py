"""Trainmaster's Python client.

    from trainmaster import Client

    client = Client()                       # project and address from the environment
    job = client.wait(client.submit("job.yaml"))

docs/python.md has examples.
"""

from __future__ import annotations

from trainmaster.client import Client
from trainmaster.explanation import Decision, Explanation
from trainmaster.job import Job, JobFailedError, Trial
from trainmaster.launch import package_folder

__all__ = ["Client", "Decision", "Explanation", "Job", "JobFailedError", "Trial", "package_folder"]
