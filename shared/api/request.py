"""A request as the handlers see it, and what they need to answer it."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from urllib.parse import parse_qsl

from shared.api.errors import Json
from shared.api.quotas import Bucket
from shared.errors import TemporaryError
from shared.flows.record import Deps
from shared.jobspec.reading.parse_document import DOCUMENT_BYTES_MAX
from shared.ports import Access

BODY_BYTES_READ: Final = DOCUMENT_BYTES_MAX + 1
"""Of any request, as nobody knows yet whose it is: enough to see that there is too much."""
_INVOCATION: Final = re.compile(r"\binvocation-id/([0-9A-Za-z-]{8,64})\b")
"""Source: gcloud's User-Agent. One id per command, however often the command's transport sends its request."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """As it came, of whatever web framework. `headers` has lower-case names."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with a right to be answered. `params`: what its path names. `key` is the same for what one client
    sends again because no answer came, and for nothing else."""

    request: Request
    params: Mapping[str, str]
    token: str
    key: str

    @property
    def project(self) -> str:
        return self.params["project"]

    def param(self, name: str) -> str:
        """A query parameter; empty where it is absent."""
        return self.request.query.get(name, "")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Service:
    """`new_id` gives a different word every time. `service_account` is the VMs'; empty where they have none. `requests`
    counts those of an instance that create no job; None: nobody counts."""

    project: str
    deps: Deps
    access: Access
    new_id: Callable[[], str]
    service_account: str = ""
    jobs_per_minute: int = 60
    requests: Bucket | None = None

    def now(self) -> datetime:
        return self.deps.clock()


def email_of(call: Call, service: Service) -> str | None:
    """Who asks, for the record, where the token tells and Google answers: nothing is held up by it."""
    try:
        return service.access.email(call.token)
    except TemporaryError as error:
        _log.warning("who asks is not known: %s", error)
        return None


def meant(request: Request) -> Request:
    """A GET whose address became too long travels as a POST. Source: Google's Python client, from 2,048 characters."""
    if request.method != "POST" or request.headers.get("x-http-method-override") != "GET":
        return request
    query = dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
    return replace(request, method="GET", query=query, body=b"")


def key_of(request: Request, new_id: Callable[[], str]) -> str:
    """Two requests with the same words are one only where their client says so: gcloud does, by its invocation.

    The service answered a second create with 409 always, and clients without such an id were written for that.
    """
    invocation = _INVOCATION.search(request.headers.get("user-agent", ""))
    said = [invocation[1] if invocation else new_id(), request.method, request.path]
    return hashlib.sha256("\n".join(said).encode() + b"\n" + request.body).hexdigest()
