"""Which replica of which job this VM is, and whose state file it may use."""

from __future__ import annotations

import time

from trainmaster.agent.control.slice_hosts import read_slice_host, read_tpu_node
from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import AgentIdentity, VmConfig, VmRef
from trainmaster.agent.reporting.serial_console import Console

METADATA_RETRY_MAX_S = 10.0  # longest wait between two tries to read the identity


def read_identity(metadata: MetadataServer, console: Console) -> AgentIdentity:
    """Read which replica this VM is; retry until the metadata server answers.

    Raises KeyError, TypeError or ValueError if the VM config is malformed.
    """
    for wait in backoffs(METADATA_RETRY_MAX_S):
        try:
            instance = VmRef(
                name=metadata.get("instance/name").strip(),
                zone=metadata.get("instance/zone").strip().rsplit("/", 1)[-1],
                instance_id=metadata.get("instance/id").strip(),
            )
            config = VmConfig.parse(metadata.get("instance/attributes/trainmaster-vm-config"))
            vm = instance if instance.name in config.vm_names else read_tpu_node(metadata, instance)
            host = read_slice_host(metadata) if config.hosts > 1 else None
            number = metadata.get("project/numeric-project-id").strip() if vm is instance else ""
        except HttpError as error:
            console.log(f"The metadata server does not answer yet ({error}); trying again.")
            time.sleep(wait)
            continue
        return AgentIdentity(vm, config, instance, host, number)
    raise AssertionError("backoffs never end")


def state_owner(identity: AgentIdentity) -> str:
    """Return the owner that the state file must name: this VM, while this job uses it.

    Several jobs may use a VM, one after the other; the tenure is the number of the job, from 1. The
    owner is the id of the instance, with `/TENURE` behind it from the second job on.
    """
    tenure = identity.config.tenure
    return identity.instance.instance_id + (f"/{tenure}" if tenure > 1 else "")
