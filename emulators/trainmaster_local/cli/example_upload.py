"""Upload an example: its package or data, then its job file, which becomes a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import yaml

from trainmaster.client.package_staging import build
from trainmaster.errors import PermanentError
from trainmaster.ports import Objects, Store
from trainmaster_emulators.checkout import ROOT
from trainmaster_local.cli.example_stack import RunningStack
from trainmaster_local.cli.job_monitor import Report

EXAMPLES: Final = ROOT / "examples"
ALGORITHM_PREFIX: Final = "algorithm_"
"""Examples of built-in algorithms have data instead of a package."""
DATA_PYTHON: Final = ROOT / ".images" / "scikit-learn" / "bin" / "python"
"""The interpreter that makes these data: that of a runtime image with scikit-learn."""
JOB_STORED_MAX_S: Final = 30.0
"""Longest time from the upload of a job file until its job, or its refusal, is stored."""
POLL_S: Final = 0.1
"""Pause between two looks at the stored jobs, in seconds."""
RECENT_JOBS: Final = 5
"""Newest jobs among which the uploaded one is searched. The stack runs one example."""
ERROR_BYTES_MAX: Final = 1 << 20
"""Most that is read of a refusal."""


def upload(example: str, running: RunningStack, report: Report) -> None:
    """Upload the package or the data, then the job file.

    gsutil uploads them if it is installed, otherwise the client library. Raises PermanentError if
    an upload fails, or if the Python that makes the data is missing.
    """
    job_file = EXAMPLES / example / "job.yaml"
    job = yaml.safe_load(job_file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        for uri in job["trainingInput"].get("packageUris", ()):
            _, _, _bucket, _packages, trainer, *_ = uri.split("/")  # gs://BUCKET/packages/TRAINER/…
            [archive] = build(EXAMPLES / trainer / "trainer", Path(scratch))
            _copy(archive, uri, running.objects, report)
        if example.startswith(ALGORITHM_PREFIX):
            _upload_data(example, Path(scratch), running, report)
        job_uri = f"gs://{running.state.config.bucket}/jobs/{example}.yaml"
        _copy(job_file, job_uri, running.objects, report)


def _upload_data(example: str, scratch: Path, running: RunningStack, report: Report) -> None:
    """Write the data of an algorithm with the Python that has scikit-learn, and upload it."""
    if not DATA_PYTHON.exists():
        raise PermanentError(f"{DATA_PYTHON} is missing; `make images` builds it")
    command = [str(DATA_PYTHON), str(EXAMPLES / "algorithm_data.py"), example, str(scratch)]
    written = subprocess.run(command, check=True, capture_output=True, text=True)
    for line in written.stdout.splitlines():
        file = Path(line)
        uri = f"gs://{running.state.config.bucket}/{file.relative_to(scratch).as_posix()}"
        _copy(file, uri, running.objects, report)


def _copy(source: Path, uri: str, objects: Objects, report: Report) -> None:
    """Upload one file, and report it. Raises PermanentError if gsutil fails."""
    name = os.path.relpath(source, ROOT) if source.is_relative_to(ROOT) else source.name
    if shutil.which("gsutil") is None:
        report.line("upload", f"{name} -> {uri} (with the client library: gsutil is not installed)")
        objects.write(uri, source.read_bytes(), content_type="application/octet-stream")
        return
    report.line("$", f"gsutil cp {name} {uri}", "bold")
    result = subprocess.run(
        ["gsutil", "-q", "cp", str(source), uri], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise PermanentError(f"gsutil failed: {result.stderr.strip()}")


def wait_for_job(store: Store, objects: Objects, uri: str) -> str:
    """Return the id of the job that the uploaded file became.

    Raises PermanentError if it was refused, or is neither a job nor refused after
    `JOB_STORED_MAX_S`.
    """
    deadline = time.monotonic() + JOB_STORED_MAX_S
    while time.monotonic() < deadline:
        for job in store.recent_jobs(RECENT_JOBS):
            uploaded_as, _, _generation = job.submission.partition("#")
            if uploaded_as == uri:
                return job.job_id
        error = objects.read(f"{uri}.error.json", max_bytes=ERROR_BYTES_MAX)
        if error:
            raise PermanentError(f"the job file was refused: {error.decode()}")
        time.sleep(POLL_S)
    raise PermanentError(
        f"{uri} did not become a job within {JOB_STORED_MAX_S:.0f} s. See the functions' logs in"
        " the state folder"
    )
