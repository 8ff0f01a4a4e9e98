"""Documents of one Firestore database: paths, reads, queries and conditional writes.

The parts of the Store (`states`, `ledger`, `job_queries`, `store`) inherit from `Database`, and
make every call of Firestore through it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from google.api_core import exceptions
from google.cloud.firestore import Client, DocumentSnapshot, WriteBatch
from google.cloud.firestore_v1.base_query import FieldFilter

from trainmaster.errors import ConflictError
from trainmaster.gcp.errors import google_errors, is_missing_database, translate
from trainmaster.gcp.firestore.documents import Document, T, UnreadableError, read
from trainmaster.gcp.retries import CALL

_log = logging.getLogger(__name__)

JOBS: Final = "jobs"
LEDGER: Final = "ledger"
REPLICAS: Final = "replicas"
MACHINE_SETS: Final = "machines"

_CONFLICTS: Final = (exceptions.FailedPrecondition, exceptions.Aborted, exceptions.NotFound)
"""Firestore's errors for a write whose precondition does not hold, or whose document is gone."""
UNREADABLE: Final = "unreadable_job"
"""`action` in log lines about documents that cannot be read.

The alert in infra/monitoring.tf looks for it.
"""


class Database:
    """Base of the parts of the Store. Thread-safe, as its client is.

    Every method raises TemporaryError or PermanentError for an error of Google
    (`trainmaster.gcp.errors`), beside what its docstring says.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def close(self) -> None:
        self._client.close()

    def _get(
        self, *paths: str, fields: Sequence[str] | None = None
    ) -> dict[str, DocumentSnapshot[Any]]:
        """Return the documents that exist, by path, in the order of `paths`.

        `fields`: only these fields of them.
        """
        references = [self._client.document(path) for path in paths]
        with google_errors("Firestore: get documents"):
            documents = self._client.get_all(references, field_paths=fields, **CALL)
            snapshots = {snapshot.reference.path: snapshot for snapshot in documents}
        return {
            path: snapshots[path] for path in paths if path in snapshots and snapshots[path].exists
        }

    def _where(self, collection: str, *conditions: tuple[str, str, object]) -> Any:
        """Return the query for the documents of a collection that meet all conditions.

        A condition is a field, an operator of Firestore, and a value.
        """
        query: Any = self._client.collection(collection)
        for field, operator, value in conditions:
            query = query.where(filter=FieldFilter(field, operator, value))
        return query

    def _find(self, query: Any, read_time: datetime | None = None) -> list[DocumentSnapshot[Any]]:
        """Return the documents as they are now, or as they were at `read_time`."""
        with google_errors("Firestore: query"):
            return list(query.get(read_time=read_time, **CALL))

    def _count(self, query: Any) -> int:
        """Return how many documents the query finds, without reading them."""
        with google_errors("Firestore: count"):
            # The answer is a list of lists with one aggregation in all.
            ((result,),) = query.count().get(**CALL)
        return int(result.value)

    def _write(self, batch: WriteBatch, path: str, document: Document, update_time: object) -> None:
        """Add a write to the batch: update the document as it was at `update_time`.

        None: create it. If the document was written since, or exists already, the commit fails.
        """
        reference = self._client.document(path)
        if update_time is None:
            batch.create(reference, document)
        else:
            batch.update(
                reference, document, self._client.write_option(last_update_time=update_time)
            )

    def _create_once(self, path: str, document: Document) -> None:
        """Create the document. One that exists stays as it is."""
        batch = self._client.batch()
        batch.create(self._client.document(path), document)
        with suppress(ExistsError):
            commit(batch, f"create {path}")


class ExistsError(Exception):
    """A document that the batch creates exists already."""


def commit(batch: WriteBatch, action: str) -> None:
    """Commit the batch.

    Raises ExistsError, and ConflictError for a document that was written or deleted since it was
    read.
    """
    with google_errors(f"Firestore: {action}", _translate_commit):
        batch.commit(**CALL)


def _translate_commit(error: exceptions.GoogleAPICallError) -> Exception | None:
    """Return our error for Google's; None: Google's is raised as it is."""
    if isinstance(error, exceptions.AlreadyExists):
        return ExistsError(error.message)
    if isinstance(error, _CONFLICTS) and not is_missing_database(error):
        return ConflictError(error.message)
    return translate(error)


def read_or_log(kind: type[T], snapshot: DocumentSnapshot[Any], name: str) -> T | None:
    """Return the value; None, with an error in the log, if this release cannot read its document.

    The caller goes on with the other documents. `name`: field of the log line with the document's
    id.
    """
    try:
        return read(kind, snapshot.to_dict())
    except UnreadableError as error:
        _log.error("unreadable job: %s", error, extra={name: snapshot.id, "action": UNREADABLE})
        return None


def job_path(job_id: str) -> str:
    return f"{JOBS}/{job_id}"


def replicas_path(job_id: str) -> str:
    return f"{JOBS}/{job_id}/{REPLICAS}"


def ledger_path(job_id: str) -> str:
    return f"{JOBS}/{job_id}/{LEDGER}"
