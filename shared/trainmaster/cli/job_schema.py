"""`trainmaster job-schema`: the JSON Schema of job files."""

from __future__ import annotations

from trainmaster.cli.output import print_json


def job_schema() -> None:
    """Print the JSON Schema of job files, for editors that complete and check them.

    docs/job-schema.json is a copy; docs/job-format.md describes its use.
    """
    from trainmaster.jobspec import json_schema

    print_json(json_schema.job_schema())
