"""One sample of each event that agents publish.

`trainmaster doctor` asks Pub/Sub whether the schemas accept them.
"""

from __future__ import annotations

from typing import Final

from trainmaster.messaging import topics

_INCARNATION: Final = {
    "version": 1,
    "job_id": "doctor",
    "attempt": 1,
    "task_type": "worker",
    "task_index": 0,
    "incarnation": 1,
    "vm_generation": 1,
    "vm": {
        "name": "tm-doctor-0000000000000000-worker-0",
        "zone": "us-central1-a",
        "instance_id": "1",
    },
    "at": "2026-11-21T03:00:00.123Z",
}
_ERROR: Final = {"type": "ValueError", "message": "bad shape", "frame": ""}
# How the previous program on the VM ended.
_ENDED: Final = {
    "attempt": 1,
    "incarnation": 1,
    "at": "2026-11-21T02:58:00.123Z",
    "cause": "process",
    "exit_status": 1,
    "error": _ERROR,
}
SAMPLE_EVENTS: Final[dict[str, dict[str, object]]] = {
    topics.VM_READY: {**_INCARNATION, "incarnation": 2, "ended": _ENDED},
    topics.REPLICA_EXIT: {
        **_INCARNATION,
        "incarnation": 2,
        "ended": _ENDED,
        "cause": "process",
        "exit_status": 1,
        "signal": None,
        "out_of_memory": False,
        "error": _ERROR,
        "tail": "the end",
        "metric": {"value": 0.5, "step": 10},
        "ran_s": 12.5,
        "stderr_line": "ValueError: bad shape",
        "progress": {"share": 0.5, "step": 10, "steps": 20, "not_finite": ["loss"]},
        "left_nothing": True,
        "unlogged_lines": 3,
        "log_problem": "HTTP 403: PERMISSION_DENIED",
    },
    topics.MAINTENANCE: {**_INCARNATION, "cause": "preemption"},
}
"""Events by topic (docs/interfaces.md section 2).

They have a null and a nested object, which schemas often reject.
"""
