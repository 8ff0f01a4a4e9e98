"""What a program imports that uses the Python client: little, and none of the formats of jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

USE_CLIENT = """
import json, sys
import trainmaster
for name in trainmaster.__all__:
    getattr(trainmaster, name)
trainmaster.Client("my-project", "http://127.0.0.1:1")
print(json.dumps(sorted(sys.modules)))
"""
MODULES_MAX = 40
HEAVY = {"google.cloud.storage", "packaging", "pydantic", "yaml"}
"""Only the submission of a folder needs them."""


def test_client_imports_few_modules_and_no_format_of_jobs() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", USE_CLIENT],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    imported = set(json.loads(done.stdout))
    assert not imported & HEAVY
    own = {name for name in imported if name.partition(".")[0].startswith("trainmaster")}
    assert not [name for name in own if name.startswith("trainmaster.jobspec")]
    assert 1 < len(own) <= MODULES_MAX
