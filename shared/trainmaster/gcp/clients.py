"""The clients of Google's APIs and the credentials they use: the only module that builds either.

    Google Cloud    application default credentials: the function's service account, or the user's
                    own login
    local stack     no credentials; addresses from FIRESTORE_EMULATOR_HOST, PUBSUB_EMULATOR_HOST and
                    STORAGE_EMULATOR_HOST, and the endpoints of `trainmaster.settings`

Client libraries are imported where they are used, because each function pays for what it imports at
its cold start. All clients are thread-safe, reconnect by themselves, and refresh their credentials.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import google.auth
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession, Request

from trainmaster.core.model.installation import name_in_installation
from trainmaster.errors import PermanentError, TemporaryError

if TYPE_CHECKING:
    from google.cloud import firestore, storage
    from google.cloud import logging as cloud_logging
    from google.pubsub_v1.services.publisher import PublisherClient
    from google.pubsub_v1.services.subscriber import SubscriberClient

SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
ON_CLOUD_RUN: Final = "K_SERVICE"
"""Set in functions. Source: Cloud Run's container contract."""
PUBSUB_EMULATOR: Final = "PUBSUB_EMULATOR_HOST"
TOKEN_FILE: Final = "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"  # noqa: S105 - a variable's name
"""gcloud's variable for a file that holds an access token. Only `doctor` honours it."""
REFRESH_S: Final = 20.0
"""Time for each request for a token. Google's default is two minutes."""

Client = TypeVar("Client")


@cache
def credentials() -> Any:
    """Return the application default credentials, with a token.

    Raises PermanentError if the user has to log in, and TemporaryError for transient errors. In a
    function, every error counts as transient. A token is fetched at once, because gRPC would report
    missing or expired credentials as an unavailable service.
    """
    try:
        default_credentials, _ = google.auth.default(scopes=SCOPES)
        if not default_credentials.valid:
            default_credentials.refresh(partial(Request(), timeout=REFRESH_S))
    except GoogleAuthError as error:
        is_transient = (
            error.retryable or isinstance(error, TransportError) or ON_CLOUD_RUN in os.environ
        )
        family = TemporaryError if is_transient else PermanentError
        raise family(f"credentials: {error}") from error
    return default_credentials


def caller_token(project: str) -> str:
    """Return the access token of the user of the command line.

    It is that of the application default credentials, or what the file in `TOKEN_FILE` contains.
    Its requests count in the quota of `project`: Google refuses a user's own credentials without
    one. Raises google.auth's errors.
    """
    file = os.environ.get(TOKEN_FILE)
    if file:
        return Path(file).read_text(encoding="utf-8").strip()
    default_credentials, _ = google.auth.default(scopes=SCOPES, quota_project_id=project)
    if not default_credentials.valid:
        default_credentials.refresh(partial(Request(), timeout=REFRESH_S))
    return str(default_credentials.token)


def firestore_client(project: str) -> firestore.Client:
    """Return the client of the installation's database."""
    from google.cloud import firestore

    is_emulated = "FIRESTORE_EMULATOR_HOST" in os.environ
    # Firestore's client makes anonymous credentials for an emulator by itself; Storage's does not.
    own_credentials = None if is_emulated else credentials()
    return firestore.Client(project, own_credentials, database=name_in_installation("(default)"))


def publisher() -> PublisherClient:
    """Return the generated client, whose `publish` returns when the message is stored.

    `pubsub_v1.PublisherClient` would collect messages on a background thread, and Cloud Run
    suspends the threads of a function after its response.
    """
    from google.pubsub_v1.services.publisher import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    return PublisherClient(**_pubsub_options(PublisherGrpcTransport))


def subscriber() -> SubscriberClient:
    """Return the generated client for pull subscriptions."""
    from google.pubsub_v1.services.subscriber import SubscriberClient
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

    return SubscriberClient(**_pubsub_options(SubscriberGrpcTransport))


def _pubsub_options(transport: Callable[..., object]) -> dict[str, Any]:
    """Return credentials for Google's service, or a channel to the emulator.

    The channel has no limit of size, as Google's own has none: a dead letter may have 10 MB.
    """
    emulator = os.environ.get(PUBSUB_EMULATOR)
    if not emulator:
        return {"credentials": credentials()}
    import grpc

    channel = grpc.insecure_channel(emulator, options=[("grpc.max_receive_message_length", -1)])
    return {"transport": transport(channel=channel)}


def storage_client() -> storage.Client:
    """Return the client of Cloud Storage, for the buckets of any project."""
    from google.cloud import storage

    is_emulated = "STORAGE_EMULATOR_HOST" in os.environ
    own_credentials = AnonymousCredentials() if is_emulated else credentials()
    return storage.Client(project=None, credentials=own_credentials)


def logging_client(project: str, endpoint: str, timeout_s: float) -> cloud_logging.Client:
    """Return the HTTP client: the gRPC one has no deadline for a write, and the local stack's
    emulator supports only HTTP.
    """
    from google.cloud import logging as cloud_logging

    options = ClientOptions(api_endpoint=endpoint) if endpoint else None
    return cloud_logging.Client(
        project=project,
        credentials=AnonymousCredentials() if endpoint else credentials(),
        client_options=options,
        _http=session(endpoint, timeout_s),
        _use_grpc=False,
    )


def rest_client(
    client: Callable[..., Client], endpoint: str, *, quota_project: str = "", **options: object
) -> Client:
    """Return a generated client, such as `compute_v1.InstancesClient`.

    `endpoint` empty: Google's. `quota_project`: for an API that refuses a user's own credentials
    without a project whose quota counts; those of service accounts have one.
    """
    if endpoint:
        options["credentials"] = AnonymousCredentials()
        options["client_options"] = ClientOptions(api_endpoint=endpoint.rstrip("/"))
    else:
        ours = credentials()
        is_users = hasattr(ours, "refresh_token")  # of all kinds, only a user's have one
        if quota_project and is_users:
            ours = ours.with_quota_project(quota_project)
        options["credentials"] = ours
    return client(**options)


def session(endpoint: str, timeout_s: float, token: str = "") -> Session:
    """Return a session for calls without a client library. Each module that uses one says why.

    An emulator (`endpoint` is not empty) gets no credentials. A `token` replaces our own
    credentials, also for an emulator.
    """
    if token:
        from google.oauth2.credentials import Credentials

        # A token alone cannot be refreshed: its 401 goes to the caller.
        return Session(Credentials(token=token), timeout_s, refresh_status_codes=())
    return Session(AnonymousCredentials() if endpoint else credentials(), timeout_s)


class Session(AuthorizedSession):
    """An AuthorizedSession in which no request takes longer than `timeout_s`."""

    def __init__(self, session_credentials: object, timeout_s: float, **options: object) -> None:
        super().__init__(session_credentials, **options)  # type: ignore[no-untyped-call]
        self._timeout_s = timeout_s

    def request(self, method: str, url: str, **options: Any) -> Any:  # type: ignore[override]
        options["timeout"] = self._timeout_s
        return super().request(method, url, **options)  # type: ignore[no-untyped-call]
