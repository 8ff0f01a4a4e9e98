"""Every time window and threshold of the rules, with its reason.

A rule that can use a stored fact uses no window. docs/rules.md has the numbers of the rules; each
constant is used by few modules, which a search for its name finds. Budgets are in `core.model.job`;
times that a user sets are in `core.model.plan`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

CHAIN_S: Final = 24 * 3600
"""Longest time for which jobs may use the same VMs one after the other (`keepMachines`).

It is added to the time limit of VMs that may be kept, because Compute Engine changes the time limit
of no running VM.
"""

# Rule 4: lost VMs

STARTUP_TIMEOUT_S: Final = 20 * 60
"""How long an incarnation that was ordered on a running VM may take until the agent reports it
ready: a minute for the boot, several for packages, the largest of which are gigabytes. An agent
that cannot set up reports that itself; this timeout is for an agent that reports nothing: a fresh
heartbeat suspends it.
"""

TAKE_TIMEOUT_S: Final = 3 * 60
"""`STARTUP_TIMEOUT_S` for a VM that a job has taken over from another one: it has booted, and its
agent has written a heartbeat a moment before.
"""

SETUP_MAX_S: Final = 3 * 3600
"""How long the start may take in spite of fresh heartbeats, which suspend `STARTUP_TIMEOUT_S`.

Packages that are built from source and the largest images take an hour; pip or the container engine
may also hang beside an agent that works.
"""

OLD_POINT: Final = timedelta(seconds=80)
"""Age of the last point of a VM's series `agent/alive` at which the series has ended.

An agent writes a point every 30 seconds: two are missing, and the last one may have taken 20
seconds to be seen.
"""

OLD_HEARTBEAT: Final = timedelta(seconds=75)
"""Age of the heartbeat at which an agent whose series has ended is silent.

A live migration pauses a VM for less than a minute.
"""

SERIES_MEMORY: Final = timedelta(minutes=20)
"""How far back series are read.

A series that was not seen in this time is unknown: metrics are off.
"""

BOOT_MAX: Final = timedelta(minutes=5)
"""How long a VM may boot until its agent writes: machines with many GPUs need minutes.

So long, a held round of an elastic job waits for a VM that boots, and for one that Google neither
creates nor refuses: a round without it is followed by two more restarts of the others.
"""

AGENT_TIMEOUT: Final = timedelta(minutes=15)
"""How long the agent of a running replica without a series may write no heartbeat.

The rest beyond `OLD_HEARTBEAT` is for an unreachable metadata server: there is no second source.
"""

HELD_AGENT_TIMEOUT: Final = timedelta(minutes=5)
"""`AGENT_TIMEOUT` while a held round, the common start of all members of a job, waits for the
agent's report.

An agent that works reports within half a minute.
"""

ALL_AGENTS_TIMEOUT: Final = timedelta(hours=1)
"""How long all agents of a job without series may write no heartbeat.

Before that, wrong heartbeats are more likely than VMs that all hang at once. A fault of Google's
metadata servers is repaired within this time.
"""

SILENT_JOBS_MAX: Final = 20
"""Jobs with fewer series than running replicas that one minute reconciles.

When Cloud Monitoring is late for all jobs, this bounds the reads; they find fresh heartbeats, and
no VM is lost.
"""

HEARTBEATS_READ_MAX: Final = 500
"""Heartbeats that one reconciliation reads, each with a call of its own, and that all silent jobs
of one minute together read: up to a third of what Compute Engine's default limit of 1,500 reads per
minute allows. A larger gang is read in several reconciliations.
"""

USEFUL_LIFE_MIN: Final = timedelta(minutes=10)
"""A VM that ends earlier after its agent's first report is wasted, and a program that fails earlier
after its start is taken to have made no progress.

The control plane cannot see checkpoints; programs that save any rarely save the first one earlier,
and a bug in the first step shows earlier.
"""

WASTED_PER_ZONE: Final = 3
"""Wasted machines of a replica in a row until the next zone is tried. The first one may be chance;
after three, the zone takes Spot VMs away as fast as it creates them."""

WASTED_MAX: Final = 30
"""Wasted machines of a replica in a row, in all zones, until the job fails.

With the pauses between them that is at least six hours: longer than most shortages, and at most 30
boots are paid.
"""

SETUP_PAUSES: Final = (timedelta(minutes=5), timedelta(hours=1))
"""Pauses after set-ups of a replica that failed: with three tries, as AI Platform Training (the
service) had, they outlast an outage of an hour of what the set-up downloads. Most outages end
within the first one.
"""

# Rule 7: rounds

GROWTH_MIN: Final = timedelta(minutes=10)
"""Shortest time between two rounds that grow: each costs a restart of all members, so VMs that come
and go must not keep the job from its work.
"""

SAVE_MAX: Final = timedelta(minutes=10)
"""How long a save may take if it is not for the end of a VM. Then the round ends, so that more
members can join, or the job is cancelled.

