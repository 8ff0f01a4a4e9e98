"""Environment variables and host names of a manifest.

Trainmaster sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE itself. The host name of the primary
becomes `$(MASTER_ADDR)`, which is replaced by the primary's address in arguments and variables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trainmaster.jobspec.fields.environment_variables import RANK_VARIABLES
from trainmaster.jobspec.manifests.findings import Findings
from trainmaster.jobspec.manifests.pod_fields import EnvVarFields
from trainmaster.jobspec.manifests.volumes import CREDENTIALS

MASTER: Final = "$(MASTER_ADDR)"
"""Reference to the address of the primary, the replica whose success is the job's."""
RANK: Final = "$(RANK)"
"""Reference to the rank of the replica."""
INDEX_FIELDS: Final = (
    "metadata.annotations['batch.kubernetes.io/job-completion-index']",
    "metadata.labels['batch.kubernetes.io/job-completion-index']",
)
"""Fields of a pod that hold its completion index."""
INDEX: Final = "JOB_COMPLETION_INDEX"
"""Source: Kubernetes, "Job completion mode": the controller sets it in each container."""
HOST: Final = "HOSTNAME"
"""Container engines set it to the name of the pod, and shells leave it as it is."""
_CUT_HOST: Final = re.compile(
    r"\$\{HOSTNAME[#%:/]|\$\{?HOSTNAME\}?\"? *(?:\||<<<)|<<< *\"?\$\{?HOSTNAME"
)
"""A shell that takes a part of the host name."""
_CUT_HOST_COMMAND: Final = re.compile(
    r"(?:\bhostname(?: -\w+)*|/etc/hostname)\)?\"? *\||\$\(hostname(?: -\w+)*\)[\s\S]*##\*-"
    r"|\b(?:gethostname\(\)|platform\.node\(\)|uname\(\)(?:\.nodename|\[1\]))"
    r"\.(?:r?split|r?partition)\("
)
"""The same with the command `hostname`, or with Python, which return the name of the VM."""
PORT: Final = "2222"
"""MASTER_PORT of every job."""


@dataclass(frozen=True, slots=True)
class Names:
    """Meaning of host names and variables in the pods of a job."""

    hosts: re.Pattern[str]
    """Matches the host name of any pod; the group `id` identifies the pod."""
    primary: str
    """The `id` of the primary."""
    pods: int
    """Number of pods, as WORLD_SIZE has it."""
    secrets: frozenset[str] = frozenset()
    """Variables that `trainmaster.secrets` defines."""
    index: str = ""
    """Completion index of the pods, as a number or a reference; empty: there is none, or it is not
    known.
    """
    host: str = ""
    """Host name of the pods, with `index` as its last part; empty: it is not known."""
    injected: Mapping[str, str] = field(default_factory=dict)
    """Variables that the manifest's controller sets in every container."""

    def replace_hosts(self, text: str, path: str, findings: Findings) -> str:
        """Return the text with the primary's host name replaced.

        Host names of other pods do not exist here.
        """
        for match in self.hosts.finditer(text):
            if match["id"] != self.primary:
                problem = f"contains the host name {match[0]}; replicas have other names here"
                findings.refuse(path, problem, "read the addresses from TF_CONFIG")
                return text
            findings.substitute(path, match[0], MASTER, "The primary has another host name here.")
        return self.hosts.sub(lambda _: MASTER, text)


def convert_environment(
    listed: Sequence[Mapping[str, Any]],
    path: str,
    names: Names,
    texts: Mapping[str, str],
    findings: Findings,
) -> list[dict[str, str]]:
    """Return the variables of a container: the controller's, then those of the manifest.

    `texts`: path → word of the container's command or arguments.
    """
    values = {f"{path}[{index}].value": str(item.get("value")) for index, item in enumerate(listed)}
    own = {str(item.get("name")) for item in listed}
    variables = {**_pod_variables({**texts, **values}, own, names, findings), **names.injected}
    for index, item in enumerate(listed):
        item_path = f"{path}[{index}]"
        variable = findings.read(item, item_path, EnvVarFields)
        value = _value(variable, item_path, names, findings)
        if value is None:
            continue
        if not _note_set_by_platform(variable.name, value, item_path, names, findings):
            variables[variable.name] = value
        elif names.pods == 1 and variable.name in RANK_VARIABLES:
            variables[variable.name] = f"$({variable.name})"  # a job of one pod must ask for it
    return [{"name": name, "value": value} for name, value in variables.items()]


