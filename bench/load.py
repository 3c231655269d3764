"""Clients that cost little: raw requests on connections that are kept."""

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
    """Return a request as it is sent."""
    body = json.dumps({"query": question, "limit": limit}).encode()
    return (
        b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (
            len(body),
            body,
        )
    )


class Connection:
    """One connection on which one question is asked after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def search(self, question: str) -> bytes:
        """Ask, and return the answer."""
        self._socket.sendall(request(question))
        answer = b""
        while (whole := _whole(answer)) is None:
            part = self._socket.recv(65536)
            if not part:
                raise ConnectionError("the connection was closed")
            answer += part
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode())
        return answer[:whole]

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a load: answers a second, all answers (those that came after the time was over, too), and the clients' own work."""

    rate: float
    answered: int
    client_seconds: float


class _Client:
    """Asks again as soon as it is answered."""

    __slots__ = ("_buffer", "_next", "_requests", "_socket", "answered")

    def __init__(self, connection: socket.socket, requests: Sequence[bytes], first: int) -> None:
        self._socket = connection
        self._requests = requests
        self._next = first
        self._buffer = b""
        self.answered = 0
        self.ask()

    def ask(self) -> None:
        """Send the next question."""
        self._next = (self._next + 1) % len(self._requests)
        self._socket.sendall(self._requests[self._next])

    def read(self) -> bool:
        """Take what has come, and tell whether it is a whole answer now."""
        part = self._socket.recv(262_144)
        if not part:
            raise ConnectionError("the connection was closed")
        self._buffer += part
        if _whole(self._buffer) is None:
            return False
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self._buffer.decode())
        self._buffer = b""
        self.answered += 1
        return True


def throughput(port: int, clients: int, questions: Sequence[str], seconds: float) -> Load:
    """Let so many clients ask for a while, in this process; those who wait for an answer at the end get it."""
    requests = [request(question) for question in questions]
    worked, in_time = process_time(), 0
    with ExitStack() as open_ones, selectors.DefaultSelector() as selector:
        connections = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            for _ in range(clients)
        ]
        end = perf_counter() + seconds
        found = [_Client(connection, requests, number) for number, connection in enumerate(connections)]
        for connection, client in zip(connections, found, strict=True):
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
    return Load(in_time / seconds, sum(client.answered for client in found), process_time() - worked)


def _whole(answer: bytes) -> int | None:
    """Return the length of the first answer if all of it is there."""
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return None
    found = _LENGTH.search(answer, 0, head)
    length = head + 4 + (int(found[1]) if found else 0)
    return length if len(answer) >= length else None
