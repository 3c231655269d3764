"""HTTP clients with little overhead: raw requests on keep-alive connections."""

from __future__ import annotations

import json
import re
import selectors
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter, process_time
from types import TracebackType
from typing import Self

_LENGTH = re.compile(rb"content-length: (\d+)")


def request(question: str, limit: int = 5) -> bytes:
    """Return the bytes of a request."""
    body = json.dumps({"query": question, "limit": limit}).encode()
    head = b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


class RawConnection:
    """A connection that sends one query after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def search(self, question: str) -> bytes:
        """Send a query, and return the response."""
        self._socket.sendall(request(question))
        answer = b""
        while (whole := _complete_length(answer)) is None:
            part = self._socket.recv(65536)
            if not part:
                raise ConnectionError("the connection was closed")
            answer += part
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode())
        return answer[:whole]

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Load:
    """The result of a load: answers per second, all answers, and the clients' CPU time.

    All answers include those that arrive after the time is over.
    """

    rate: float
    answered: int
    client_seconds: float


class _Client:
    """Sends the next query as soon as it has a response."""

    __slots__ = ("_buffer", "_next", "_requests", "_socket", "answered")

    def __init__(self, connection: socket.socket, requests: Sequence[bytes], first: int) -> None:
        self._socket = connection
        self._requests = requests
        self._next = first
        self._buffer = b""
        self.answered = 0
        self.ask()

    def ask(self) -> None:
        """Send the next query."""
        self._next = (self._next + 1) % len(self._requests)
        self._socket.sendall(self._requests[self._next])

    def read(self) -> bool:
        """Read what has arrived, and return whether the response is complete."""
        part = self._socket.recv(262_144)
        if not part:
            raise ConnectionError("the connection was closed")
        self._buffer += part
        if _complete_length(self._buffer) is None:
            return False
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self._buffer.decode())
        self._buffer = b""
        self.answered += 1
        return True


def throughput(port: int, clients: int, questions: Sequence[str], seconds: float) -> Load:
    """Run a number of clients in this process for some time; pending requests are completed."""
    requests = [request(question) for question in questions]
    worked, in_time = process_time(), 0
    with ExitStack() as open_ones, selectors.DefaultSelector() as selector:
        connections = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            for _ in range(clients)
        ]
        end = perf_counter() + seconds
        senders = [_Client(connection, requests, number) for number, connection in enumerate(connections)]
        for connection, client in zip(connections, senders, strict=True):
            selector.register(connection, selectors.EVENT_READ, client)
        waiting = clients
        while waiting:
            for key, _ in selector.select():
                if not key.data.read():
                    continue
                if perf_counter() < end:
                    in_time += 1
                    key.data.ask()
                else:
                    waiting -= 1
    return Load(in_time / seconds, sum(client.answered for client in senders), process_time() - worked)


def _complete_length(answer: bytes) -> int | None:
    """Return the length of the first response if it is complete."""
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return None
    found = _LENGTH.search(answer, 0, head)
    length = head + 4 + (int(found[1]) if found else 0)
    return length if len(answer) >= length else None
