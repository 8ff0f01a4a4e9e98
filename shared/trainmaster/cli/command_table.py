"""All commands of `trainmaster`, in the order of its help. A test compares the summaries with the help texts."""

from __future__ import annotations

from typing import Final

from trainmaster.cli.lazy import LazyCommand

LOCAL: Final = "local"
LOGS: Final = LazyCommand(
    "logs", "logs", "Show the log of a job: all lines of its replicas and of the service, in order."
)
WHY: Final = LazyCommand("why", "why", "Explain a job: what happened, which rule decided and why, and what comes next.")

COMMANDS: Final = {
    LOCAL: LazyCommand(
        "local.commands",
        "app",
        "Run the whole system on this machine: the real functions and programs, on Google's emulators.",
    ),
    "submit": LazyCommand(
        "submit", "submit", "Submit a training job. Arguments after -- are passed to the program.", reads_as_gcloud=True
    ),
    "convert": LazyCommand(
        "convert",
        "convert",
        "Print the job file that a manifest of Kubeflow or JobSet is converted to. `submit` converts manifests itself.",
    ),
    "logs": LOGS,
    "why": WHY,
    "replay": LazyCommand(
        "why",
        "replay",
        "Rebuild a job's state from its ledger and compare it with the stored state. Exit status 1 if they differ.",
    ),
    "ssh": LazyCommand(
        "ssh.command",
        "ssh",
        "Open a shell on the VM of a replica, or run a command there. The exit status is that of the command.",
    ),
    "tensorboard": LazyCommand(
        "tensorboard.command",
        "tensorboard",
        "Start TensorBoard on the event files of jobs. Each job is a run, and so is each trial of a tuning job.",
    ),
    "orphans": LazyCommand(
        "orphans",
        "orphans",
        "List VMs and TPU nodes without a live job. An orphan is deleted if it is still one a minute later.",
    ),
    "machines": LazyCommand(
        "machines",
        "machines",
        "List machine types, GPUs and TPUs with their list prices, and the zones that have them.",
    ),
    "runtimes": LazyCommand(
        "runtimes",
        "runtimes",
        "List the runtime versions with their frameworks, the packages that all have, and the past versions.",
    ),
    "console": LazyCommand(
        "console", "console", "Show jobs, timelines, decisions and logs in a browser, until Ctrl-C."
    ),
    "doctor": LazyCommand(
        "doctor.command",
        "doctor",
        "Check an installation, or a job before it is submitted, and show how to fix each problem.",
    ),
    "simulate": LazyCommand(
        "simulate",
        "simulate",
        "Forecast a job under preemptions: how it ends, how long it takes, how much work is lost.",
    ),
    "job-schema": LazyCommand(
        "job_schema", "job_schema", "Print the JSON Schema of job files, for editors that complete and check them."
    ),
    "jobs": LazyCommand("jobs", "app", "List, describe, wait for, cancel and explain jobs."),
    "dead-letters": LazyCommand(
        "dead_letters", "app", "Messages that no function could handle: list, replay, or drop them."
    ),
    "schedule": LazyCommand("schedule", "app", "Submit job files at fixed times, with Cloud Scheduler."),
    "prices": LazyCommand("prices", "app", "Fetch Google's list prices, and show what machines cost."),
}

JOB_COMMANDS: Final = {
    "logs": LOGS,
    "why": WHY,
    "top": LazyCommand(
        "top", "top", "Show CPU, memory, GPU and network use of a job's replicas, until Ctrl-C or the end of the job."
    ),
    "advise": LazyCommand(
        "advise",
        "advise",
        "Advise on checkpoint interval, Spot VMs and restart policy, from the job's own losses and restarts.",
    ),
}
"""Of `trainmaster jobs`, besides those in `cli.jobs`."""
