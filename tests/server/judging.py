"""Run the judging page on a real socket, in a thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recto.evaluation.pooling import PooledSearch, load_judged_suite, pool
from recto.search.retriever import Retriever
from recto.server.judge import Judging, judge_app
from recto.types.search import MODES
from tests.server.http.service import Reply, ThreadServer

TOKEN = "a-token-of-this-test"


def write_suite(path: Path, queries: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"name": "House questions", "queries": queries}), "utf-8")
    return path


def read_entries(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["queries"]
    return entries


class JudgingService(ThreadServer):
    """The service for a suite, with all modes."""

    def __init__(self, path: Path, retriever: Retriever, depth: int = 5) -> None:
        configurations = [PooledSearch(retriever, mode) for mode in MODES]
        self.pool = pool(load_judged_suite(path), configurations, depth)
        super().__init__(lambda: judge_app(Judging(path, self.pool), TOKEN))

    def call(self, path: str, data: object = None, **headers: str) -> Reply:
        """Send a request with the token: POST if there is data, else GET."""
        sent = {"Authorization": f"Bearer {TOKEN}", **headers}
        return self.ask("GET" if data is None else "POST", path, data, sent)
