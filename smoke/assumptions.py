"""The assumptions of the documentation about Google Cloud.

The table has one row for each sentence of the repository that calls a fact unconfirmed, and for facts that decisions
rely on and no one has seen on Google Cloud. A test compares it with the files that contain such sentences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Assumption:
    """One fact about Google Cloud."""

    key: str
    """Name of the fact in `World.facts`."""
    text: str
    sources: tuple[str, ...]
    """Files that document it, relative to the repository."""
    expected: str
    """The assumed value, `at most N s`, or `either`: the code handles all values, and the table shows which is real."""
    read_from: str
    """How the smoke test sees it. For a fact that it does not read, the reason."""
    local: str = ""
    """Why the local stack cannot show it. Empty: it can."""

    def holds(self, seen: str) -> bool:
        """Return whether a seen value is as expected."""
        if limit := re.fullmatch(r"at most (\d+) s", self.expected):
            return seen.isdigit() and int(seen) <= int(limit[1])
        return self.expected in ("either", seen)


NEEDS_TPU: Final = "it needs TPU quota and a TPU node"
OWN_IMAGE: Final = "local VMs have this machine's Python and engine"
NO_SCHEMAS: Final = "the Pub/Sub emulator has no schemas of infra/"
NO_TERRAFORM: Final = "the local stack is not installed by Terraform"

ASSUMPTIONS: Final = (
    Assumption(
        "python",
        "The image of the default runtime has Python 3.12.",
        ("docs/decisions/0040-images-and-packages.md",),
        "3.12",
        "the agent's first line in the job's log",
        OWN_IMAGE,
    ),
    Assumption(
        "engine",
        "That image has no container engine, or has one: the agent installs what is missing.",
        ("docs/decisions/0040-images-and-packages.md",),
        "either",
        "the agent's first line in the job's log",
        OWN_IMAGE,
    ),
    Assumption(
        "container",
        "A container runs on a VM of the default image.",
        ("docs/decisions/0040-images-and-packages.md",),
        "ran",
        "the container's own line in the job's log",
    ),
    Assumption(
        "gcs",
        "The default image can mount gcsfuse as the agent does, and what a program saved below /gcs is in its bucket.",
        ("docs/decisions/0110-gcs-folder.md",),
        "saved",
        "the job gcs, and its object",
    ),
    Assumption(
        "missing_object",
        "Cloud Storage answers 404 for a missing object to a caller who may list.",
        ("docs/decisions/0042-api-access.md",),
        "404",
        "a read by a program on a VM, in its job directory",
    ),
    Assumption(
        "missing_job_file",
        "Cloud Storage answers 403 for an object that a condition on names excludes, whether it exists or not.",
        ("docs/security.md",),
        "403",
        "a read by a program on a VM, in jobs/",
    ),
    Assumption(
        "gang",
        "A bulk insert passes the condition on the names of VMs.",
        ("infra/iam.tf",),
        "created",
        "the job digits, whose three VMs are one or two bulk inserts",
    ),
    Assumption(
        "deletion_by_id",
        "A call that names a VM by its id passes the condition on the names of VMs.",
        ("docs/decisions/0094-iam-of-json-services.md", "shared/trainmaster/gcp/compute_fleet/errors.py"),
        "deleted",
        "the job digits, whose VMs are deleted by their ids",
    ),
    Assumption(
        "spot",
        "Compute Engine accepts preemptionNoticeDuration for Spot VMs.",
        ("shared/trainmaster/gcp/compute_fleet/hardware.py",),
        "created",
        "the job of the step container, whose VM is a Spot VM",
    ),
    Assumption(
        "field_mask",
        "Compute Engine and Cloud TPU accept the header X-Goog-FieldMask with parentheses.",
        ("docs/decisions/0116-unreachable-zones.md",),
        "accepted",
        "a list of VMs and of TPU nodes",
    ),
    Assumption(
        "schedule_token",
        "Cloud Run accepts the access token of Cloud Scheduler for the function `api`.",
        ("shared/trainmaster/gcp/tools/scheduler.py",),
        "accepted",
        "it takes a schedule with `--submit-as`, a service account and a minute: run `trainmaster schedule`",
    ),
    Assumption(
        "gpu_toolkit",
        "The GPU images have NVIDIA's Container Toolkit.",
        ("shared/trainmaster/agent/setup/engine_installation.py",),
        "present",
        "it needs GPU quota and a container job with a GPU",
    ),
    Assumption(
        "maintenance",
        "A VM with a run time limit and onHostMaintenance=MIGRATE migrates, and its program goes on.",
        ("docs/decisions/0005-host-maintenance.md",),
        "migrated",
        "gcloud compute instances simulate-maintenance-event",
    ),
    Assumption(
        "maintenance_event",
        "A VM sees its migration in its metadata.",
        ("docs/decisions/0005-host-maintenance.md",),
        "MIGRATE_ON_HOST_MAINTENANCE",
        "instance/maintenance-event, read by a program on the VM",
    ),
    Assumption(
        "heartbeat",
        "Guest attributes that the agent writes can be read through Compute Engine's API.",
        ("docs/decisions/0037-silent-agents.md",),
        "readable",
        "instances.getGuestAttributes",
    ),
    Assumption(
        "deletion_found_s",
        "The sweep finds a VM that was deleted by hand within three minutes after the deletion.",
        ("docs/decisions/0003-provision-is-level-triggered.md",),
        "at most 180 s",
        "the time from the deletion's end to the replica's next VM generation",
    ),
    Assumption(
        "log_copies",
        "Each line of a program is stored once.",
        ("docs/decisions/0043-each-line-once.md",),
        "1 in trainmaster",
        "gcloud logging read, all logs",
    ),
    Assumption(
        "log_resource",
        "A project may write log entries with the resource type ml_job.",
        ("docs/interfaces.md",),
        "ml_job",
        "gcloud logging read",
    ),
    Assumption(
        "schemas",
        "Pub/Sub's schemas accept original field names and nulls.",
        ("docs/decisions/0020-topic-schemas.md",),
        "accept the events",
        "trainmaster doctor",
        NO_SCHEMAS,
    ),
    Assumption(
        "invoker_check",
        "The apply turns off Cloud Run's check of the callers of `api`, after its deployment.",
        ("docs/decisions/0042-api-access.md",),
        "off",
        "gcloud run services describe",
        NO_TERRAFORM,
    ),
    Assumption(
        "disabled_api",
        "Cloud Resource Manager reports permissions of a disabled API, or does not: infra/ enables the API.",
        ("infra/apis.tf",),
        "either",
        "testIamPermissions for an API that is not enabled",
        "its IAM has no APIs to enable",
    ),
    Assumption(
        "gcloud_ml",
        "The installed gcloud still has the commands of AI Platform Training.",
        ("README.md",),
        "works",
        "gcloud ai-platform jobs describe",
    ),
    Assumption(
        "tpu_nodes",
        "Cloud TPU lists the nodes of all zones in one call.",
        ("docs/decisions/0012-tpu-nodes.md",),
        "answers",
        "gcloud compute tpus tpu-vm list --zone=-",
    ),
    Assumption(
        "tpu_queue",
        "Cloud TPU lists the queued resources of all zones in one call.",
        ("docs/decisions/0021-tpu-queued-resources.md",),
        "answers",
        "gcloud compute tpus queued-resources list --zone=-",
    ),
    Assumption(
        "dead_letters",
        "No event of these jobs is refused.",
        ("docs/decisions/0014-sender-authentication.md",),
        "0",
        "trainmaster dead-letters list",
    ),
    Assumption(
        "tpu_preempted_node",
        "The node of a preempted queued resource remains, or does not.",
        ("emulators/trainmaster_emulators/tpu/resource_queue.py",),
        "either",
        NEEDS_TPU,
    ),
    Assumption(
        "tpu_delete_while_creating",
        "A queued resource can be deleted while its node is being created, or cannot.",
        ("docs/decisions/0021-tpu-queued-resources.md",),
        "either",
        NEEDS_TPU,
    ),
    Assumption(
        "tpu_repaired_host",
        "A repaired TPU host keeps its instance id.",
        ("docs/decisions/0014-sender-authentication.md",),
        "kept",
        NEEDS_TPU,
    ),
    Assumption(
        "tpu_replaced_host",
        "Google repairs a host of a slice in place with another id, or does not.",
        ("docs/decisions/0033-acting-for-others.md",),
        "either",
        NEEDS_TPU,
    ),
    Assumption(
        "tpu_token_project",
        "The tokens of TPU hosts name the user's project or one of Google's.",
        ("docs/security.md",),
        "either",
        NEEDS_TPU,
    ),
    Assumption(
        "tpu_firewall_accounts",
        "Firewall rules by service account match TPU hosts, or do not.",
        ("infra/network.tf", "infra/variables.tf", "infra/README.md", "infra/ssh.tf", "docs/decisions/0079-ssh.md"),
        "either",
        NEEDS_TPU,
    ),
    Assumption(
        "tpu_guest_attributes",
        "A program on a TPU host may write guest attributes, and Cloud TPU returns them.",
        ("docs/decisions/0084-early-stopping.md",),
        "readable",
        NEEDS_TPU,
    ),
    Assumption(
        "boot_image",
        "`make image` builds an image that starts VMs sooner.",
        ("docs/decisions/0041-faster-starts.md",),
        "built",
        "it takes another VM and half an hour: run `make image`",
    ),
)
