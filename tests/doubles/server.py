"""A small HTTP/1.1 server on loopback with scripted faults; the base of all doubles."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast
from urllib.parse import parse_qsl, urlsplit

JSON = "application/json"
NO_HEADERS: Mapping[str, str] = {}
LONGEST = 30.0
"""The maximum duration of a fault; all faults end when the double closes."""
_bound: list[socket.socket] = []


@dataclass(frozen=True)
class Request:
    """A recorded request: raw path, header names in lower case, the body as JSON value or as bytes."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    size: int
    at: float


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> bytes:
        """Return the status line and the headers; the length is always that of the whole body."""
        phrases = {code.value: code.phrase for code in HTTPStatus}
        lines = [f"HTTP/1.1 {self.status} {phrases.get(self.status, 'Unknown')}"]
        fields = {"Content-Type": self.content_type, "Content-Length": str(len(self.body)), **self.headers}
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def answer_json(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode())


class Exchange:
    """A request and its connection, for faults."""

    def __init__(self, double: Double, handler: _Handler, request: Request) -> None:
        self.double = double
        self.request = request
        self._handler = handler

    def normal(self) -> Answer:
        """Handle the request without a fault."""
        return self.double.carry_out(self.request)

    def wait(self, seconds: float) -> bool:
        """Wait, and return whether the double is still open."""
        return not self.double.closing.wait(min(seconds, LONGEST))

    def send(self, answer: Answer) -> None:
        # In one write: with two, delayed acknowledgements would slow down every request. A large body is not copied.
        is_small = len(answer.body) < 1 << 20
        for part in (answer.head() + answer.body,) if is_small else (answer.head(), answer.body):
            self._handler.wfile.write(part)

    def drip(self, answer: Answer, pause: float, seconds: float) -> None:
        """Send the body byte by byte, and stop after so many seconds."""
        end = time.monotonic() + min(seconds, LONGEST)
        self._handler.wfile.write(answer.head())
        for number in range(len(answer.body)):
            if time.monotonic() > end or not self.wait(pause):
                self.close()
                return
            self._handler.wfile.write(answer.body[number : number + 1])

    def stream(self, parts: Iterable[bytes], content_type: str, pause: float = 0.0) -> None:
        """Send a body of unknown length in parts; raise `ConnectionError` when the client has left."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n"
        self._handler.wfile.write(head.encode())
        self.close()
        for part in parts:
            self._handler.wfile.write(part)
            if pause and not self.wait(pause):
                return

    def close(self) -> None:
        self._handler.close_connection = True

    def reset(self) -> None:
        """Close the connection with a reset."""
        self.close()
        # Without lingering, the system sends RST. The reader also holds the socket, so close it first.
        self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._handler.rfile.close()
        self._handler.connection.close()


Fault = Callable[[Exchange], None]
"""Handles one request instead of the double; the functions below create faults."""


def status(
    code: int, body: object = None, headers: Mapping[str, str] = NO_HEADERS, content_type: str | None = None
) -> Fault:
    """Respond with a status, and with a body or the double's own error body."""

    def act(exchange: Exchange) -> None:
        own = exchange.double.error(code, f"simulated error {code}")
        answer = own if body is None else _answer(code, body, content_type)
        exchange.send(replace(answer, headers={**answer.headers, **headers}))

    return act


def rubbish(content: object = b"<html><body>Welcome to the hotel's network</body></html>") -> Fault:
    """Respond with 200 and an unexpected body: text and bytes as they are, anything else as JSON."""
    return lambda exchange: exchange.send(_answer(200, content, None))


def hang(seconds: float = LONGEST) -> Fault:
    """Never respond."""

    def act(exchange: Exchange) -> None:
        exchange.wait(seconds)
        exchange.close()

    return act


def delay(seconds: float) -> Fault:
    """Respond late."""

    def act(exchange: Exchange) -> None:
        if exchange.wait(seconds):
            exchange.send(exchange.normal())
        else:
            exchange.close()

    return act


def slow_drip(pause: float = 0.1, seconds: float = 5.0) -> Fault:
    """Respond byte by byte, so that no single read takes long, and stop after so many seconds."""
    return lambda exchange: exchange.drip(exchange.normal(), pause, seconds)


def drop(*, done: bool = False) -> Fault:
    """Close the connection without a response; with `done`, handle the request first."""

    def act(exchange: Exchange) -> None:
        if done:
            exchange.normal()
        exchange.close()

    return act


