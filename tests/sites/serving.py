"""Publish a built site on loopback: static files, a strict content security policy, and `/recto/` behind a proxy."""

from __future__ import annotations

import base64
import hashlib
import http.client
import mimetypes
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

KEY = "recto_pk_of-the-test"
"""The key in the built pages: the key of a test run takes its place."""
_PROXIED = "/recto/"
_INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
_INLINE_STYLE = re.compile(rb"<style[^>]*>(.*?)</style>|\bstyle=\"([^\"]*)\"", re.DOTALL)
_FORWARDED = {"content-type", "authorization", "x-api-key", "origin", "accept", "if-none-match"}
_PREFLIGHT = {"access-control-request-method", "access-control-request-headers"}
_RETURNED = {"content-type", "etag", "cache-control", "retry-after", "vary", "www-authenticate"}
_PATHS = {
    "docusaurus": ("docusaurus/build", "/"),
    "mkdocs": ("mkdocs/site", "/book/"),
    "docusaurus-static": ("docusaurus/static", "/"),
    "recto": ("recto", "/docs/"),
}
"""The files of each site in the directory of the sites, and its path on its own origin."""


class PublishedSite:
    """A site at its own address, which the browser resolves to the port of this server.

    The policy allows the site's own files, and its inline scripts and styles by their hashes, as a careful
    operator would; the widget gets no exception.
    """

    def __init__(self, name: str, root: Path) -> None:
        folder, self.path = _PATHS[name]
        self.name = name
        self.files = (root / folder).resolve()
        self.collection = f"{name}-house"
        self.origin = f"http://{name}.localhost"
        self.url = self.origin + self.path
        self.key = KEY
        self.service_port = 0
        self.requests: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            do_POST = do_OPTIONS = do_GET  # noqa: N815 - the base class has these names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        file = self.file(path)
        if file is None and path.startswith(_PROXIED):
            self._forward(request)
            return
        if file is None:
            self._send(request, 404, {"Content-Type": "text/plain"}, b"not found")
            return
        content = file.read_bytes()
        headers = {"Content-Type": mimetypes.guess_type(file.name)[0] or "application/octet-stream"}
        if file.suffix == ".html":
            content = content.replace(KEY.encode(), self.key.encode())
            headers["Content-Security-Policy"] = policy(content)
        self._send(request, 200, headers, content)

    def file(self, path: str) -> Path | None:
        """Return the file at a path of the origin."""
        if not path.startswith(self.path):
            return None
        file = (self.files / path.removeprefix(self.path)).resolve()
        file = file / "index.html" if file.is_dir() else file
        return file if file.is_relative_to(self.files) and file.is_file() else None

    def _forward(self, request: BaseHTTPRequestHandler) -> None:
        """Pass a request on to the service, as nginx does with `proxy_pass` and a path."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name: request.headers[name] for name in _FORWARDED | _PREFLIGHT if name in request.headers}
        headers["X-Forwarded-For"] = request.client_address[0]
        path = request.path.removeprefix(_PROXIED.rstrip("/"))
        self.requests.append((request.command, path))
        connection = http.client.HTTPConnection("127.0.0.1", self.service_port, timeout=60)
        try:
            connection.request(request.command, path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
        except OSError:
            self._send(request, 502, {"Content-Type": "text/html"}, b"<h1>502 Bad Gateway</h1>")
            return
        finally:
            connection.close()
        returned = {name: value for name, value in answer.getheaders() if name.lower() in _RETURNED}
        self._send(request, answer.status, returned, content)

    @staticmethod
    def _send(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD" and status != 304:
            request.wfile.write(content)


def policy(html: bytes) -> str:
    """Return the strictest policy under which the page's own scripts and styles work."""
    scripts = _hashes(_INLINE_SCRIPT.findall(html))
    styles = _hashes([style or attribute for style, attribute in _INLINE_STYLE.findall(html)])
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-hashes' {styles}; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hashes(texts: list[bytes]) -> str:
    digests = {base64.b64encode(hashlib.sha256(text).digest()).decode() for text in texts}
    return " ".join(f"'sha256-{digest}'" for digest in sorted(digests))
