"""A package index like PyPI, over real HTTP, which records the names that pip requests."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PackageIndex:
    """The index with its server. It has wheels only."""

    def __init__(self) -> None:
        self.requested: list[str] = []
        """Names of the projects whose page was requested."""
        self._wheels: dict[str, dict[str, bytes]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        self._thread.start()

    def add(self, name: str, version: str, wheel: bytes) -> None:
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        self._wheels.setdefault(name, {})[file] = wheel

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def page(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body. Source: PEP 503."""
        _, folder, *rest = path.split("/")
        if folder == "simple":
            self.requested.append(rest[0])
            links = "".join(
                f'<a href="/files/{rest[0]}/{file}">{file}</a>'
                for file in self._wheels.get(rest[0], {})
            )
            status = 200 if links else 404
            page = f"<!DOCTYPE html><html><body>{links}</body></html>"
            return status, "text/html", page.encode()
        content = self._wheels.get(rest[0], {}).get(rest[1])
        if content is None:
            return 404, "text/plain", b""
        return 200, "application/octet-stream", content


def _handler_of(index: PackageIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content_type, body = index.page(self.path)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
