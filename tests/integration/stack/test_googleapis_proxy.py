"""The googleapis proxy as a process, in front of a real fake-gcs-server."""

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

from tests.support.serving import serving
from trainmaster_emulators.services import googleapis_proxy, storage_forwarder

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


def start_proxy(storage: str, state_dir: Path, *options: str) -> Proxy:
    command = [
        sys.executable,
        "-m",
        "trainmaster_emulators.services.googleapis_proxy",
        "--port",
        "0",
        "--storage",
        f"http://{storage}",
        *options,
    ]
    process = subprocess.Popen(
        [*command, "--state-dir", str(state_dir)], stdout=subprocess.PIPE, text=True
    )
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
    requests.post(
        f"http://{storage_emulator}/storage/v1/b?project=p", json={"name": BUCKET}, timeout=10
    )
    yield running
    assert stop_proxy(running) == 0


@pytest.fixture
def session(proxy: Proxy) -> Iterator[requests.Session]:
    with proxy.session as session:
        yield session


def upload(session: requests.Session, name: str, content: Any) -> dict[str, Any]:
    url = f"{JSON_API}/upload/storage/v1/b/{BUCKET}/o"
    response = session.post(
        url, params={"uploadType": "media", "name": name}, data=content, timeout=10
    )
    response.raise_for_status()
    stored: dict[str, Any] = response.json()
    return stored


def test_object_written_through_the_proxy_can_be_read_and_listed(session: requests.Session) -> None:
    stored = upload(session, "dir/one.txt", b"hello")
    assert {"size": "5", "name": "dir/one.txt"}.items() <= stored.items()
    media = session.get(
        f"{JSON_API}/storage/v1/b/{BUCKET}/o/dir%2Fone.txt", params={"alt": "media"}, timeout=10
    )
    assert media.content == b"hello"
    listed = session.get(
        f"{JSON_API}/storage/v1/b/{BUCKET}/o",
        params={"prefix": "dir", "delimiter": "/"},
        timeout=10,
    ).json()
    assert listed["prefixes"] == ["dir/"]


@pytest.mark.parametrize("path", ["dir%2Ftwo.bin", "dir/two.bin"])
def test_xml_address_returns_the_object_and_its_ranges(
    session: requests.Session, path: str
) -> None:
    upload(session, "dir/two.bin", bytes(range(100)))
    url = f"https://storage.googleapis.com/{BUCKET}/{path}"
    assert session.get(url, timeout=10).content == bytes(range(100))
    part = session.get(url, headers={"Range": "bytes=10-19"}, timeout=10)
    assert (part.status_code, part.content) == (206, bytes(range(10, 20)))
    assert session.head(url, timeout=10).headers["Content-Length"] == "100"


def test_missing_object_is_404_at_both_addresses(session: requests.Session) -> None:
    assert (
        session.get(f"https://storage.googleapis.com/{BUCKET}/none", timeout=10).status_code == 404
    )
    assert session.get(f"{JSON_API}/storage/v1/b/{BUCKET}/o/none", timeout=10).status_code == 404


@pytest.mark.parametrize(
    "url",
    [
        "https://storage.googleapis.com/cloud-samples-data/census/data.csv",
        "https://cloud-samples-data.storage.googleapis.com/census/data.csv",
        f"{JSON_API}/storage/v1/b/cloud-samples-data/o/census%2Fdata.csv?alt=media",
        f"{JSON_API}/storage/v1/b/cloud-samples-data/o",
    ],
)
def test_missing_bucket_is_404_that_names_the_way_to_provide_it(
    session: requests.Session, url: str
) -> None:
    response = session.get(url)
    assert response.status_code == 404
    expected = "trainmaster local up --public-bucket cloud-samples-data=DIR"
    assert expected in response.reason, "urllib shows nothing but the reason"
    assert expected in response.json()["error"]["message"]


def test_resumable_upload_continues_through_the_proxy(session: requests.Session) -> None:
    started = session.post(
        f"{JSON_API}/upload/storage/v1/b/{BUCKET}/o",
        params={"uploadType": "resumable", "name": "r"},
        timeout=10,
    )
    location = started.headers["Location"]
    assert location.startswith(f"{JSON_API}/upload/")
    half = session.put(
        location, data=b"a" * 10, headers={"Content-Range": "bytes 0-9/*"}, timeout=10
    )
    assert half.status_code == 308
    done = session.put(
        location, data=b"b" * 10, headers={"Content-Range": "bytes 10-19/20"}, timeout=10
    )
    assert done.status_code == 200
    content = session.get(f"https://storage.googleapis.com/{BUCKET}/r", timeout=10).content
    assert content == b"a" * 10 + b"b" * 10


