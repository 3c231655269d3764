"""Connections as the server library has them, with a bound on how long one may wait without asking, and errors in our shape."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from recto.bounds import Refusal

IDLE_SECONDS = 30


class BoundedConnection(H11Protocol):
    """Closes a connection on which no request becomes complete in time: a caller that drips its headers byte by byte keeps nothing open."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP in the words of every other error."""
        body = json.dumps(Refusal(400, msg.rstrip(".")).body()).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self._idle = self.loop.call_later(IDLE_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _give_up(self) -> None:
        """End the connection, unless an answer is on its way; one that is closing by now waits for a caller that does not read."""
        if self._answering and not self.transport.is_closing():
            self._wait()
        else:
            self.transport.abort()
