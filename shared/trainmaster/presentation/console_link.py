"""Addresses of jobs in a console that others can open."""

from __future__ import annotations


def console_link(address: str, job_id: str) -> str:
    """Return the address of a job's page. Empty: `address`, that of the console, is empty."""
    return f"{address.rstrip('/')}/jobs/{job_id}" if address else ""
