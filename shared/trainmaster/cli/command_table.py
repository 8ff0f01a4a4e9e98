"""All commands of `trainmaster`, by what they are for, in the order of its help.

A test compares the summaries with the help texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from trainmaster.cli.lazy import LazyCommand


class Section(StrEnum):
    """Headings of the help."""

    RUN = "Run"
    WATCH = "Watch"
    EXPLAIN = "Explain"
    CHOOSE = "Choose"
    OPERATE = "Operate"


_SUBMIT: Final = LazyCommand(
    "Submit a training job: a folder, a package or a job file. After -- comes the command to run in"
    " the folder, or the program's arguments.",
    reads_as_gcloud=True,
)
_CANCEL: Final = LazyCommand(
    "Cancel jobs and delete their VMs. A job that has ended stays as it is, which is not an error."
)
_WAIT: Final = LazyCommand(
    "Wait until a job has ended. The exit status is 0 only if it SUCCEEDED.",
    module="jobs",
    attribute="wait_command",
)
_LIST: Final = LazyCommand("List jobs, the newest first.", module="jobs", attribute="list_jobs")
_STATUS: Final = LazyCommand("Show the newest jobs, or one job as `describe` does.", module="jobs")
_DESCRIBE: Final = LazyCommand(
    "Show a job as the API shows it, with its replicas and what was substituted.", module="jobs"
)
_COMPARE: Final = LazyCommand(
    "Show jobs side by side: what became of them, and what differs between their specs.",
    module="jobs",
)
_LEDGER: Final = LazyCommand(
    "Show every event of a job in the order of its commits, with the decision and its rule.",
    module="jobs",
)
_LOGS: Final = LazyCommand(
    "Show the log of a job, in order: what its replicas printed, and what Trainmaster did."
)
_WHY: Final = LazyCommand(
    "Explain a job: what happened, which rule decided and why, and what comes next."
)
_TOP: Final = LazyCommand(
    "Show CPU, memory, GPU and network use of a job's replicas, until Ctrl-C or the end of the job."
)
_ADVISE: Final = LazyCommand(
    "Advise on checkpoint interval, Spot VMs and restart policy, from the job's own losses and"
    " restarts.",
    is_local=True,
)
_COST: Final = LazyCommand(
    "Show what jobs cost at list prices, by user, job or label. Reads the ledger of each job."
)

SECTIONS: Final[Mapping[str, Mapping[str, LazyCommand]]] = {
    Section.RUN: {
        "submit": _SUBMIT,
        "cancel": _CANCEL,
        "wait": _WAIT,
        "schedule": LazyCommand(
            "Submit job files at fixed times, with Cloud Scheduler.", attribute="app"
        ),
        "convert": LazyCommand(
            "Print the job file that a manifest of Kubeflow or JobSet, or a task of SkyPilot or"
            " dstack, means. `submit` converts manifests itself."
        ),
        "local": LazyCommand(
            "Run the whole system on this machine: the real functions and programs, on Google's"
            " emulators.",
            module="commands",
            attribute="app",
            is_local=True,
        ),
    },
    Section.WATCH: {
        "list": _LIST,
        "status": _STATUS,
        "describe": _DESCRIBE,
        "logs": _LOGS,
        "top": _TOP,
        "console": LazyCommand(
            "Show jobs, timelines, decisions and logs in a browser, until Ctrl-C."
        ),
        "tensorboard": LazyCommand(
            "Start TensorBoard on the event files of jobs. Each job is a run, and so is each trial"
            " of a tuning job.",
            module="tensorboard.command",
        ),
        "ssh": LazyCommand(
            "Open a shell on the VM of a replica, or run a command there. The exit status is that"
            " of the command.",
            module="ssh.command",
        ),
    },
    Section.EXPLAIN: {
        "why": _WHY,
        "cost": _COST,
        "compare": _COMPARE,
        "advise": _ADVISE,
        "ledger": _LEDGER,
        "simulate": LazyCommand(
            "Forecast a job under preemptions: how it ends, how long it takes, how much work is"
            " lost.",
            is_local=True,
        ),
    },
    Section.CHOOSE: {
        "machines": LazyCommand(
            "List machine types, GPUs and TPUs with their list prices, and the zones that have"
            " them."
        ),
        "runtimes": LazyCommand(
            "List the runtime versions with their frameworks, the packages that all have, and the"
            " past versions."
        ),
        "prices": LazyCommand(
            "Fetch Google's list prices, and show what machines cost.", attribute="app"
        ),
        "job-schema": LazyCommand(
            "Print the JSON Schema of job files, for editors that complete and check them."
        ),
    },
    Section.OPERATE: {
        "init": LazyCommand(
            "Remember project, region and API address of your installation, so that no command"
            " needs them again."
        ),
        "doctor": LazyCommand(
            "Check an installation, or a job before it is submitted, and show how to fix each"
            " problem.",
            module="doctor.command",
        ),
        "dead-letters": LazyCommand(
            "Messages that no function could handle: list, replay, or drop them.", attribute="app"
        ),
        "orphans": LazyCommand(
            "List VMs and TPU nodes without a live job. An orphan is deleted if it is still one a"
            " minute later."
        ),
        "replay": LazyCommand(
            "Rebuild a job's state from its ledger and compare it with the stored state. Exit"
            " status 1 if they differ.",
            module="why",
        ),
        "mcp": LazyCommand(
            "Serve tools for agents on standard input and output: check, submit, explain and cancel"
            " jobs, read their logs."
        ),
        "jobs": LazyCommand(
            "List, describe, wait for, cancel and explain jobs: the same commands as above.",
            attribute="app",
        ),
    },
}
COMMANDS: Final = {
    name: command for commands in SECTIONS.values() for name, command in commands.items()
}

JOB_COMMANDS: Final = {
    "cancel": _CANCEL,
    "logs": _LOGS,
    "why": _WHY,
    "top": _TOP,
    "advise": _ADVISE,
    "cost": _COST,
}
"""Commands of `trainmaster jobs`, besides those in `cli.jobs`."""

HABITS: Final = {
    "abort": "cancel",
    "accelerators": "machines",
    "apply": "submit",
    "attach": "logs --follow",
    "check": "submit --check",
    "completion": "--install-completion",
    "config": "init",
    "cost-report": "cost",
    "create": "submit",
    "dashboard": "console",
    "debug": "why",
    "delete": "cancel",
    "diagnose": "why",
    "down": "cancel",
    "events": "why",
    "exec": "ssh",
    "explain": "why",
    "fleet": "machines",
    "get": "describe",
    "gpus": "machines",
    "help": "--help",
    "history": "list",
    "info": "describe",
    "instances": "machines",
    "kill": "cancel",
    "launch": "submit",
    "lint": "submit --check",
    "log": "logs",
    "login": "init",
    "ls": "list",
    "metrics": "top",
    "nvidia-smi": "top",
    "offer": "machines",
    "price": "prices list",
    "ps": "list",
    "queue": "list",
    "report": "cost",
    "restart": "submit",
    "resubmit": "submit",
    "retry": "submit",
    "rm": "cancel",
    "run": "submit",
    "sacct": "cost",
    "salloc": "submit",
    "sbatch": "submit",
    "scancel": "cancel",
    "shell": "ssh",
    "show": "describe",
    "show-gpus": "machines",
    "sinfo": "machines",
    "spend": "cost",
    "squeue": "list",
    "srun": "submit",
    "start": "submit",
    "stats": "top",
    "stop": "cancel",
    "stream-logs": "logs --follow",
    "submit": "submit",
    "tail": "logs --follow",
    "ui": "console",
    "usage": "cost",
    "validate": "submit --check",
    "version": "--version",
    "web": "console",
}
"""Words of gcloud, SkyPilot, dstack, kubectl and Slurm → the command that does this here."""

FOREIGN_GROUPS: Final = (
    "ai",
    "ai-platform",
    "custom-jobs",
    "gcloud",
    "hp-tuning-jobs",
    "job",
    "kubectl",
    "sky",
    "training-jobs",
)
"""Words of gcloud, SkyPilot and kubectl that stand before the word for what is done."""