def test_large_and_chunked_bodies_arrive_complete(session: requests.Session) -> None:
    large = bytes(range(256)) * 40_000
    upload(session, "large", large)
    assert (
        session.get(f"https://storage.googleapis.com/{BUCKET}/large", timeout=30).content == large
    )
    stored = upload(session, "chunked", iter([b"one", b"two" * 100_000, b"three"]))
    assert stored["size"] == str(3 + 300_000 + 5)


def test_one_connection_serves_many_requests(proxy: Proxy) -> None:
    context = ssl.create_default_context(cafile=str(proxy.state_dir / "ca.pem"))
    client = http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=10, context=context)
    client.set_tunnel("www.googleapis.com")
    client.connect()
    client.auto_open = False  # a connection that the proxy closes is an error
    for _ in range(200):
        client.request("GET", f"/storage/v1/b/{BUCKET}")
        response = client.getresponse()
        assert (response.status, json.loads(response.read())["name"]) == (200, BUCKET)
    client.close()


# The bucket has more fields than its layout; TensorFlow reads hierarchicalNamespace only.
@pytest.mark.nonconforming
def test_storage_layout_of_a_bucket_is_the_bucket(session: requests.Session) -> None:
    layout = session.get(
        f"{JSON_API}/storage/v1/b/{BUCKET}/storageLayout?fields=location", timeout=10
    )
    assert layout.status_code == 200
    assert layout.json()["locationType"] == "region"
    assert "hierarchicalNamespace" not in layout.json()
    assert (
        session.get(f"{JSON_API}/storage/v1/b/no-such/storageLayout", timeout=10).status_code == 404
    )


def test_upload_that_expects_100_continue_gets_it_at_once(proxy: Proxy) -> None:
    context = ssl.create_default_context(cafile=str(proxy.state_dir / "ca-cert.pem"))
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as plain:
        plain.sendall(
            b"CONNECT www.googleapis.com:443 HTTP/1.1\r\nHost: www.googleapis.com:443\r\n\r\n"
        )
        assert plain.recv(1024).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(plain, server_hostname="www.googleapis.com") as tls:
            path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=expected"
            head = (
                f"POST {path} HTTP/1.1\r\nHost: www.googleapis.com\r\nContent-Length: 2\r\nExpect:"
                " 100-continue\r\n\r\n"
            )
            tls.sendall(head.encode())
            assert tls.recv(1024).startswith(b"HTTP/1.1 100 ")
            tls.sendall(b"ok")
            assert tls.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_google_host_without_storage_is_refused(session: requests.Session) -> None:
    response = session.post(
        "https://pubsub.googleapis.com/v1/projects/p/topics/t:publish", json={}, timeout=10
    )
    assert response.status_code == 501
    assert "pubsub.googleapis.com" in response.json()["error"]["message"]


def test_plain_http_proxying_is_refused_with_a_hint(proxy: Proxy) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": f"http://127.0.0.1:{proxy.port}"}
        response = session.get("http://example.invalid/", timeout=10)
    assert response.status_code == 405
    assert "https_proxy" in response.text


