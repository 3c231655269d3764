"""An HTTP service of an attacker: it answers every request with what a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Respond = Callable[["HostileRequest"], None]


class HostileRequest(BaseHTTPRequestHandler):
    """A request with its body, and the connection to write to."""

    body: bytes

    def log_message(self, *_: object) -> None:
        """Do not log."""


@contextmanager
def hostile_service(respond: Respond) -> Iterator[str]:
    """Answer every request with a function; yield the address."""

    class Handler(HostileRequest):
        def do_GET(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with suppress(OSError):  # the client has had enough
                respond(self)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def sends(body: bytes, encoding: str = "") -> Respond:
    """Send a body as JSON."""

    def respond(request: HostileRequest) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        if encoding:
            request.send_header("Content-Encoding", encoding)
        request.end_headers()
        request.wfile.write(body)

    return respond


def drip(request: HostileRequest) -> None:
    """Send a body byte by byte for half a minute."""
    request.send_response(200)
    request.end_headers()
    for _ in range(600):
        request.wfile.write(b" ")
        request.wfile.flush()
        time.sleep(0.05)
