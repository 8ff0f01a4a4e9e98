"""Floors: the same calls with the same client, without any code of ours."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.cloud.firestore import Client, DocumentReference
from google.cloud.firestore_v1.base_query import FieldFilter

from trainmaster.gcp.retries import CALL
from trainmaster.ports import Store


class BareEvents:
    """Copies of a job's document, of one replica's and of one ledger entry's, read and written like the originals.

    One event is: get the job and the replica in one request; then create an entry and update the replica in one commit,
    on the condition that the replica has not been written since.
    """

    def __init__(self, client: Client, job_id: str, replica_key: str, entry_key: str, copy: str) -> None:
        self._client = client
        self._job = client.document(f"floors/{copy}")
        self._replica = client.document(f"floors/{copy}/replicas/{replica_key}")
        self._entries = client.collection(f"floors/{copy}/ledger")
        self._number = itertools.count()
        original = client.document(f"jobs/{job_id}")
        self._job.set(_content(original))
        self._content = _content(original.collection("replicas").document(replica_key))
        self._replica.set(self._content)
        self._entry = _content(original.collection("ledger").document(entry_key))

    def run(self) -> None:
        client = self._client
        found = {snapshot.reference.path: snapshot for snapshot in client.get_all([self._job, self._replica], **CALL)}
        batch = client.batch()
        batch.create(self._entries.document(f"entry-{next(self._number)}"), self._entry)
        condition = client.write_option(last_update_time=found[self._replica.path].update_time)
        batch.update(self._replica, self._content, condition)
        batch.commit(**CALL)


def latest_keys(store: Store, job_id: str) -> tuple[str, str]:
    """Return the key of a replica and of the job's latest ledger entry."""
    loaded = store.load_attempt(job_id)
    if loaded is None:
        raise KeyError(job_id)
    return loaded.state.replicas[-1].key, store.ledger(job_id)[-1].key


def seconds_of_counts(client: Client, job_ids: Sequence[str], threads: int) -> float:
    """Return the time of two counts per job, as in a sweep: its RUNNING replicas, and those that change."""

    def count(job_id: str) -> None:
        replicas = client.collection(f"jobs/{job_id}/replicas").where(filter=FieldFilter("attempt", "==", 1))
        for states in (["RUNNING"], ["WAITING", "RESTARTING", "REPLACING", "HELD"]):
            replicas.where(filter=FieldFilter("state", "in", states)).count().get(**CALL)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(count, job_ids))
    return time.perf_counter() - began


def _content(reference: DocumentReference) -> dict[str, Any]:
    content = reference.get().to_dict()
    if content is None:
        raise KeyError(reference.path)
    return content
