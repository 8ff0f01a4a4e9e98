"""One attempt of a job: publish the message, or send the request.

The result is a status, empty for a success.

Headers and tokens are those of Cloud Scheduler. An access token of the local stack is sent to
loopback addresses only: another server could use it here. Identity tokens name their audience, so
they are sent to any server. Their keys are at `/emulator/v1/certs` of this emulator. Redirects are
not followed, and are failures. Source:
https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs#HttpTarget.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

from trainmaster_emulators.machines.vm_tokens import TokenIssuer, VmIdentity
from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.rest.api_errors import Json
from trainmaster_emulators.scheduler.field_formats import seconds
from trainmaster_emulators.scheduler.resources import HttpTarget, Job, PubsubTarget
from trainmaster_emulators.services import iam

USER_AGENT: Final = "Google-Cloud-Scheduler"
CONTENT_TYPE: Final = "application/octet-stream"
"""Type of a body for which the job names none."""
REPLACED_HEADERS: Final = ("host", "content-length", "user-agent", "authorization")
"""Headers of a job that are not sent, or replaced."""
CODES: Final = {
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    409: 6,
    429: 8,
    499: 1,
    500: 13,
    501: 12,
    503: 14,
    504: 4,
}
"""HTTP status → canonical code. Source: google/rpc/code.proto."""
UNKNOWN: Final = 2
UNAVAILABLE: Final = 14
DEADLINE_EXCEEDED: Final = 4
PERMISSION_DENIED: Final = 7
"""This code and the three above are canonical codes, too."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects."""

    def redirect_request(self, *_: object) -> None:
        """Return None: the redirect becomes an HTTPError."""


@dataclass
class Dispatcher:
    """Makes the attempts of jobs. One for the whole emulator, for all threads."""

    pubsub: str
    """`host:port` of the Pub/Sub emulator."""
    secret: str = ""
    """Secret part of the stack's access tokens."""

    def attempt(self, job: Job, scheduled_at: datetime) -> Json:
        """Run the job once.

        `scheduled_at`: the time of the schedule that this execution belongs to.
        """
        if job.http_target:
            return self._send(job, job.http_target, scheduled_at)
        return self._publish(job.pubsub_target) if job.pubsub_target else {}

    def certificates(self) -> dict[str, str]:
        """Return the public keys of its identity tokens, by key id."""
        return self._issuer.certificates()

    @cached_property
    def _issuer(self) -> TokenIssuer:
        return TokenIssuer()

    def _publish(self, target: PubsubTarget) -> Json:
        """Publish the message of a job to the Pub/Sub emulator. Returns the status."""
        message = {"data": target.data, "attributes": target.attributes}
        try:
            call(self.pubsub, "POST", f"/v1/{target.topic_name}:publish", {"messages": [message]})
        except CallError as error:
            return _status(CODES.get(error.status, UNKNOWN), f"{target.topic_name}: {error}")
        except OSError as error:
            return _status(UNAVAILABLE, f"{target.topic_name}: {error}")
        return {}

    def _send(self, job: Job, target: HttpTarget, scheduled_at: datetime) -> Json:
        """Send the request of a job. Returns the status.

        A response of 300 and more is a failure.
        """
        if target.oauth_token and not is_loopback(target.uri):
            text = (
                "the local stack sends its access tokens to loopback addresses only, not to"
                f" {target.uri}"
            )
            return _status(PERMISSION_DENIED, text)
        body = base64.b64decode(target.body) if target.body else None
        request = urllib.request.Request(  # noqa: S310 - http and https only, checked by HttpTarget
            target.uri, body, self._headers(job, target, scheduled_at), method=target.method
        )
        try:
            with _opener(target.uri).open(
                request, timeout=seconds(job.attempt_deadline)
            ) as response:
                response.read()
        except urllib.error.HTTPError as error:
            error.close()
            return _status(
                CODES.get(error.code, UNKNOWN), f"{target.uri}: HTTP status {error.code}"
            )
        except TimeoutError:
            return _status(
                DEADLINE_EXCEEDED, f"{target.uri}: no response within {job.attempt_deadline}"
            )
        except (OSError, http.client.HTTPException) as error:
            return _status(UNAVAILABLE, f"{target.uri}: {error}")
        return {}

    def _headers(self, job: Job, target: HttpTarget, scheduled_at: datetime) -> dict[str, str]:
        """Return the headers of a job's request: its own, and those of Cloud Scheduler with the
        token.
        """
        headers = {
            name: value
            for name, value in target.headers.items()
            if name.lower() not in REPLACED_HEADERS
        }
        if target.body and "content-type" not in map(str.lower, headers):
            headers["Content-Type"] = CONTENT_TYPE
        headers |= {
            "User-Agent": USER_AGENT,
            "X-CloudScheduler": "true",
            "X-CloudScheduler-JobName": job.name.rpartition("/")[2],
            "X-CloudScheduler-ScheduleTime": (
                scheduled_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
            ),
        }
        if target.oauth_token:
            token = iam.access_token(target.oauth_token.service_account_email, self.secret)
            headers["Authorization"] = f"Bearer {token}"
        elif target.oidc_token:
            audience = target.oidc_token.audience or target.uri
            token = self._identity_token(job, target.oidc_token.service_account_email, audience)
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _identity_token(self, job: Job, account: str, audience: str) -> str:
        """Return a token of the service account for this audience, which names no machine."""
        now = datetime.now(UTC)
        _, project, *_ = job.name.split("/")
        identity = VmIdentity(
            account,
            project,
            int(iam.PROJECT_NUMBER),
            zone="",
            instance_id=0,
            instance_name="",
            created_at=now,
        )
        return self._issuer.identity_token(identity, audience, full=False, now=now)


def is_loopback(uri: str) -> bool:
    """Return whether the address is this machine's own, without a look-up of names."""
    host = urlsplit(uri).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _opener(uri: str) -> urllib.request.OpenerDirector:
    """Return an opener without redirects; without the machine's proxy for loopback addresses."""
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(uri) else []
    return urllib.request.build_opener(_NoRedirect, *proxies)


def _status(code: int, message: str) -> Json:
    """Return the status of a failed attempt, as `google.rpc.Status` has it."""
    return {"code": code, "message": message}
