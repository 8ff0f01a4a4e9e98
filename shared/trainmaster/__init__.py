"""Trainmaster's Python client.

    from trainmaster import Client

    client = Client()                       # project and address from the environment
    job = client.wait(client.submit("job.yaml"))

docs/python.md has examples.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trainmaster.client.client import Client
    from trainmaster.client.explanation import Decision, Explanation, Failing
    from trainmaster.client.job import CheckedJob, Job, JobFailedError, Trial
    from trainmaster.errors import InvalidJobError, PermanentError, TemporaryError

__all__ = [
    "CheckedJob",
    "Client",
    "Decision",
    "Explanation",
    "Failing",
    "InvalidJobError",
    "Job",
    "JobFailedError",
    "PermanentError",
    "TemporaryError",
    "Trial",
]

_MODULES: Final = {
    "CheckedJob": "client.job",
    "Client": "client.client",
    "Decision": "client.explanation",
    "Explanation": "client.explanation",
    "Failing": "client.explanation",
    "InvalidJobError": "errors",
    "Job": "client.job",
    "JobFailedError": "client.job",
    "PermanentError": "errors",
    "TemporaryError": "errors",
    "Trial": "client.job",
}
"""Public name → its module in this package."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: functions and VMs import this package, too, and need
    no client.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
