"""Programs of trials, which report a metric as the library cloudml-hypertune does."""

from __future__ import annotations

from typing import Any, Final

from .vm import Vm, vm_config

TAG: Final = "accuracy"
REPORT_METRIC: Final = """
import json, os, sys

def report(*values):
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
        for step, value in enumerate(values, start=1):
            record = {
                "accuracy": str(value),
                "global_step": str(10 * step),
                "trial": os.environ["CLOUD_ML_TRIAL_ID"],
            }
            file.write(json.dumps(record) + "\\n")
"""


def configure_trial(vm: Vm, **changes: Any) -> None:
    """Make the job of this VM a trial; `changes` as for `Vm.configure`."""
    environment = {
        **vm_config()["environment"],
        "CLOUD_ML_TRIAL_ID": "3",
        "CLOUD_ML_HP_METRIC_TAG": TAG,
    }
    vm.configure(environment=environment, **changes)
