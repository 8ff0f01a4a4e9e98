"""From a pod template to the parts of a worker pool: container, machine, and placement of VMs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal
from typing import Any, Final

from trainmaster.core.machines.tpus import TPU_VMS
from trainmaster.jobspec.machines.selection import Demand, select_machine
from trainmaster.jobspec.manifests.environment import Names, convert_environment
from trainmaster.jobspec.manifests.findings import Findings
from trainmaster.jobspec.manifests.machines import (
    GIB,
    GPU_LABELS,
    TPU_FAMILIES,
    nearest_quantity,
    parse_quantity,
)
from trainmaster.jobspec.manifests.pod_fields import ContainerFields, PodSpec, Resources, Template
from trainmaster.jobspec.manifests.volumes import check_volumes

GPU: Final = "nvidia.com/gpu"
TPU: Final = "google.com/tpu"
GPU_LABEL: Final = "cloud.google.com/gke-accelerator"
TPU_LABEL: Final = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL: Final = "cloud.google.com/gke-tpu-topology"
SPOT_LABELS: Final = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
MACHINE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
RESERVATION_LABEL: Final = "cloud.google.com/reservation-name"
DISK_GIB: Final = 100
"""Boot disk of a job file that does not set one; half of it is for the image and containers."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The meaning of one pod template."""

    path: str
    """Path of the pod's spec in the manifest."""
    container_path: str
    """Path of the container that runs the program."""
    container: Mapping[str, Any]
    """A `containerSpec`."""
    machine: Mapping[str, Any]
    """A `machineSpec`."""
    disk: Mapping[str, Any] | None = None
    """A `diskSpec`; None: the default."""
    spot: bool = False
    region: str | None = None
    zone: str | None = None
    reservation: str | None = None
    service_account: str | None = None
    restart_policy: str | None = None
    is_tpu: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    """Node selector."""


def convert_pod(
    template: Mapping[str, Any], path: str, container_name: str, names: Names, findings: Findings
) -> Pod | None:
    """Return the pod of a template; None if it has no container to run.

    `container_name`: the name of the container that runs the program, where a pod has several.
    """
    spec_path = f"{path}.spec"
    pod = findings.read(findings.read(template, path, Template).spec, spec_path, PodSpec)
    index = _find_container(pod, spec_path, container_name, findings)
    if index is None:
        return None
    container_path = f"{spec_path}.containers[{index}]"
    container = findings.read(pod.containers[index], container_path, ContainerFields)
    check_volumes(pod.volumes, container, f"{spec_path}.volumes", findings)
    resources = findings.read(container.resources, f"{container_path}.resources", Resources)
    _check_quantities(resources, f"{container_path}.resources", findings)
    requests = _effective_requests(resources)
    labels = pod.node_selector
    _check_labels(labels, f"{spec_path}.nodeSelector", findings)
    return Pod(
        path=spec_path,
        container_path=container_path,
        container=_container_spec(container, container_path, names, findings),
        machine=_machine_spec(requests, labels, spec_path, container_path, findings),
        disk=_disk_spec(requests, f"{container_path}.resources", findings),
        spot=any(labels.get(label) == "true" for label in SPOT_LABELS),
        region=labels.get(REGION_LABEL),
        zone=labels.get(ZONE_LABEL),
        reservation=labels.get(RESERVATION_LABEL),
        service_account=pod.service_account_name,
        restart_policy=pod.restart_policy,
        is_tpu=TPU in requests,
        labels=labels,
    )


_IN_BYTES: Final = ("memory", "ephemeral-storage")
"""Resources that are amounts of bytes. CPUs and devices are counted."""


def _effective_requests(resources: Resources) -> dict[str, Any]:
    """Return the amounts that count: limits; of CPU and memory the requests, if there are any.

    Requests of CPU and memory may be smaller than their limits.
    """
    requested = {
        name: amount for name, amount in resources.requests.items() if name in ("cpu", "memory")
    }
    return {**resources.requests, **resources.limits, **requested}


