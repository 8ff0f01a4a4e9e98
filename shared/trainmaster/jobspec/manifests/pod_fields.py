"""The fields of a pod template, level by level.

Each `Level` lists the fields of one mapping: those that are converted; those that have no effect
here (`dropped`, with the reason); and those that no job can have (`refused`, with what to do).

Source: Kubernetes' API reference, core/v1 PodTemplateSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trainmaster.jobspec.manifests.findings import Level


class Metadata(Level):
    name: str | None = None
    generate_name: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}

    dropped: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "namespace",
            "creationTimestamp",
            "uid",
            "resourceVersion",
            "generation",
            "managedFields",
            "finalizers",
            "ownerReferences",
            "selfLink",
        ),
        "Jobs here have no Kubernetes API server.",
    )


class Template(Level):
    """A template of a pod or of a Job."""

    spec: Mapping[str, Any] = {}

    dropped: ClassVar[Mapping[str, str]] = {
        "metadata": "Labels of the job are those of its own metadata."
    }


class PodSpec(Level):
    containers: tuple[Mapping[str, Any], ...] = ()
    node_selector: Mapping[str, str] = {}
    volumes: tuple[Mapping[str, Any], ...] = ()
    service_account_name: str | None = None
    restart_policy: str | None = None

    dropped: ClassVar[Mapping[str, str]] = {
        "imagePullSecrets": "VMs pull images with their service account.",
        "hostNetwork": "Containers always use the network of their VM.",
        "hostIPC": "Containers always use the shared memory of their VM.",
        "dnsPolicy": "Containers use the name resolution of their VM.",
        "securityContext": "A container has its VM to itself.",
        "shareProcessNamespace": "A pod has one container here.",
        "terminationGracePeriodSeconds": (
            "A VM that is shut down gives programs as long as Compute Engine allows."
        ),
        **dict.fromkeys(
            (
                "affinity",
                "tolerations",
                "topologySpreadConstraints",
                "schedulerName",
                "runtimeClassName",
            ),
            "Each replica has a VM of its own; VMs of a job are placed in one zone.",
        ),
        **dict.fromkeys(
            ("priorityClassName", "priority", "preemptionPolicy"),
            "Converted jobs have the priority 0 in the admission queue.",
        ),
        **dict.fromkeys(
            (
                "automountServiceAccountToken",
                "enableServiceLinks",
                "subdomain",
                "hostname",
                "setHostnameAsFQDN",
            ),
            "Jobs here have no Kubernetes API server and no services.",
        ),
        **dict.fromkeys(
            ("hostUsers", "os", "overhead", "readinessGates"),
            "It concerns the nodes of a cluster; a replica has a VM of its own.",
        ),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "initContainers": "do their work at the beginning of the program",
        "serviceAccount": "use serviceAccountName, which replaced it",
        "activeDeadlineSeconds": "set the deadline of the whole job",
        "hostPID": "a program sees its own processes only",
        "hostAliases": "use names that DNS resolves",
        "dnsConfig": "use names that DNS resolves",
        "nodeName": "select a zone with topology.kubernetes.io/zone",
        "resourceClaims": "request nvidia.com/gpu or google.com/tpu",
        "resources": "set the resources of the container",
        "schedulingGates": "wait before you submit the job; an accepted job starts",
        "hostnameOverride": "VMs have names of their own",
        "workloadRef": "all VMs of a job are created together",
        "ephemeralContainers": "read the output with trainmaster logs",
    }


class ContainerFields(Level):
    name: str | None = None
    image: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()
    resources: Mapping[str, Any] = {}
    volume_mounts: tuple[Mapping[str, Any], ...] = ()

    dropped: ClassVar[Mapping[str, str]] = {
        "imagePullPolicy": "A new VM pulls the image.",
        "ports": "Containers use the network of their VM, whose ports are open within the job.",
        "securityContext": "A container has its VM to itself.",
        **dict.fromkeys(
            ("livenessProbe", "readinessProbe", "startupProbe"),
            "trainmaster.stallTimeout ends a program that hangs.",
        ),
        **dict.fromkeys(
            ("tty", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy"),
            "Everything that the program prints is in the job's log.",
        ),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "envFrom": "list the variables under env",
        "workingDir": 'change the directory in the command: ["sh", "-c", "cd DIR && exec …"]',
        "lifecycle": "do this work in the program",
        "restartPolicy": "additional containers are not supported",
        "volumeDevices": "read from Cloud Storage",
        "resizePolicy": "VMs have a fixed size",
        "restartPolicyRules": "set trainmaster.exitPolicy",
    }


class EnvVarFields(Level):
    name: str = ""
    value: str = ""
    value_from: Mapping[str, Any] | None = None


class Resources(Level):
    limits: Mapping[str, Any] = {}
    requests: Mapping[str, Any] = {}

    refused: ClassVar[Mapping[str, str]] = {"claims": "request nvidia.com/gpu or google.com/tpu"}
