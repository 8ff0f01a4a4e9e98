"""Peak memory of the reads whose size grows: one job of N replicas, and all live jobs.

Each read runs in a process of its own, which reports its peak before and after. `make bench-cold` measures the memory
of the function itself. The memory that Compute Engine's client needs for a listing is not measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.cloud import Emulators, Project
from bench.figures import Figure, Figures
from trainmaster.gcp import clients
from trainmaster.gcp.firestore.store import FirestoreStore

ATTEMPT: Final = "attempt"
LIVE_JOBS: Final = "live-jobs"


def measure(emulators: Emulators, project: Project, name: str, read: str, job_id: str = "") -> Figures:
    """Return how much memory one read of stored documents adds. `read` is ATTEMPT or LIVE_JOBS."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory", project.name, read, job_id],
        env={**os.environ, "FIRESTORE_EMULATOR_HOST": emulators.firestore},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = (int(word) / 1024 for word in done.stdout.split())
    return {name: Figure(after - before, "MiB")}


def main(project: str, read: str, job_id: str) -> None:
    store = FirestoreStore(clients.firestore_client(project))
    store.count_live()  # connects
    before = _peak_kib()
    kept = store.load_attempt(job_id) if read == ATTEMPT else store.survey_live_jobs()
    after = _peak_kib()
    if not kept:
        raise SystemExit("nothing is stored")
    sys.stdout.write(f"{before} {after}\n")


def _peak_kib() -> int:
    """Return the peak memory of this process. Source: proc(5).

    The peak of getrusage would include the process that started this one.
    """
    (line,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
