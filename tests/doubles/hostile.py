"""An HTTP service of an attacker: it answers every request with what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.doubles.server import JSON, Answer, Double, Exchange

CLOSE = {"Connection": "close"}


@dataclass(frozen=True)
class HostileRequest:
    """A request, and the connection to write to."""

    exchange: Exchange

    @property
    def path(self) -> str:
        return self.exchange.request.path

    @property
    def body(self) -> bytes:
        return json.dumps(self.exchange.request.body).encode()


@contextmanager
def hostile_service(respond: Callable[[HostileRequest], None]) -> Iterator[str]:
    """Answer every request with a function; yield the address."""
    with Double() as double:

        def answer(exchange: Exchange) -> None:
            exchange.close()
            respond(HostileRequest(exchange))

        double.always(answer)
        yield double.url


def sends(body: bytes, encoding: str = "") -> Callable[[HostileRequest], None]:
    """Send a body as JSON."""
    headers = CLOSE | ({"Content-Encoding": encoding} if encoding else {})
    return lambda request: request.exchange.send(Answer(200, body, JSON, headers))


def drip(request: HostileRequest) -> None:
    """Send a body byte by byte for half a minute."""
    request.exchange.drip(Answer(200, b" " * 600, JSON, CLOSE), 0.05, 30)