def reset() -> Fault:
    """Reset the connection."""
    return Exchange.reset


def refused_url() -> str:
    """Return an address on which nothing listens; the port stays bound, so that no other test gets it."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    _bound.append(bound)
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


class Double:
    """A server in its own threads while the `with` block runs; subclasses implement `answer`.

    An error in the double itself is raised when it closes, so that a test does not mistake it for a response.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._script: list[tuple[str, Fault]] = []
        self._always: list[tuple[str, Fault]] = []
        self._failures: list[BaseException] = []
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the double is not open")
        return f"http://127.0.0.1:{self._server.server_port}"

    def script(self, *faults: Fault, path: str | None = None) -> None:
        """Queue faults for the next requests, or for those whose path matches a pattern such as `*/points`."""
        with self._lock:
            self._script += [(path or "*", fault) for fault in faults]

    def always(self, fault: Fault | None, path: str | None = None) -> None:
        """Set a fault for all requests without a scripted one; None removes it."""
        with self._lock:
            self._always = [(path or "*", fault)] if fault else []

    def answer(self, request: Request) -> Answer:
        """Respond to a request like the service."""
        raise NotImplementedError

    def error(self, code: int, message: str) -> Answer:
        """Return an error response like the service."""
        return answer_json({"message": message}, code)

    def carry_out(self, request: Request) -> Answer:
        try:
            return self.answer(request)
        except Exception as error:
            self.failed(error)
            return self.error(500, f"error in the double: {error!r}")

    def failed(self, error: BaseException) -> None:
        with self._lock:
            self._failures.append(error)

    def received(self, request: Request) -> Fault | None:
        """Record a request, and return its fault if there is one."""
        with self._lock:
            self.requests.append(request)
            for position, (pattern, fault) in enumerate(self._script):
                if fnmatchcase(request.path, pattern):
                    del self._script[position]
                    return fault
            faults = (fault for pattern, fault in self._always if fnmatchcase(request.path, pattern))
            return next(faults, None)

    def __enter__(self) -> Self:
        self._server = _Server(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.closing.set()
        if self._server is not None:
            self._server.end()
            self._server = None
        if error is None and self._failures:
            raise self._failures[0]


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, double: Double) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.double = double
        self._open: list[tuple[socket.socket, threading.Thread]] = []
        self._main = threading.Thread(target=self.serve_forever, args=(0.02,), name="double", daemon=True)
        self._main.start()

    def end(self) -> None:
        self.shutdown()
        self._main.join()
        for connection, _ in self._open:
            # Otherwise an open keep-alive connection would keep its thread alive.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in self._open:
            thread.join()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        # The threads of the base class cannot be both joined and daemonic; these are.
        work = self.process_request_thread
        thread = threading.Thread(target=work, args=(request, client_address), daemon=True)
        self._open = [(connection, one) for connection, one in self._open if one.is_alive()]
        thread.start()
        self._open.append((request, thread))

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        # Many tests close the connection early.
        if error is not None and not isinstance(error, ConnectionError):
            self.double.failed(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        double = cast(_Server, self.server).double
        request = self._read()
        exchange = Exchange(double, self, request)
        fault = double.received(request)
        if fault is None:
            exchange.send(exchange.normal())
        else:
            fault(exchange)

    do_DELETE = do_GET = do_PATCH = do_POST = do_PUT = _serve  # noqa: N815

    def _read(self) -> Request:
        size = int(self.headers.get("Content-Length", 0))
        body: Any = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionAbortedError("the client went away in the middle of a body")
        with suppress(ValueError):
            body = json.loads(body) if body else None
        address = urlsplit(self.path)
        headers = {name.lower(): one for name, one in self.headers.items()}
        query = dict(parse_qsl(address.query))
        return Request(self.command, address.path, query, headers, body, size, time.monotonic())

    def log_message(self, format: str, *args: object) -> None:
        """Do not log."""


def _answer(code: int, body: object, content_type: str | None) -> Answer:
    if not isinstance(body, str | bytes):
        return replace(answer_json(body, code), content_type=content_type or JSON)
    content = body.encode() if isinstance(body, str) else body
    looks = "text/html" if content.lstrip()[:1] == b"<" else "text/plain"
    return Answer(code, content, content_type or looks)