A further notice within this time after a request to save causes no other request, as in the agent.
Later, the programs are asked again: the first notice may have been withdrawn.
"""

# Rules 8 and 10: failures soon after the start (`USEFUL_LIFE_MIN`)

LIKELY_BUG_FAILURES: Final = 3
"""Quick failures in a row after which the texts of decisions mention a likely bug.

Two may be chance.
"""

# Rule 10: restarts

EXCUSE_MAX: Final = timedelta(minutes=2)
"""Time between the report of a lost peer and that of a lost VM in which the VM explains it. A
program notices within seconds; the loss itself is reported at the next look at the VMs.
"""

# Rule 11: capacity

PARTIAL_GANG_WAIT_MAX_S: Final = 900
"""How long the healthy part of a gang keeps running while a VM for the rest is requested in the
same zone. A rerun in another zone, from the last checkpoint, costs about as much in a job that
checkpoints every quarter of an hour.
"""

PROVISIONING_MAX_S: Final = 7 * 24 * 3600
"""How long VMs are requested for a job that never ran and sets no maxWaitTime: as long as a job may
run by default. Source: the service also stopped such jobs "after too many retries"; it documented
no number.
"""

CAPACITY_ERRORS_MIN: Final = 100
"""Capacity errors before a job fails after `PROVISIONING_MAX_S`.

A job with fewer spent most of its time in the admission queue.
"""

FAST_RETRIES: Final = timedelta(hours=1)
"""How long VMs are requested at the shortest interval."""

RETRY_MIN: Final = timedelta(seconds=50)
"""Shortest time until VMs are requested again: a little less than a minute, because the sweep
triggers the request.
"""

RETRY_MAX: Final = timedelta(minutes=15)
"""Longest time until VMs are requested again."""

RETRY_SHARE: Final = 1 / 30
"""Time until VMs are requested again, as a share of the time since the first capacity error."""

RETRY_JITTER: Final = 0.1
"""Largest deviation from the computed time, as a share of it.

It keeps jobs that failed together from retrying together.
"""

CAPACITY_HALF_LIFE: Final = timedelta(minutes=90)
"""Time in which an outcome loses half of its weight.

Source: skypilot-org/spot-traces: a zone without capacity has some 39 minutes later with chance
0.17, four hours later with 0.33; the base rate is 0.64.
"""

CAPACITY_FRESH: Final = timedelta(seconds=40)
"""How long a candidate that failed for any job is left out of a pass.

It is shorter than the pause between two passes of one job (`RETRY_MIN` less its jitter), so that no
pass leaves out what the one before requested last.
"""

ADVICE_KEPT: Final = timedelta(minutes=10)
"""How long all jobs use one answer of Compute Engine's `advice.capacity`, which estimates the
chance that Spot VMs can be created in a zone.

The quota of these calls is not documented.
"""

ADVICE_REFUSED: Final = timedelta(hours=1)
"""Time without a request for advice after Google has refused one: the project is not enrolled, or
lacks the permission.
"""

ADVICE_DOUBTED: Final = timedelta(minutes=30)
"""Time in which a stockout loses half of its weight against advice, which takes no account of what
was refused to this job.
"""

REFUSED_MAX: Final = timedelta(hours=1)
"""How long VMs are requested for a job of which nothing runs while Google refuses them for
something that an operator can repair, or fails. A changed permission takes minutes to spread, and
an operator has read the alert; most outages are shorter; and a job that names a missing network or
account should not wait longer.
"""

# Stored documents

HISTORY_KEPT: Final = timedelta(days=30)
"""How long documents stay that no decision needs any more.

It is longer than any message can be redelivered: Pub/Sub keeps one for seven days at most, and dead
letters are replayed within days.
"""

# VMs

FUSE_SLACK_S: Final = 3600
"""Time between the latest moment at which a job may still run and the moment at which its TPU nodes
delete themselves. No healthy job comes near it.
"""

RELEASE_MAX_S: Final = 90
"""How long a VM is paid for after its deletion was requested.

Source: Compute Engine ends a shutdown after 90 s.
"""

COST_CHECK_MIN_S: Final = 60
COST_CHECK_SHARE: Final = 0.8
"""Share of the time, in which a job can reach its `maxCost` at the earliest, after which its cost
is computed again.
"""

COST_RESERVE_S: Final = COST_CHECK_MIN_S + RELEASE_MAX_S
"""How long before its cost reaches its `maxCost` a job is cancelled: the sweep that finds it may
come a minute late, and its VMs are paid for until they are gone.
"""

UNPAID_S: Final = 60
"""How long before a job can cost its `maxCost` its VMs end themselves, if no function has computed
the cost again: time for SIGTERM, and for their shutdown. As long as functions run, they cancel the
job earlier (`COST_RESERVE_S`).
"""

COST_SAVE_S: Final = 2 * 60
"""How long before the cancellation at `COST_RESERVE_S` all programs are asked to save: time for a
save that fits a preemption notice, and until the next sweep. The cost is computed for the dearest
machines that the job may get; on cheaper ones it has more time. A request to save that is younger
counts: nothing follows that could save what an older one did not.
"""
