"""Programs that exit 0: what a job that SUCCEEDED says about an early end, NaN, or no work."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Lab
from tests.integration.agent.support.packages import wheel_of
from trainmaster.core.model.job import State

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PRINTS_EPOCHS = """
import json, os, sys, time

mode = sys.argv[1]
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "master"})
if task["type"] == "worker":
    time.sleep(600)  # waits for its chief, as in a collective
loss = 1.0
for epoch in range(1, 9):
    loss = float("nan") if mode == "nan" else loss / 2
    print(f"Epoch {epoch}/8 loss {loss}", flush=True)
    time.sleep(0.4)
    if mode == "early" and epoch == 2:
        time.sleep(3)  # until the worker runs
        sys.exit(0)
"""
DOES_NOTHING = """
def main():
    print("training")

if __name__ == 'main':
    main()
"""


def run(lab: Lab, mode: str, workers: int = 0) -> State:
    uri = f"gs://{lab.bucket}/packages/endings-0.1-py3-none-any.whl"
    if lab.objects.generation(uri) is None:
        files = {
            "endings/__init__.py": "",
            "endings/epochs.py": PRINTS_EPOCHS,
            "endings/nothing.py": DOES_NOTHING,
        }
        wheel = wheel_of("endings", files)
        lab.objects.write(uri, wheel, content_type="application/octet-stream")
    module = "endings.nothing" if mode == "nothing" else "endings.epochs"
    spec = lab.scripted_spec(workers=workers, packageUris=[uri], pythonModule=module, args=[mode])
    return lab.wait_for_success(lab.upload(spec, f"endings_{mode}"), 120)


UNWRITTEN = "nothing was written to its jobDir"


def notes_of(state: State) -> tuple[str, ...]:
    """Return the notes but for that on the job directory, to which these programs write nothing."""
    unwritten = [note for note in state.job.notes if note.startswith(UNWRITTEN)]
    assert len(unwritten) == 1
    return tuple(note for note in state.job.notes if note not in unwritten)


def described(lab: Lab, state: State) -> str:
    return lab.stack.run("trainmaster", "jobs", "describe", state.job.job_id).stdout


def test_chief_that_exits_early_while_a_worker_runs_has_notes(lab: Lab) -> None:
    state = run(lab, "early", workers=1)
    assert notes_of(state) == (
        "ended at 25 % of its own progress (epoch 2 of 8)",
        "worker 0 was still running",
    )
    assert "progress: ended at 25 % (epoch 2 of 8), loss 0.25" in described(lab, state)
    why = lab.stack.run("trainmaster", "why", state.job.job_id).stdout
    assert "worker 0 was still running" in why


def test_program_without_work_has_a_note(lab: Lab) -> None:
    [note] = notes_of(run(lab, "nothing"))
    assert note.startswith("ran for ")
    assert note.endswith("and printed nothing")


def test_loss_of_nan_has_a_note_and_is_shown(lab: Lab) -> None:
    state = run(lab, "nan")
    assert notes_of(state) == ("loss was NaN or infinite at the end",)
    assert "progress: 100 % (epoch 8 of 8), loss is NaN or infinite" in described(lab, state)


def test_ordinary_job_ends_with_everything_and_its_last_metric(lab: Lab) -> None:
    state = run(lab, "whole")
    assert notes_of(state) == ()
    assert "progress: 100 % (epoch 8 of 8), loss 0.003906" in described(lab, state)
