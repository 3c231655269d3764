"""A double of servers with OpenAI's chat API, which streams a scripted text, and faults of such streams."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import repeat

from tests.doubles.server import Answer, Double, Exchange, Fault, Request

EVENTS = "text/event-stream"


def event(text: str, finish: str | None = None) -> bytes:
    delta = {"content": text} if text else {}
    return f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': finish}]})}\n\n".encode()


class ChatDouble(Double):
    """Streams `text` in pieces of `size` characters with a pause; `left` is set when a client leaves early."""

    def __init__(self, text: str = "Jam is fruit and sugar [1].", size: int = 4, pause: float = 0.0) -> None:
        super().__init__()
        self.text, self.size, self.pause = text, size, pause
        self.left = threading.Event()
        self.always(self._write)

    @property
    def base(self) -> str:
        """The address that a user would configure."""
        return f"{self.url}/v1"

    @property
    def prompt(self) -> tuple[str, str]:
        """The system message and the user's message of the last request."""
        system, user = self.requests[-1].body["messages"]
        return system["content"], user["content"]

    def answer(self, request: Request) -> Answer:
        return self.error(404, f"nothing at {request.path}")

    def pieces(self) -> Iterator[bytes]:
        for start in range(0, len(self.text), self.size):
            yield event(self.text[start : start + self.size])

    def _write(self, exchange: Exchange) -> None:
        if exchange.request.path != "/v1/chat/completions":
            exchange.send(exchange.normal())
            return
        end = (event("", "stop"), b"data: [DONE]\n\n")
        try:
            exchange.stream((*self.pieces(), *end), EVENTS, self.pause)
        except ConnectionError:
            self.left.set()


def break_off(double: ChatDouble) -> Fault:
    """Stream the text and close the connection without an end."""
    return lambda exchange: exchange.stream(double.pieces(), EVENTS)


def flood(part: bytes) -> Fault:
    """Send the same bytes without an end."""
    return lambda exchange: exchange.stream(repeat(part), EVENTS)


def stall(*parts: bytes) -> Fault:
    """Send the beginning of a stream, and then nothing more."""

    def act(exchange: Exchange) -> None:
        exchange.stream(parts, EVENTS)
        exchange.wait(30)

    return act
