"""Clients that cost little: raw requests on connections that are kept."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Self

_LENGTH = re.compile(rb"content-length: (\d+)")


def request(question: str, limit: int = 5) -> bytes:
    """Return a request as it is sent."""
    body = json.dumps({"query": question, "limit": limit}).encode()
    return b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self._socket.close()


class _Client(asyncio.Protocol):
    """Asks again as soon as it is answered, until the time is over."""

    def __init__(self, requests: Sequence[bytes], first: int, end: float) -> None:
        self._requests = requests
        self._next = first
        self._end = end
        self._buffer = b""
        self.answered = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        whole = _whole(self._buffer)
        if whole is None:
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(self._buffer.decode()))
            self._transport.close()
            return
        self._buffer = self._buffer[whole:]
        if perf_counter() < self._end:
            self.answered += 1
            self._ask()
        else:
            self._transport.close()
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the connection was closed"))

    def _ask(self) -> None:
        self._next = (self._next + 1) % len(self._requests)
        self._transport.write(self._requests[self._next])


def throughput(port: int, clients: int, questions: Sequence[str], seconds: float) -> float:
    """Return how many requests a second are answered to so many clients."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        end = perf_counter() + seconds
        requests = [request(question) for question in questions]
        found = []
        for number in range(clients):
            client = _Client(requests, number, end)
            await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
            found.append(client)
        await asyncio.gather(*(client.done for client in found))
        return sum(client.answered for client in found) / seconds

    return asyncio.run(run())


def _whole(answer: bytes) -> int | None:
    """Return the length of the first answer if all of it is there."""
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return None
    found = _LENGTH.search(answer, 0, head)
    length = head + 4 + (int(found[1]) if found else 0)
    return length if len(answer) >= length else None