def _pod_variables(
    texts: Mapping[str, str], own: Collection[str], names: Names, findings: Findings
) -> dict[str, str]:
    """Return the variables that Kubernetes sets in each pod, as far as the job may read them.

    Refuse texts that read one whose value is not known here. `own`: variables that the manifest
    sets itself.
    """
    variables: dict[str, str] = {}
    if names.index:
        variables[INDEX] = names.index
    if names.host and any(_reads(HOST, text) for text in texts.values()):
        variables[HOST] = names.host
    known = {*variables, *own}
    for path, text in texts.items():
        if _reads(INDEX, text) and INDEX not in known:
            problem = f"reads {INDEX}, which these pods have not"
            findings.refuse(path, problem, "RANK, which counts all replicas")
        is_cut = _CUT_HOST_COMMAND.search(text) or (_CUT_HOST.search(text) and HOST not in known)
        if is_cut and names.pods > 1:
            problem = "takes a number from the host name; replicas have other names here"
            findings.refuse(path, problem, "RANK, which counts all replicas")
    return variables


def _reads(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _value(variable: EnvVarFields, path: str, names: Names, findings: Findings) -> str | None:
    """Return the value; None if another source sets the variable, or after a problem."""
    if variable.value_from is None:
        return names.replace_hosts(variable.value, f"{path}.value", findings)
    source = variable.value_from
    if "secretKeyRef" in source:
        if variable.name in names.secrets:
            replacement = f"trainmaster.secrets.{variable.name}"
            reason = "Secrets are read from Secret Manager."
            findings.substitute(f"{path}.valueFrom", source["secretKeyRef"], replacement, reason)
        else:
            problem = "refers to a secret of Kubernetes; name its version in Secret Manager"
            example = (
                f'metadata: {{annotations: {{trainmaster: "secrets: {{{variable.name}:'
                ' my-secret}"}}'
            )
            findings.refuse(f"{path}.valueFrom.secretKeyRef", problem, example)
        return None
    reference = source.get("fieldRef")
    field_path = reference.get("fieldPath") if isinstance(reference, Mapping) else None
    if field_path in INDEX_FIELDS and names.index:
        return names.index
    kind = ", ".join(source)
    findings.refuse(
        f"{path}.valueFrom", f"({kind}) is not supported", f'{{name: {variable.name}, value: "…"}}'
    )
    return None


def _note_set_by_platform(
    name: str, value: str, path: str, names: Names, findings: Findings
) -> bool:
    """Note a variable that Trainmaster sets or replaces, and return whether it does.

    A value that differs from Trainmaster's is a problem.
    """
    expected = {"MASTER_ADDR": MASTER, "RANK": RANK, "WORLD_SIZE": str(names.pods)}
    if name in CREDENTIALS:
        reason = (
            "The manifest provides no such file. Programs have the credentials of the VM's service"
            " account."
        )
        findings.substitute(path, f"{name}={value}", "nothing", reason)
        return True
    if name == "MASTER_PORT":
        findings.substitute(path, f"{name}={value}", PORT, "Trainmaster sets MASTER_PORT itself.")
        return True
    if name not in expected:
        return False
    if value != expected[name]:
        problem = f"sets {name} to {value!r}; Trainmaster sets it to {expected[name]}"
        findings.refuse(path, problem, "leave it out")
    else:
        findings.substitute(path, f"{name}={value}", "the same", f"Trainmaster sets {name} itself.")
    return True
