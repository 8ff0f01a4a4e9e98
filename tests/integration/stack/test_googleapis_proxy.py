"""The googleapis proxy, as its own process, in front of a real fake-gcs-server."""

from __future__ import annotations

import http.client
import http.server
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from emulators.services import googleapis_proxy
from tests.support.serving import serving

JSON_API = "https://www.googleapis.com"
BUCKET = "proxied"


@dataclass(frozen=True)
class Proxy:
    """A running proxy."""

    port: int
    state_dir: Path
    process: subprocess.Popen[str]

    @property
    def session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.proxies = {"https": f"http://127.0.0.1:{self.port}"}
        session.verify = str(self.state_dir / "ca.pem")
        return session


def start_proxy(storage: str, state_dir: Path) -> Proxy:
    command = [
        sys.executable,
        "-m",
        "emulators.services.googleapis_proxy",
        "--port",
        "0",
        "--storage",
        f"http://{storage}",
    ]
    process = subprocess.Popen([*command, "--state-dir", str(state_dir)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("googleapis proxy ready on 127.0.0.1:"), ready
    return Proxy(int(ready.split(":")[1].split(",")[0]), state_dir, process)


def stop_proxy(proxy: Proxy) -> int:
    proxy.process.send_signal(signal.SIGTERM)
    assert proxy.process.stdout is not None
    with proxy.process.stdout:
        return proxy.process.wait(10)


@pytest.fixture(scope="module")
def proxy(storage_emulator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    running = start_proxy(storage_emulator, tmp_path_factory.mktemp("googleapis"))
    requests.post(f"http://{storage_emulator}/storage/v1/b?project=p", json={"name": BUCKET}, timeout=10)
    yield running
    assert stop_proxy(running) == 0


@pytest.fixture
def session(proxy: Proxy) -> Iterator[requests.Session]:
    with proxy.session as session:
        yield session


def upload(session: requests.Session, name: str, content: Any) -> dict[str, Any]:
    url = f"{JSON_API}/upload/storage/v1/b/{BUCKET}/o"
    answer = session.post(url, params={"uploadType": "media", "name": name}, data=content, timeout=10)
    answer.raise_for_status()
    stored: dict[str, Any] = answer.json()
    return stored


def test_an_object_written_through_the_proxy_is_read_back_and_listed(session: requests.Session) -> None:
    stored = upload(session, "dir/one.txt", b"hello")
    assert {"size": "5", "name": "dir/one.txt"}.items() <= stored.items()
    media = session.get(f"{JSON_API}/storage/v1/b/{BUCKET}/o/dir%2Fone.txt", params={"alt": "media"}, timeout=10)
    assert media.content == b"hello"
    listed = session.get(
        f"{JSON_API}/storage/v1/b/{BUCKET}/o", params={"prefix": "dir", "delimiter": "/"}, timeout=10
    ).json()
    assert listed["prefixes"] == ["dir/"]


@pytest.mark.parametrize("path", ["dir%2Ftwo.bin", "dir/two.bin"])
def test_the_xml_address_gives_the_object_and_its_ranges(session: requests.Session, path: str) -> None:
    upload(session, "dir/two.bin", bytes(range(100)))
    url = f"https://storage.googleapis.com/{BUCKET}/{path}"
    assert session.get(url, timeout=10).content == bytes(range(100))
    part = session.get(url, headers={"Range": "bytes=10-19"}, timeout=10)
    assert (part.status_code, part.content) == (206, bytes(range(10, 20)))
    assert session.head(url, timeout=10).headers["Content-Length"] == "100"


def test_a_missing_object_is_404_at_every_address(session: requests.Session) -> None:
    assert session.get(f"https://storage.googleapis.com/{BUCKET}/none", timeout=10).status_code == 404
    assert session.get(f"{JSON_API}/storage/v1/b/{BUCKET}/o/none", timeout=10).status_code == 404


def test_a_resumable_upload_comes_back_through_the_proxy(session: requests.Session) -> None:
    begun = session.post(
        f"{JSON_API}/upload/storage/v1/b/{BUCKET}/o", params={"uploadType": "resumable", "name": "r"}, timeout=10
    )
    location = begun.headers["Location"]
    assert location.startswith(f"{JSON_API}/upload/")
    half = session.put(location, data=b"a" * 10, headers={"Content-Range": "bytes 0-9/*"}, timeout=10)
    assert half.status_code == 308
    done = session.put(location, data=b"b" * 10, headers={"Content-Range": "bytes 10-19/20"}, timeout=10)
    assert done.status_code == 200
    content = session.get(f"https://storage.googleapis.com/{BUCKET}/r", timeout=10).content
    assert content == b"a" * 10 + b"b" * 10


def test_a_large_and_a_chunked_body_arrive_whole(session: requests.Session) -> None:
    large = bytes(range(256)) * 40_000
    upload(session, "large", large)
    assert session.get(f"https://storage.googleapis.com/{BUCKET}/large", timeout=30).content == large
    stored = upload(session, "chunked", iter([b"one", b"two" * 100_000, b"three"]))
    assert stored["size"] == str(3 + 300_000 + 5)


def test_one_connection_carries_many_requests(proxy: Proxy) -> None:
    context = ssl.create_default_context(cafile=str(proxy.state_dir / "ca.pem"))
    client = http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=10, context=context)
    client.set_tunnel("www.googleapis.com")
    client.connect()
    client.auto_open = False  # a connection that the proxy closed is an error now
    for _ in range(200):
        client.request("GET", f"/storage/v1/b/{BUCKET}")
        answer = client.getresponse()
        assert (answer.status, json.loads(answer.read())["name"]) == (200, BUCKET)
    client.close()


def test_the_layout_of_a_bucket_is_the_bucket(session: requests.Session) -> None:
    layout = session.get(f"{JSON_API}/storage/v1/b/{BUCKET}/storageLayout?fields=location", timeout=10)
    assert layout.status_code == 200
    assert layout.json()["locationType"] == "region"
    assert "hierarchicalNamespace" not in layout.json()
    assert session.get(f"{JSON_API}/storage/v1/b/no-such/storageLayout", timeout=10).status_code == 404


def test_an_upload_that_expects_to_be_told_to_continue_is_told_at_once(proxy: Proxy) -> None:
    context = ssl.create_default_context(cafile=str(proxy.state_dir / "ca-cert.pem"))
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as plain:
        plain.sendall(b"CONNECT www.googleapis.com:443 HTTP/1.1\r\nHost: www.googleapis.com:443\r\n\r\n")
        assert plain.recv(1024).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(plain, server_hostname="www.googleapis.com") as tls:
            path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=expected"
            head = (
                f"POST {path} HTTP/1.1\r\nHost: www.googleapis.com\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
            )
            tls.sendall(head.encode())
            assert tls.recv(1024).startswith(b"HTTP/1.1 100 ")
            tls.sendall(b"ok")
            assert tls.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_host_of_google_without_storage_is_refused_instead_of_reached(session: requests.Session) -> None:
    answer = session.post("https://pubsub.googleapis.com/v1/projects/p/topics/t:publish", json={}, timeout=10)
    assert answer.status_code == 501
    assert "pubsub.googleapis.com" in answer.json()["error"]["message"]


def test_plain_http_is_refused_with_the_reason(proxy: Proxy) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": f"http://127.0.0.1:{proxy.port}"}
        answer = session.get("http://example.invalid/", timeout=10)
    assert answer.status_code == 405
    assert "https_proxy" in answer.text


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the path it was asked for."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


def test_another_host_is_tunnelled_untouched(proxy: Proxy) -> None:
    other = http.server.HTTPServer(("127.0.0.1", 0), Echo)
    with serving(other), socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as tunnel:
        tunnel.sendall(f"CONNECT 127.0.0.1:{other.server_port} HTTP/1.1\r\n\r\n".encode())
        assert tunnel.recv(1024).startswith(b"HTTP/1.1 200")
        tunnel.sendall(b"GET /as/it/is HTTP/1.0\r\n\r\n")
        with tunnel.makefile("rb") as answer:
            assert answer.read().endswith(b"\r\n\r\n/as/it/is")


def test_a_host_that_cannot_be_reached_is_502(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as tunnel:
        tunnel.sendall(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")
        assert tunnel.recv(1024).startswith(b"HTTP/1.1 502")


def test_a_storage_server_that_is_gone_is_503_which_clients_retry(tmp_path: Path) -> None:
    lost = start_proxy("127.0.0.1:1", tmp_path)
    with lost.session as session:
        assert session.get(f"{JSON_API}/storage/v1/b/x", timeout=10).status_code == 503
    assert stop_proxy(lost) == 0


def test_a_restarted_proxy_keeps_its_authority(storage_emulator: str, tmp_path: Path) -> None:
    first = start_proxy(storage_emulator, tmp_path)
    authority = (tmp_path / "ca-cert.pem").read_bytes()
    assert stop_proxy(first) == 0
    second = start_proxy(storage_emulator, tmp_path)
    assert (tmp_path / "ca-cert.pem").read_bytes() == authority
    assert (tmp_path / "ca.pem").read_bytes().startswith(authority)
    assert (tmp_path / "ca-key.pem").stat().st_mode & 0o777 == 0o600
    assert stop_proxy(second) == 0


def test_the_bundle_holds_each_authority_once(proxy: Proxy) -> None:
    blocks = (proxy.state_dir / "ca.pem").read_text().split("-----BEGIN CERTIFICATE-----")[1:]
    assert len(blocks) > 50  # ours and the machine's
    assert len(set(blocks)) == len(blocks)


@pytest.mark.parametrize(
    ("location", "public"),
    [
        ("http://127.0.0.1:4443/upload?id=1", "https://www.googleapis.com/upload?id=1"),
        ("http://localhost:4443/upload?id=1", "https://www.googleapis.com/upload?id=1"),
        ("http://www.googleapis.com/upload?id=1", "https://www.googleapis.com/upload?id=1"),
        ("/upload?id=1", "/upload?id=1"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
    ],
)
def test_only_addresses_of_the_server_itself_are_rewritten(location: str, public: str) -> None:
    assert googleapis_proxy.public_location(location, "www.googleapis.com", ("127.0.0.1", 4443)) == public


@pytest.mark.parametrize(
    ("method", "host", "path", "asked"),
    [
        (
            "GET",
            "storage.googleapis.com",
            "/b/d/o?generation=1",
            "/download/storage/v1/b/b/o/d%2Fo?alt=media&generation=1",
        ),
        ("PUT", "storage.googleapis.com", "/b/d/o", "/b/d/o"),
        ("GET", "storage.googleapis.com", "/storage/v1/b/b/o/x", "/storage/v1/b/b/o/x"),
        ("GET", "storage.googleapis.com", "/b", "/b"),
        ("GET", "www.googleapis.com", "/storage/v1/b/b/storageLayout", "/storage/v1/b/b"),
        ("GET", "www.googleapis.com", "/storage/v1/b/b/o/storageLayout", "/storage/v1/b/b/o/storageLayout"),
    ],
)
def test_only_two_paths_are_asked_for_otherwise(method: str, host: str, path: str, asked: str) -> None:
    assert googleapis_proxy.storage_path(method, host, path) == asked


def test_the_address_of_the_storage_server_must_be_plain_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        googleapis_proxy.main(["--port", "0", "--storage", "https://x:1", "--state-dir", str(tmp_path)])
    assert "http://HOST:PORT" in capsys.readouterr().err


TENSORFLOW_STORY = """
import json, sys
import tensorflow as tf
files, root = tf.io.gfile, sys.argv[1]
def write(path, text):
    with files.GFile(path, "w") as file:
        file.write(text)
def read(path):
    with files.GFile(path, "r") as file:
        return file.read()
write(f"{root}/a/one.txt", "1")
write(f"{root}/a/one.txt", "uno")
write(f"{root}/a/b/two words & more.txt", "2")
files.rename(f"{root}/a", f"{root}/c")
files.copy(f"{root}/c/one.txt", f"{root}/c/copy.txt")
files.remove(f"{root}/c/one.txt")
said = {
    "walked": [[path.removeprefix(root), sorted(folders), sorted(names)] for path, folders, names in files.walk(root)],
    "read": [read(f"{root}/c/copy.txt"), read(f"{root}/c/b/two words & more.txt")],
    "exists": [files.exists(f"{root}/c"), files.exists(f"{root}/c/one.txt")],
}
value = tf.Variable([1.0, 2.0])
manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), f"{root}/checkpoints", max_to_keep=2)
for _ in range(3):
    value.assign_add([1.0, 1.0])
    manager.save()
value.assign([0.0, 0.0])
manager.restore_or_initialize()
said["restored"] = value.numpy().tolist()
files.rmtree(root)
said["left"] = [names for *_, names in files.walk(root)]
print(json.dumps(said))
"""


@pytest.mark.heavy  # in `make test` whole jobs keep checkpoints and models there
def test_tensorflows_own_gs_paths_work(
    proxy: Proxy, tensorflow_image: Path, metadata_server: str, tmp_path: Path
) -> None:
    environment = {
        "HOME": str(tmp_path),
        "https_proxy": f"http://127.0.0.1:{proxy.port}",
        "no_proxy": "127.0.0.1,localhost",
        "CURL_CA_BUNDLE": str(proxy.state_dir / "ca.pem"),
        "GCE_METADATA_HOST": metadata_server,
    }
    command = [str(tensorflow_image / "bin" / "python"), "-c", TENSORFLOW_STORY, f"gs://{BUCKET}/tensorflow"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    said = json.loads(ran.stdout)
    assert said == {
        "walked": [["", ["c/"], []], ["/c/", ["b/"], ["copy.txt"]], ["/c/b/", [], ["two words & more.txt"]]],
        "read": ["uno", "2"],
        "exists": [True, False],
        "restored": [4.0, 5.0],
        "left": [[]],
    }


class Metadata(http.server.BaseHTTPRequestHandler):
    """As much of a VM's metadata server as TensorFlow asks for: an access token."""

    def do_GET(self) -> None:
        found = self.path.endswith("/instance/service-accounts/default/token")
        body = json.dumps({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}).encode() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def metadata_server() -> Iterator[str]:
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)) as address:
        yield address.removeprefix("http://")


@pytest.fixture(scope="session")
def tensorflow_image() -> Path:
    folder = Path(__file__).resolve().parents[3] / ".images" / "tensorflow"
    if not (folder / "bin" / "python").exists():
        pytest.fail(f"no TensorFlow environment at {folder}: `make setup` builds it")
    return folder
