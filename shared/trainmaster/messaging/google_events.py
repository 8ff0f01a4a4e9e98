"""Messages from Google Cloud: entries of Compute Engine's audit log, and notifications of Cloud
Storage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from trainmaster.core.events import VmLost, VmNoticed, VmRef
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.intake.system_events import SystemEvent
from trainmaster.errors import PermanentError
from trainmaster.messaging.agent_messages import decode_vm_end
from trainmaster.messaging.decoding import MessageModel, decode_json, has_field

GENERATION_MAX: Final = 2**63 - 1
"""Source: `generation` of the object resource is an int64."""
INSTANCE: Final = re.compile(r"projects/[^/]+/zones/(?P<zone>[^/]+)/instances/(?P<name>[^/]+)")


class AuditLogModel(MessageModel):
    """The method of Compute Engine that was called, and the VM that it was called for."""

    method: str = Field(alias="methodName")
    resource: str = Field(alias="resourceName")


class LabelsModel(MessageModel):
    """Labels of the VM that a log entry is about."""

    instance_id: str = ""


class ResourceModel(MessageModel):
    """The VM that a log entry is about."""

    labels: LabelsModel


class LogEntryModel(MessageModel):
    """Source: LogEntry and AuditLog of the Cloud Logging API, as a log sink publishes them."""

    payload: AuditLogModel = Field(alias="protoPayload")
    resource: ResourceModel
    log: str = Field(alias="logName")
    at: Annotated[AwareDatetime, Field(strict=False, alias="timestamp")]


class ObjectModel(MessageModel):
    """Source: the object resource of the Cloud Storage JSON API, which a JSON_API_V1 notification
    contains.
    """

    created_at: Annotated[AwareDatetime, Field(strict=False, alias="timeCreated")]


def decode_maintenance(
    data: bytes, published_at: datetime | None = None
) -> VmLost | VmNoticed | SystemEvent:
    """Return the event of an agent's maintenance message or of an entry of Compute Engine's
    system-event audit log.

    Only the audit log entry has a `protoPayload`. Its time is Google's; an agent's time after
    `published_at` is cut to it. Raises PermanentError if the message is malformed.
    """
    if has_field(data, "protoPayload"):
        return _decode_system_event(data)
    return decode_vm_end(data, published_at)


def decode_upload(attributes: Mapping[str, str], data: bytes) -> UploadedObject:
    """Return which object was uploaded.

    Raises PermanentError if this is not a Cloud Storage notification.

    Source: Pub/Sub notifications for Cloud Storage. `data` is the object resource in JSON_API_V1.
    """
    try:
        bucket = attributes["bucketId"]
        name = attributes["objectId"]
        generation = int(attributes["objectGeneration"])
    except (KeyError, ValueError) as error:
        raise PermanentError(f"not a Cloud Storage notification: {error}") from None
    if not 0 < generation <= GENERATION_MAX:
        raise PermanentError("not a Cloud Storage notification: objectGeneration is out of range")
    created_at = None
    if has_field(data, "timeCreated"):
        created_at = decode_json(ObjectModel, data).created_at
    return UploadedObject(bucket, name, generation, created_at)


def _decode_system_event(data: bytes) -> SystemEvent:
    entry = decode_json(LogEntryModel, data)
    path = INSTANCE.fullmatch(entry.payload.resource)
    if path is None:
        raise PermanentError(f"system event: {entry.payload.resource} is not the name of a VM")
    vm = VmRef(path["name"], path["zone"], entry.resource.labels.instance_id)
    return SystemEvent(entry.payload.method, vm, entry.at, entry.log)