class Echo(http.server.BaseHTTPRequestHandler):
    """Returns the requested path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("X-Called", self.headers["Host"])
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_other_host_is_tunnelled_unchanged(proxy: Proxy) -> None:
    target = http.server.HTTPServer(("127.0.0.1", 0), Echo)
    with serving(target), socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as tunnel:
        tunnel.sendall(f"CONNECT 127.0.0.1:{target.server_port} HTTP/1.1\r\n\r\n".encode())
        assert tunnel.recv(1024).startswith(b"HTTP/1.1 200")
        tunnel.sendall(b"GET /as/it/is HTTP/1.0\r\n\r\n")
        with tunnel.makefile("rb") as response:
            assert response.read().endswith(b"\r\n\r\n/as/it/is")


def test_cloud_logging_is_answered_by_its_emulator(storage_emulator: str, tmp_path: Path) -> None:
    """The same connection to the proxy serves Cloud Storage, too: clients choose by the Host
    header.
    """
    target = http.server.HTTPServer(("127.0.0.1", 0), Echo)
    with serving(target):
        proxy = start_proxy(
            storage_emulator, tmp_path, "--logging", f"127.0.0.1:{target.server_port}"
        )
        with proxy.session as session:
            url = "https://logging.googleapis.com/v2/entries:list"
            entries = session.get(url, timeout=10)
            assert entries.text == "/v2/entries:list"
            assert entries.headers["X-Called"] == f"127.0.0.1:{target.server_port}", (
                "emulators refuse other names"
            )
            for host, status in (("www.googleapis.com", 404), ("logging.googleapis.com", 200)):
                answer = session.get(
                    f"{JSON_API}/storage/v1/b/missing", headers={"Host": host}, timeout=10
                )
                assert answer.status_code == status
    assert stop_proxy(proxy) == 0


def test_unreachable_host_is_502(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as tunnel:
        tunnel.sendall(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")
        assert tunnel.recv(1024).startswith(b"HTTP/1.1 502")


def test_unreachable_storage_server_is_503_which_clients_retry(tmp_path: Path) -> None:
    proxy = start_proxy("127.0.0.1:1", tmp_path)
    with proxy.session as session:
        assert session.get(f"{JSON_API}/storage/v1/b/x", timeout=10).status_code == 503
    assert stop_proxy(proxy) == 0


def test_restarted_proxy_keeps_its_authority(storage_emulator: str, tmp_path: Path) -> None:
    first = start_proxy(storage_emulator, tmp_path)
    authority = (tmp_path / "ca-cert.pem").read_bytes()
    assert stop_proxy(first) == 0
    second = start_proxy(storage_emulator, tmp_path)
    assert (tmp_path / "ca-cert.pem").read_bytes() == authority
    assert (tmp_path / "ca.pem").read_bytes().startswith(authority)
    assert (tmp_path / "ca-key.pem").stat().st_mode & 0o777 == 0o600
    assert stop_proxy(second) == 0


def test_bundle_contains_each_authority_once(proxy: Proxy) -> None:
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
def test_only_locations_of_the_storage_server_are_rewritten(location: str, public: str) -> None:
    assert (
        storage_forwarder.public_location(location, "www.googleapis.com", ("127.0.0.1", 4443))
        == public
    )


@pytest.mark.parametrize(
    ("method", "host", "path", "expected"),
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
        (
            "GET",
            "www.googleapis.com",
            "/storage/v1/b/b/o/storageLayout",
            "/storage/v1/b/b/o/storageLayout",
        ),
    ],
)
def test_only_two_kinds_of_paths_are_changed(
    method: str, host: str, path: str, expected: str
) -> None:
    assert storage_forwarder.storage_path(method, host, path) == expected


def test_storage_option_must_be_a_plain_http_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        googleapis_proxy.main(
            ["--port", "0", "--storage", "https://x:1", "--state-dir", str(tmp_path)]
        )
    assert "http://HOST:PORT" in capsys.readouterr().err


TENSORFLOW_PROGRAM = """
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
result = {
    "walked": [
        [path.removeprefix(root), sorted(folders), sorted(names)]
        for path, folders, names in files.walk(root)
    ],
    "read": [read(f"{root}/c/copy.txt"), read(f"{root}/c/b/two words & more.txt")],
    "exists": [files.exists(f"{root}/c"), files.exists(f"{root}/c/one.txt")],
}
value = tf.Variable([1.0, 2.0])
checkpoint = tf.train.Checkpoint(value=value)
manager = tf.train.CheckpointManager(checkpoint, f"{root}/checkpoints", max_to_keep=2)
for _ in range(3):
    value.assign_add([1.0, 1.0])
    manager.save()
value.assign([0.0, 0.0])
manager.restore_or_initialize()
result["restored"] = value.numpy().tolist()
files.rmtree(root)
result["left"] = [names for *_, names in files.walk(root)]
print(json.dumps(result))
"""


# `make test` covers it by jobs that write checkpoints and models.
@pytest.mark.heavy(
    fact="TensorFlow reads and writes gs:// paths", quick="Google's clients in the same module"
)
def test_tensorflow_reads_and_writes_gs_paths(
    proxy: Proxy, tensorflow_image: Path, metadata_server: str, tmp_path: Path
) -> None:
    environment = {
        "HOME": str(tmp_path),
        "https_proxy": f"http://127.0.0.1:{proxy.port}",
        "no_proxy": "127.0.0.1,localhost",
        "CURL_CA_BUNDLE": str(proxy.state_dir / "ca.pem"),
        "GCE_METADATA_HOST": metadata_server,
    }
    command = [
        str(tensorflow_image / "bin" / "python"),
        "-c",
        TENSORFLOW_PROGRAM,
        f"gs://{BUCKET}/tensorflow",
    ]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    result = json.loads(ran.stdout)
    assert result == {
        "walked": [
            ["", ["c/"], []],
            ["/c/", ["b/"], ["copy.txt"]],
            ["/c/b/", [], ["two words & more.txt"]],
        ],
        "read": ["uno", "2"],
        "exists": [True, False],
        "restored": [4.0, 5.0],
        "left": [[]],
    }


class Metadata(http.server.BaseHTTPRequestHandler):
    """The part of a VM's metadata server that TensorFlow uses: an access token."""

    def do_GET(self) -> None:
        is_token = self.path.endswith("/instance/service-accounts/default/token")
        body = (
            json.dumps({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}).encode()
            if is_token
            else b""
        )
        self.send_response(200 if is_token else 404)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


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