def _check_quantities(resources: Resources, path: str, findings: Findings) -> None:
    """Refuse each amount that is not a quantity, where it is written."""
    for level, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in amounts.items():
            if parse_quantity(amount) is None:
                problem = f"is {amount!r}, which is not a quantity"
                in_bytes = nearest_quantity(amount) or "16Gi"
                example = in_bytes if name in _IN_BYTES else "4"
                findings.refuse(f"{path}.{level}.{name}", problem, example)


def _find_container(pod: PodSpec, path: str, name: str, findings: Findings) -> int | None:
    """Return the index of the program's container. Other containers are refused."""
    if not pod.containers:
        findings.refuse(
            f"{path}.containers", "is required", f"containers: [{{name: {name}, image: …}}]"
        )
        return None
    names = [container.get("name") for container in pod.containers]
    program = names.index(name) if name in names else 0
    for index in range(len(pod.containers)):
        if index != program:
            problem = (
                "is an additional container, which is not supported: do its work in the program"
            )
            findings.refuse(f"{path}.containers[{index}]", problem, "leave it out")
    return program


def _container_spec(
    container: ContainerFields, path: str, names: Names, findings: Findings
) -> dict[str, Any]:
    if not container.image:
        findings.refuse(
            f"{path}.image", "is required", "us-docker.pkg.dev/my-project/training/trainer:1"
        )
    for index, mount in enumerate(container.volume_mounts):
        folder = mount.get("mountPath")
        if str(folder) != "/dev/shm":  # noqa: S108 - the path that manifests name
            mount_path = f"{path}.volumeMounts[{index}]"
            reason = (
                "The directory is part of the container, and is created only by the image or the"
                " program."
            )
            findings.substitute(mount_path, folder, "the container's disk", reason)
    spec: dict[str, Any] = {"imageUri": container.image or ""}
    words: dict[str, str] = {}  # path → word, for the variables that it refers to
    for name, texts in (("command", container.command), ("args", container.args)):
        words.update({f"{path}.{name}[{index}]": text for index, text in enumerate(texts or ())})
        if texts:
            spec[name] = [
                names.replace_hosts(text, f"{path}.{name}[{index}]", findings)
                for index, text in enumerate(texts)
            ]
    environment = convert_environment(container.env, f"{path}.env", names, words, findings)
    if environment:
        spec["env"] = environment
    return spec


def _machine_spec(
    requests: Mapping[str, Any],
    labels: Mapping[str, str],
    spec_path: str,
    container_path: str,
    findings: Findings,
) -> dict[str, Any]:
    resources_path = f"{container_path}.resources"
    selector_path = f"{spec_path}.nodeSelector"
    _check_resources(requests, resources_path, findings)
    amounts = {name: parse_quantity(amount) for name, amount in requests.items()}
    if TPU in requests:
        return _tpu_machine(requests, labels, resources_path, selector_path, findings)
    gpus = amounts.get(GPU) or 0
    named_machine = labels.get(MACHINE_LABEL)
    gpu_label = labels.get(GPU_LABEL)
    gpu_type = GPU_LABELS.get(gpu_label or "")
    if gpus and gpu_label is None and named_machine is None:
        problem = f"requests {GPU} without a GPU type"
        findings.refuse(selector_path, problem, f'nodeSelector: {{{GPU_LABEL}: "nvidia-l4"}}')
    elif gpu_label is not None and gpu_type is None:
        problem = f"is {gpu_label}, which is not known"
        findings.refuse(f"{selector_path}[{GPU_LABEL}]", problem, " or ".join(GPU_LABELS))
    accelerator: dict[str, Any] = {}
    if gpus and gpu_type:
        accelerator = {"acceleratorType": gpu_type, "acceleratorCount": int(gpus)}
    if named_machine is not None:
        return {"machineType": named_machine, **accelerator}
    if None in amounts.values():
        return {}  # refused already
    vcpus = amounts.get("cpu") or Decimal(0)
    memory = amounts.get("memory") or Decimal(0)
    demand = Demand(vcpus, memory / GIB, gpu_type if gpus else None, int(gpus))
    machine = select_machine(demand)
    if machine is None:
        example = f'nodeSelector: {{{MACHINE_LABEL}: "n2-standard-128"}}'
        findings.refuse(
            resources_path, "is more than any machine type that is selected by itself has", example
        )
        return {}
    reason = (
        f"The smallest machine type that fits; {MACHINE_LABEL} names another. The program gets the"
        " whole VM."
    )
    findings.substitute(resources_path, dict(requests), machine, reason)
    return {"machineType": machine, **accelerator}


