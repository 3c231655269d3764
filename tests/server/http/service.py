"""Run the HTTP server on a real socket: in a thread, or as a process."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn
from jsonschema import Draft202012Validator

from recto.book.sources.tree import MarkdownTree
from recto.embedders.cohere import PACES, CohereEmbedder
from recto.indexing.indexer import IndexJob, index_book
from recto.server.http import ServeOptions
from recto.server.http.app import make_app
from recto.server.listening import server_config
from recto.settings import ServerOptions, Settings
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.running import ROOT, environment, wait_until


@dataclass(frozen=True)
class Reply:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    repeated: Mapping[str, list[str]] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of an error; its body has the fields that every error has."""
        body = self.json()
        assert body.keys() - {"hint"} == {"error", "status_code"}, body
        assert body["status_code"] == self.status
        assert self.headers["content-type"] == "application/json"
        assert isinstance(body["error"], str)
        return body["error"]


class Caller:
    """Sends requests, each on its own connection."""

    port: int

    def ask(
        self,
        method: str,
        path: str,
        data: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> Reply:
        sent = dict(headers or {})
        if data is not None or raw is not None:
            sent.setdefault("Content-Type", "application/json")
        body = raw if raw is not None else json.dumps(data).encode() if data is not None else None
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            pairs = [(name.lower(), value) for name, value in answer.getheaders()]
            repeated = {name: [value for other, value in pairs if other == name] for name, _ in pairs}
            return Reply(answer.status, dict(pairs), answer.read(), repeated)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, data: object, **headers: str) -> Reply:
        return self.ask("POST", path, data, headers)

    def wire(self, data: bytes) -> bytes:
        """Send bytes and return everything until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(data)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
            return b"".join(parts)


class ThreadServer(Caller):
    """An application that is served in a thread."""

    def make_app(self) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._server = uvicorn.Server(server_config(self.make_app, 20.0, factory=True))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive(), 120)
        assert self._thread.is_alive(), "the service did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        assert not self._thread.is_alive()


class Service(ThreadServer):
    """The HTTP server in a thread; each of its JSON responses must have the format that it describes."""

    def __init__(self, settings: Settings, options: ServeOptions | None = None) -> None:
        self._settings = settings
        self._options = options or ServeOptions()
        self._described: dict[str, Any] = {}

    def make_app(self) -> Any:
        app = make_app(self._settings, self._options, lambda _: None)
        self._described = app.openapi()
        return app

    def ask(
        self,
        method: str,
        path: str,
        data: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> Reply:
        reply = super().ask(method, path, data, headers, raw=raw)
        if method != "HEAD" and reply.headers.get("content-type") == "application/json":
            self._check(method.lower(), path.partition("?")[0], reply)
        return reply

    def _check(self, method: str, path: str, reply: Reply) -> None:
        for template, operations in self._described["paths"].items():
            if method in operations and re.fullmatch(re.sub(r"{\w+}", ".+", template), path):
                described = operations[method]["responses"].get(str(reply.status), {})
                schema = described.get("content", {}).get("application/json", {}).get("schema", {})
                whole = {**schema, "components": self._described["components"]}
                Draft202012Validator(whole).validate(reply.json())


@dataclass
class Program(Caller):
    """`recto serve` in its own process."""

    home: Path
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    output: str = ""
    directory: Path = ROOT
    prefix: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self._log = self.home.parent / f"serve-{os.urandom(4).hex()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "recto", "serve", "--port", "0", *self.arguments],
                cwd=self.directory,
                env=environment(self.home, **self.variables),
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: self._listens() or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.read()
        return self

    def _listens(self) -> bool:
        if found := re.search(r"listens at http://127\.0\.0\.1:(\d+)", self.read()):
            self.port = int(found[1])
        return found is not None

    def read(self) -> str:
        """Return the output so far."""
        return self._log.read_text("utf-8") if self._log.exists() else ""

    def lines(self) -> list[dict[str, Any]]:
        """Return the log lines."""
        return [json.loads(line) for line in self.read().splitlines() if line.startswith("{")]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)
            raise
        self.output = self.read()
        return code

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        assert "Traceback" not in self.output, self.output


def index_cloud_book(home: Path, book: Path, cohere_url: str, qdrant_url: str) -> None:
    """Index a book as `garden`, with the doubles of Cohere and Qdrant."""
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere_url, PACES["off"], print)
    store = ServerStore(Connection(qdrant_url, QDRANT_KEY, print), home, ServerOptions(), None)
    index_book(IndexJob(MarkdownTree(book), embedder), store, "garden", journal=home / "journal")
    embedder.close()
    store.close()


def cloud_variables(cohere_url: str, qdrant_url: str) -> dict[str, str]:
    """Return the environment variables of the cloud profile."""
    return {
        "COHERE_API_KEY": COHERE_KEY,
        "COHERE_API_URL": cohere_url,
        "QDRANT_URL": qdrant_url,
        "QDRANT_API_KEY": QDRANT_KEY,
        "COLLECTION_NAME": "garden",
    }
