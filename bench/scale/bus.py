"""The store and the message bus around the flows: every call takes time and is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from bench.scale.cloud import Cloud
from trainmaster.memory.store import MemoryStore
from trainmaster.messaging import internal_requests, topics

STORE_CALL_S: Final = 0.01
"""Duration of a call of Firestore or Pub/Sub within a region (assumed)."""


Request = internal_requests.ProvisionRequest | internal_requests.OrphanSearch | internal_requests.AdmissionPass


class TimedStore:
    """A store whose calls take time and are counted."""

    def __init__(self, store: MemoryStore, cloud: Cloud) -> None:
        self._store, self._cloud = store, cloud

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, cloud = getattr(self._store, name), self._cloud

        def call(*args: Any, **options: Any) -> Any:
            cloud.spend(STORE_CALL_S)
            cloud.usage.add("Firestore requests", cloud.now)
            return method(*args, **options)

        return call


class ScaleBus:
    """Pub/Sub: a message is delivered when the call that published it has ended.

    The effects of a delivery are immediate, so the stored lease is free again before the delivery's virtual time is
    over. The bus therefore keeps the deliveries of one job apart itself: a delivery that arrives while another one of
    the job is busy does nothing, and its request is sent again when that one ends.
    """

    def __init__(self, cloud: Cloud, provision_job: Callable[[Request, datetime], None]) -> None:
        self._cloud, self._provision_job = cloud, provision_job
        self._busy: set[str] = set()
        """Ids of the jobs that are being provisioned."""
        self._late: dict[str, bytes] = {}
        """Job id → the latest request that arrived while another delivery of the job was busy."""

    def publish(self, topic: str, data: bytes, _attributes: Mapping[str, str]) -> None:
        self.publish_all(topic, [data])

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        self._cloud.spend(STORE_CALL_S)
        if topic != topics.PROVISION:
            raise KeyError(topic)
        for data in messages:
            self._send(data)

    def _send(self, data: bytes) -> None:
        cloud = self._cloud
        deliver = partial(cloud.deliver, "provision", partial(self._provision, data, cloud.clock()))
        cloud.after(cloud.spent + STORE_CALL_S, deliver)

    def _provision(self, data: bytes, published_at: datetime) -> None:
        cloud = self._cloud
        request = internal_requests.decode_provision(data)
        job_id = request.job_id if isinstance(request, internal_requests.ProvisionRequest) else ""
        if job_id in self._busy:
            self._late[job_id] = data
            cloud.spend(2 * STORE_CALL_S)
            return
        try:
            self._provision_job(request, published_at)
        finally:
            if job_id:
                self._busy.add(job_id)
                cloud.after(cloud.spent, partial(self._release, job_id))

    def _release(self, job_id: str) -> None:
        self._busy.discard(job_id)
        if job_id in self._late:
            self._send(self._late.pop(job_id))
