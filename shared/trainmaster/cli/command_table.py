"""All commands of `trainmaster`, in the order of its help.

A test compares the summaries with the help texts.
"""

from __future__ import annotations

from typing import Final

from trainmaster.cli.lazy import LazyCommand

LOCAL: Final = "local"
LOGS: Final = LazyCommand(
    "Show the log of a job: all lines of its replicas and of the service, in order."
)
WHY: Final = LazyCommand(
    "Explain a job: what happened, which rule decided and why, and what comes next."
)

COMMANDS: Final = {
    LOCAL: LazyCommand(
        "Run the whole system on this machine: the real functions and programs, on Google's"
        " emulators.",
        module="local.commands",
        attribute="app",
    ),
    "init": LazyCommand(
        "Remember project, region and API address of your installation, so that no command needs"
        " them again."
    ),
    "submit": LazyCommand(
        "Submit a training job. Arguments after -- are passed to the program.", reads_as_gcloud=True
    ),
    "convert": LazyCommand(
        "Print the job file that a manifest of Kubeflow or JobSet is converted to. `submit`"
        " converts manifests itself."
    ),
    "logs": LOGS,
    "why": WHY,
    "replay": LazyCommand(
        "Rebuild a job's state from its ledger and compare it with the stored state. Exit status 1"
        " if they differ.",
        module="why",
    ),
    "ssh": LazyCommand(
        "Open a shell on the VM of a replica, or run a command there. The exit status is that of"
        " the command.",
        module="ssh.command",
    ),
    "tensorboard": LazyCommand(
        "Start TensorBoard on the event files of jobs. Each job is a run, and so is each trial of a"
        " tuning job.",
        module="tensorboard.command",
    ),
    "orphans": LazyCommand(
        "List VMs and TPU nodes without a live job. An orphan is deleted if it is still one a"
        " minute later."
    ),
    "machines": LazyCommand(
        "List machine types, GPUs and TPUs with their list prices, and the zones that have them."
    ),
    "runtimes": LazyCommand(
        "List the runtime versions with their frameworks, the packages that all have, and the past"
        " versions."
    ),
    "console": LazyCommand("Show jobs, timelines, decisions and logs in a browser, until Ctrl-C."),
    "mcp": LazyCommand(
        "Serve tools for agents on standard input and output: check, submit, explain and cancel"
        " jobs, read their logs."
    ),
    "doctor": LazyCommand(
        "Check an installation, or a job before it is submitted, and show how to fix each problem.",
        module="doctor.command",
    ),
    "simulate": LazyCommand(
        "Forecast a job under preemptions: how it ends, how long it takes, how much work is lost."
    ),
    "job-schema": LazyCommand(
        "Print the JSON Schema of job files, for editors that complete and check them."
    ),
    "jobs": LazyCommand("List, describe, wait for, cancel and explain jobs.", attribute="app"),
    "dead-letters": LazyCommand(
        "Messages that no function could handle: list, replay, or drop them.", attribute="app"
    ),
    "schedule": LazyCommand(
        "Submit job files at fixed times, with Cloud Scheduler.", attribute="app"
    ),
    "prices": LazyCommand(
        "Fetch Google's list prices, and show what machines cost.", attribute="app"
    ),
}

JOB_COMMANDS: Final = {
    "logs": LOGS,
    "why": WHY,
    "top": LazyCommand(
        "Show CPU, memory, GPU and network use of a job's replicas, until Ctrl-C or the end of the"
        " job."
    ),
    "advise": LazyCommand(
        "Advise on checkpoint interval, Spot VMs and restart policy, from the job's own losses and"
        " restarts."
    ),
    "cost": LazyCommand(
        "Show what jobs cost at list prices, by user or by a label. Reads the ledger of each job."
    ),
}
"""Of `trainmaster jobs`, besides those in `cli.jobs`."""
