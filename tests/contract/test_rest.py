"""Calls over REST where the other side has its ways: errors in every form, credentials that end, no answer at all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from urllib3 import ProxyManager

from shared.errors import PermanentError, TemporaryError
from shared.gcp import callers
from shared.gcp.rest import Rest, RestError
from shared.gcp.storage_objects import StorageObjects
from tests.support.serving import serving


@dataclass
class Google:
    """Answers with these, one after the other, and then for ever with the last one. Keeps what it was asked."""

    answers: list[tuple[int, bytes]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    address: str = ""

    def says(self, *answers: tuple[int, Any]) -> None:
        self.answers[:] = [
            (status, said if isinstance(said, bytes) else json.dumps(said).encode()) for status, said in answers
        ]


@pytest.fixture
def google() -> Iterator[Google]:
    made = Google()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            status, said = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            if not status:
                self.close_connection = True  # as where a connection has been idle for too long
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        made.address = address
        yield made


@pytest.fixture
def rest(google: Google) -> Iterator[Rest]:
    made = Rest(google.address, callers.Emulated(), timeout_s=30)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (409, {"error": {"code": 409, "status": "ABORTED", "message": "busy"}}, "ABORTED"),
        (409, [{"error": {"code": 409, "status": "ABORTED", "message": "busy"}}], "ABORTED"),
        (200, [{"found": {}}, {"error": {"code": 409, "status": "ABORTED", "message": "busy"}}], "ABORTED"),
        (404, b"<html>", ""),
        (400, {"error": "a word"}, ""),
    ],
)
def test_a_refusal_is_told_in_googles_word_whatever_form_it_has(
    google: Google, rest: Rest, status: int, said: Any, code: str
) -> None:
    google.says((status, said))
    with pytest.raises(RestError) as refused:
        rest.post("/x", {})
    assert (refused.value.code, refused.value.is_transient) == (code, False)
    assert refused.value.status >= 400
    assert len(google.asked) == 1


def test_trouble_that_passes_soon_is_sat_out_a_dropped_connection_too(google: Google, rest: Rest) -> None:
    google.says((503, b""), (0, b""), (429, b""), (200, {"well": 1}))
    assert rest.post("/x", {}) == {"well": 1}


def test_trouble_that_stays_is_told_as_what_passes(google: Google, rest: Rest) -> None:
    google.says((503, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "down"}}))
    with pytest.raises(RestError, match="down") as refused:
        rest.post("/x", {})
    assert refused.value.is_transient
    assert len(google.asked) == 4


@pytest.mark.parametrize("answers", [[(200, b"<html>")], [(0, b"")]])
def test_who_cannot_be_understood_is_asked_again_later(google: Google, rest: Rest, answers: list[Any]) -> None:
    google.says(*answers)
    with pytest.raises(TemporaryError):
        rest.post("/x", {})


def test_one_try_is_one_call(google: Google) -> None:
    google.says((503, b""))
    rest = Rest(google.address, callers.Emulated(), timeout_s=30, tries=1)
    with pytest.raises(RestError):
        rest.post("/x", {})
    rest.close()
    assert len(google.asked) == 1


def token(name: str) -> tuple[int, dict[str, object]]:
    return 200, {"access_token": name, "expires_in": 1000, "token_type": "Bearer"}


def test_a_functions_token_is_asked_for_shortly_before_it_ends(google: Google) -> None:
    now = [0.0]
    service = callers.Service(google.address.removeprefix("http://"), clock=lambda: now[0])
    google.says(token("one"), token("two"), token("three"))
    seen = []
    for now[0] in (0.0, 700.0, 776.0, 777.0):
        seen.append(service.headers()["Authorization"])
    seen.append(service.headers(anew=True)["Authorization"])
    assert seen == ["Bearer one", "Bearer one", "Bearer two", "Bearer two", "Bearer three"]
    (path, headers), *_ = google.asked
    assert path == "/computeMetadata/v1/instance/service-accounts/default/token"
    assert headers["metadata-flavor"] == "Google"


@pytest.mark.parametrize("answer", [(404, b"no"), (200, b"no"), (200, {}), (0, b"")])
def test_a_metadata_server_that_has_no_token_is_trouble_that_may_pass(google: Google, answer: tuple[int, Any]) -> None:
    google.says(answer)
    with pytest.raises(TemporaryError, match="metadata server"):
        callers.Service(google.address.removeprefix("http://")).headers()


def test_credentials_that_are_not_accepted_are_had_anew_once(google: Google) -> None:
    google.says(token("stale"), (401, {}), token("fresh"), (200, {"well": 1}), (401, {}))
    rest = Rest(google.address, callers.Service(google.address.removeprefix("http://")), timeout_s=30)
    assert rest.post("/x", {}) == {"well": 1}
    sent = [headers.get("authorization") for path, headers in google.asked if path == "/x"]
    assert sent == ["Bearer stale", "Bearer fresh"]
    google.says((401, {}), token("third"), (401, {}))
    with pytest.raises(RestError, match="401"):
        rest.post("/x", {})
    rest.close()


@pytest.fixture
def key_file(google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account's, named by the environment; its tokens are Google's to give."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "me@p.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "token_uri": f"{google.address}/token",
    }
    path = tmp_path / "key.json"
    path.write_text(json.dumps(account), encoding="utf-8")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "billed")
    return path


@pytest.mark.usefixtures("key_file")
def test_elsewhere_google_auth_finds_the_credentials_and_who_is_billed(google: Google) -> None:
    google.says(token("mine"), token("mine again"))
    own = callers.Own()
    for _ in range(2):
        said = own.headers()
        assert (said["authorization"], said["x-goog-user-project"]) == ("Bearer mine", "billed")
    assert own.headers(anew=True)["authorization"] == "Bearer mine again"


@pytest.mark.usefixtures("key_file")
def test_a_silence_about_credentials_may_pass(google: Google) -> None:
    google.says((0, b""))
    with pytest.raises(TemporaryError, match="credentials"):
        callers.Own().headers()


def test_who_has_to_log_in_is_told_so_and_does_not_wait(google: Google, key_file: Path) -> None:
    google.says((400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}))
    with pytest.raises(PermanentError, match="expired or revoked"):
        callers.Own().headers()
    key_file.unlink()
    with pytest.raises(PermanentError, match="credentials"):
        callers.Own().headers()


def test_who_calls_is_the_function_on_cloud_run_and_the_user_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, kind in (("K_SERVICE", callers.Service), ("", callers.Own)):
        callers.ours.cache_clear()
        monkeypatch.delenv("K_SERVICE", raising=False)
        if variable:
            monkeypatch.setenv(variable, "submit")
        assert isinstance(callers.ours(), kind)
    callers.ours.cache_clear()


def test_google_is_called_through_the_proxy_of_the_environment(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", google.address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    rest = Rest("https://pubsub.googleapis.com", callers.Emulated(), timeout_s=5, tries=1)
    assert rest._pool.connection_from_url("https://pubsub.googleapis.com").proxy is not None
    monkeypatch.setenv("https_proxy", google.address.replace("//", "//me:p%40ss@"))
    named = Rest("https://pubsub.googleapis.com", callers.Emulated(), timeout_s=5)._pool
    assert isinstance(named, ProxyManager)
    assert named.proxy_headers == {"proxy-authorization": "Basic " + base64.b64encode(b"me:p@ss").decode()}
    monkeypatch.setenv("no_proxy", "googleapis.com")
    assert Rest("https://pubsub.googleapis.com", callers.Emulated(), timeout_s=5)._pool.proxy is None
    rest.close()


def test_of_an_object_no_more_is_kept_than_asked_for_though_all_of_it_comes(
    google: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Cloud Storage sends what is stored compressed: it cannot tell where a byte of the content is."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.address)
    google.says((200, b"abcdef"))
    objects = StorageObjects()
    assert objects.read("gs://bucket/x", max_bytes=3) == b"abc"
    google.says((503, b""))
    with pytest.raises(TemporaryError, match="Cloud Storage"):
        objects.read("gs://bucket/x", max_bytes=3)
    google.says((403, {"error": {"code": 403, "message": "not yours"}}))
    with pytest.raises(RestError, match="not yours"):
        objects.read("gs://bucket/x", max_bytes=3)
    objects.close()
