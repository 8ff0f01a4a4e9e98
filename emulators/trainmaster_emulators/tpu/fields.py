"""The fields of nodes and queued resources in both versions of the API, as masks.

A request with any other field is refused, also in nested messages. What v2alpha1 stored is shown by
v2 without the fields that only v2alpha1 has. Source: the discovery documents of both versions.
"""

from __future__ import annotations

from typing import Final

from trainmaster_emulators.machines.field_mask import Mask, parse_mask
from trainmaster_emulators.rest.api_errors import Json
from trainmaster_emulators.tpu.tpu_errors import bad_request

_NETWORK: Final = "(network,subnetwork,enableExternalIps,canIpForward,queueCount)"
_NODE: Final = (
    "name,id,description,acceleratorType,acceleratorConfig(type,topology),runtimeVersion,state,"
    "health,healthDescription,apiVersion,createTime,labels,metadata,tags,"
    "serviceAccount(email,scope),cidrBlock,queuedResource,multisliceNode,"
    f"networkConfig{_NETWORK},networkConfigs{_NETWORK},"
    "schedulingConfig(preemptible,reserved,spot),"
    "networkEndpoints(ipAddress,port,accessConfig/externalIp),dataDisks(sourceDisk,mode),"
    "symptoms,upcomingMaintenance,shieldedInstanceConfig/enableSecureBoot,"
    "bootDiskConfig/customerEncryptionKey/kmsKeyName"
)
_ALPHA_NODE: Final = (
    f"{_NODE},autocheckpointEnabled,"
    "schedulingConfig(provisioningModel,reservationName,terminationTimestamp),"
    "dataDisks/workerIds,"
    "bootDiskConfig(diskSizeGb,enableConfidentialCompute,provisionedIops,provisionedThroughput,"
    "sourceImage,storagePool)"
)
_QUEUED: Final = (
    "name,createTime,state,spot,guaranteed/minDuration,reservationName,"
    "tpu/nodeSpec(parent,nodeId),"
    "queueingPolicy(validUntilDuration,validUntilTime,validAfterDuration,validAfterTime,"
    "validInterval(startTime,endTime))"
)
_QUEUED_V2: Final = (
    f"{_QUEUED},tpu/nodeSpec(node({_NODE},protectionTier),multisliceParams(nodeCount,nodeIdPrefix))"
)
_QUEUED_ALPHA: Final = (
    f"{_QUEUED},bestEffort,guaranteed/reserved,provisioningModel,"
    "runDuration(maxRunDuration,terminationTime),"
    f"tpu/nodeSpec(node({_ALPHA_NODE}),"
    "multiNodeParams(nodeCount,nodeIdPrefix,workloadType))"
)

V2: Final = "v2"
V2_ALPHA: Final = "v2alpha1"
NODE: Final = {V2: parse_mask(f"{_NODE},protectionTier"), V2_ALPHA: parse_mask(_ALPHA_NODE)}
"""Version of the API → fields of a node."""
QUEUED: Final = {V2: parse_mask(_QUEUED_V2), V2_ALPHA: parse_mask(_QUEUED_ALPHA)}
"""Version of the API → fields of a queued resource."""


def check(body: Json, fields: Mask, at: str) -> Json:
    """Return the body.

    Raises the StatusError that Google returns if a message in it has another field.
    """
    for name, value in body.items():
        if name not in fields:
            raise bad_request(f'Unknown name "{name}" at "{at}": Cannot find field.')
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, dict) and fields[name]:
                check(item, fields[name], f"{at}.{name}")
    return body
