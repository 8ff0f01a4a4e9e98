"""The agent's calls to Google's APIs and the metadata server, and their retries."""

from __future__ import annotations

import itertools

import pytest

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.google_http.metadata_server import MetadataServer

from .support.cloud import Cloud


def test_backoffs_grow_up_to_the_cap() -> None:
    cap_s, least_jitter = 30.0, 0.5
    waits = list(itertools.islice(backoffs(cap_s, base_s=0.5), 20))
    assert all(0.5 * least_jitter <= wait <= cap_s for wait in waits)
    at_the_cap = waits[7:]  # after seven doublings of half a second
    assert min(at_the_cap) >= cap_s * least_jitter


def test_api_calls_use_the_vms_token_and_request_it_once(cloud: Cloud) -> None:
    google = GoogleApi(
        emulator=None, real=f"http://{cloud.host}", metadata=MetadataServer(cloud.host)
    )
    for _ in range(2):
        google.call("/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}')
    requested = [path for path, _ in cloud.requests if path.endswith("/token")]
    sent = [
        headers.get("Authorization")
        for path, headers in cloud.requests
        if path.endswith(":publish")
    ]
    assert (len(requested), sent) == (1, ["Bearer secret", "Bearer secret"])


def test_token_about_to_expire_is_replaced(cloud: Cloud) -> None:
    cloud.token_lasts_s = 59
    metadata = MetadataServer(cloud.host)
    metadata.access_token()
    metadata.access_token()
    assert len(cloud.requests) == 2


def test_rejected_token_is_replaced(cloud: Cloud) -> None:
    google = GoogleApi(
        emulator=None, real=f"http://{cloud.host}", metadata=MetadataServer(cloud.host)
    )
    cloud.publish_status = 401
    for _ in range(2):
        with pytest.raises(HttpError, match="401"):
            google.call("/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}')
    assert len([path for path, _ in cloud.requests if path.endswith("/token")]) == 2


def test_emulator_gets_no_token(cloud: Cloud) -> None:
    GoogleApi(cloud.host, "https://pubsub.googleapis.com", MetadataServer(cloud.host)).call(
        "/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}'
    )
    assert [path for path, _ in cloud.requests] == ["/v1/projects/p/topics/t:publish"]
    assert "Authorization" not in cloud.requests[0][1]