def _tpu_machine(
    requests: Mapping[str, Any],
    labels: Mapping[str, str],
    resources_path: str,
    selector_path: str,
    findings: Findings,
) -> dict[str, Any]:
    chips_path = f"{resources_path}.limits[{TPU}]"
    chips = int(parse_quantity(requests[TPU]) or 0)
    family = TPU_FAMILIES.get(labels.get(TPU_LABEL, ""))
    topology = labels.get(TOPOLOGY_LABEL)
    if family is None and TPU_LABEL in labels:
        problem = f"is {labels[TPU_LABEL]}, a type of TPU that jobs cannot have"
        findings.refuse(f"{selector_path}[{TPU_LABEL}]", problem, " or ".join(TPU_FAMILIES))
        return {}
    if family is None or topology is None:
        problem = (
            f"must have {TPU_LABEL} ({', '.join(TPU_FAMILIES)}) and {TOPOLOGY_LABEL}, because a pod"
            f" requests {TPU}"
        )
        findings.refuse(
            selector_path, problem, f'{TPU_LABEL}: "tpu-v6e-slice", {TOPOLOGY_LABEL}: "4x4"'
        )
        return {}
    hosts = {name: vm for name, vm in TPU_VMS.items() if name.startswith(family)}
    machine = f"{family}-{chips}t"
    if machine not in hosts:
        example = ", ".join(str(vm.chips) for vm in hosts.values())
        findings.refuse(chips_path, f"is {chips}, which no host of this type has", example)
        return {"machineType": machine, "tpuTopology": topology}
    size = hosts[machine].generation_table.size_of(topology)
    if size and not hosts[machine].is_host_of(size):
        machine = next(name for name, vm in hosts.items() if vm.is_host_of(size))
        reason = (
            f"Cloud TPU has no other hosts for the topology {topology}; the program of a host gets"
            " all its chips."
        )
        findings.substitute(chips_path, str(chips), machine, reason)
    return {"machineType": machine, "tpuTopology": topology}


def _disk_spec(requests: Mapping[str, Any], path: str, findings: Findings) -> dict[str, Any] | None:
    requested = requests.get("ephemeral-storage")
    amount = parse_quantity(requested)
    if amount is None:
        return None
    requested_gib = int((amount / GIB).to_integral_value(ROUND_UP))
    size_gib = max(DISK_GIB, requested_gib + DISK_GIB // 2)
    findings.substitute(
        path,
        f"ephemeral-storage: {requested}",
        f"a boot disk of {size_gib} GB",
        "It contains the image too.",
    )
    return {"bootDiskSizeGb": size_gib}


def _check_resources(requests: Mapping[str, Any], path: str, findings: Findings) -> None:
    for name in requests:
        if name not in ("cpu", "memory", "ephemeral-storage", GPU, TPU):
            findings.refuse(
                f"{path}.limits[{name}]", "is a resource that VMs do not have", f"{GPU} or {TPU}"
            )


def _check_labels(labels: Mapping[str, str], path: str, findings: Findings) -> None:
    known = (
        GPU_LABEL,
        TPU_LABEL,
        TOPOLOGY_LABEL,
        *SPOT_LABELS,
        MACHINE_LABEL,
        ZONE_LABEL,
        REGION_LABEL,
        RESERVATION_LABEL,
    )
    reason = "It selects among the nodes of a cluster; jobs here create their VMs."
    for name, value in labels.items():
        if name not in known:
            findings.drop(f"{path}[{name}]", value, reason)
