"""Run the judging page on a real socket, in a thread."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn

from recto.evaluation.pooling import PooledSearch, load_judged_suite, pool
from recto.search.retriever import Retriever
from recto.server.judge import Judging, judge_app
from recto.server.listening import server_config
from recto.types import MODES
from tests.running import wait_until
from tests.server.http.service import Caller, Reply

TOKEN = "a-token-of-this-test"


def write_suite(path: Path, queries: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"name": "House questions", "queries": queries}), "utf-8")
    return path


def read_entries(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["queries"]
    return found


class JudgingService(Caller):
    """The service for a suite, with all modes."""

    def __init__(self, path: Path, retriever: Retriever, depth: int = 5) -> None:
        configurations = [PooledSearch(retriever, mode) for mode in MODES]
        self.pool = pool(load_judged_suite(path), configurations, depth)
        self._app = judge_app(Judging(path, self.pool), TOKEN)

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._server = uvicorn.Server(server_config(self._app, 2))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()
        wait_until(lambda: self._server.started, 120)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()

    def call(self, path: str, data: object = None, **headers: str) -> Reply:
        """Send a request with the token: POST if there is data, else GET."""
        known = {"Authorization": f"Bearer {TOKEN}", **headers}
        return self.ask("GET" if data is None else "POST", path, data, known)
