"""Requests and responses as the handlers see them, and the services that handlers use."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from urllib.parse import parse_qsl

from trainmaster.api.errors import Json, invalid_argument
from trainmaster.api.quotas import Bucket, Shares
from trainmaster.errors import TemporaryError
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.jobspec.reading.parse_document import DOCUMENT_BYTES_MAX
from trainmaster.ports import Access

BODY_BYTES_READ: Final = DOCUMENT_BYTES_MAX + 1
"""Bytes of a body that are read: enough to see that it is too large."""
BODY_NAME: Final = "body.json"
"""Name of the body in messages about its syntax."""
UNKNOWN_CALLER: Final = "a user of the API"
VALIDATE_ONLY: Final = "validateOnly"
"""Query parameter of the methods that create a job: check everything, and create nothing.

Source of its name and meaning: google.aip.dev/163.
"""
_VALIDATE_ONLY_SPELLINGS: Final = (VALIDATE_ONLY, "validate_only")
"""The spellings of the parameter that Google's APIs accept."""
_SIMILAR_PARAMETERS: Final = ("validateonly", "validate", "dryrun", "checkonly", "check")
"""Names that callers may use for `validateOnly`, without underscores and hyphens. None of them is
ever ignored: the request would create the job.
"""
_SWITCH: Final = {"true": True, "false": False}

_INVOCATION: Final = re.compile(r"\binvocation-id/([0-9A-Za-z-]{8,64})\b")
"""Source: gcloud's User-Agent. The id is the same for all attempts of one command."""

_STREAMING: Final = re.compile(
    r"\bcommand/gcloud\.(?:[a-z-]+\.)*jobs\.(?:stream-logs|submit\.training)\b"
)
"""Source: gcloud's User-Agent of the commands that follow a job's log."""
LOG_DELAY_S: Final = 75.0
"""Time until gcloud has read the last line of a job's log.

It is gcloud's polling interval (60 s by default), the age of the entries that it reads (5 s), and
their own delay.
"""
LOCAL_LOG_DELAY_S: Final = 15.0
"""`LOG_DELAY_S` on the local stack, whose environment sets gcloud's polling interval to 2 s."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, independent of the web framework."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case names."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a known method, with a token."""

    request: Request
    params: Mapping[str, str]
    """Values of the variables in the route's address."""
    token: str
    idempotency_key: str
    """Text that is the same for all attempts of one request, and different for all other requests.
    """

    @property
    def project(self) -> str:
        return self.params["project"]

    def param(self, name: str) -> str:
        """Return a query parameter; empty if it is absent."""
        return self.request.query.get(name, "")


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response, independent of the web framework."""

    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Service:
    """The services that handlers use."""

    project: str
    deps: CreationDeps
    access: Access
    new_id: Callable[[], str]
    """Returns a different text at each call."""
    service_account: str = ""
    """Default service account of VMs; empty: none."""
    jobs_per_minute: int = 60
    """Quota of creations; 0: no limit."""
    log_delay_s: float = LOG_DELAY_S
    """Seconds from a job's end until every gcloud that streams its log has read the last line."""
    log_project: str = ""
    """Project whose logs Google's console shows; empty: messages of jobs do not link to logs."""
    requests: Bucket | None = None
    """Counts this instance's requests that create no job; None: no limit."""
    shares: Shares = field(default_factory=lambda: Shares(time.monotonic))
    """Counts the creations of each caller."""

    def now(self) -> datetime:
        return self.deps.clock()


def query_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the parameters by name; of one that is repeated, all values with commas between them.

    None of the values is ignored: `validateOnly` may be true in one, and false in another.
    """
    query: dict[str, str] = {}
    for name, value in pairs:
        query[name] = f"{query[name]},{value}" if name in query else value
    return query


def validates_only(request: Request) -> bool:
    """Return whether the request only asks what would happen. Raises ApiError for other words."""
    asked = False
    for name, value in request.query.items():
        if name in _VALIDATE_ONLY_SPELLINGS:
            if value not in _SWITCH:
                raise invalid_argument(VALIDATE_ONLY, f"is {value!r}, and must be true or false")
            asked = asked or _SWITCH[value]
        elif re.sub("[_-]", "", name).lower() in _SIMILAR_PARAMETERS:
            raise invalid_argument(
                name, f"is no parameter: {VALIDATE_ONLY}=true checks a job without creating it"
            )
    return asked


def caller_name(call: Call, service: Service) -> str:
    """Return the name that the ledger records as the author of a request."""
    return caller_email(call, service) or UNKNOWN_CALLER


def caller_email(call: Call, service: Service) -> str | None:
    """Return the caller's e-mail address for the record; None if it is unknown.

    Never fails the request.
    """
    try:
        return service.access.email(call.token)
    except TemporaryError as error:
        _log.warning("the caller's e-mail address is unknown: %s", error)
        return None


def apply_method_override(request: Request) -> Request:
    """Turn a POST that stands for a GET with a long query into that GET.

    Source: Google's Python client sends it for addresses of 2,048 characters and more.
    """
    if request.method != "POST" or request.headers.get("x-http-method-override") != "GET":
        return request
    query = query_of(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
    return replace(request, method="GET", query=query, body=b"")


def streams_log(call: Call) -> bool:
    """Return whether a gcloud that follows the log of a job sends the request."""
    return _STREAMING.search(call.request.headers.get("user-agent", "")) is not None


def idempotency_key(request: Request, new_id: Callable[[], str]) -> str:
    """Return the key of a request.

    Equal requests have the same key only if gcloud marks them as one invocation.

    All others have different keys: AI Platform Training answered the second of two equal requests
    to create a job with 409, and clients expect that.
    """
    match = _INVOCATION.search(request.headers.get("user-agent", ""))
    invocation = match[1] if match else new_id()
    parts = [invocation, request.method, request.path]
    return hashlib.sha256("\n".join(parts).encode() + b"\n" + request.body).hexdigest()
