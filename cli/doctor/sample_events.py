"""What agents say, one of each kind: `trainmaster doctor` asks Pub/Sub whether it would take them."""

from __future__ import annotations

from typing import Final

from shared.messaging import topics

_LIFE: Final = {
    "version": 1,
    "job_id": "doctor",
    "attempt": 1,
    "task_type": "worker",
    "task_index": 0,
    "incarnation": 1,
    "vm_generation": 1,
    "vm": {"name": "tm-doctor-000000-worker-0", "zone": "us-central1-a", "instance_id": "1"},
    "at": "2026-11-21T03:00:00.123Z",
}
_ERROR: Final = {"type": "ValueError", "message": "bad shape", "frame": ""}
AGENTS_SAY: Final[dict[str, dict[str, object]]] = {
    topics.VM_READY: _LIFE,
    topics.REPLICA_EXIT: {
        **_LIFE,
        "cause": "process",
        "exit_status": 1,
        "signal": None,
        "out_of_memory": False,
        "error": _ERROR,
        "tail": "the end",
        "metric": {"value": 0.5, "step": 10},
    },
    topics.MAINTENANCE: {**_LIFE, "cause": "preemption"},
}
"""As agents say it, with a null and an object within: what a schema may trip over. docs/interfaces.md section 2."""
