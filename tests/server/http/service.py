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
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest
import uvicorn
from jsonschema import Draft202012Validator

from recto.api import open_embedder, open_store
from recto.book.sources.tree import open_book
from recto.embedders.granite import embedder as granite
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder, Source
from recto.server.http import ServeOptions
from recto.server.http.app import make_app
from recto.server.listening import server_config
from recto.settings import Precision, Settings
from tests.conftest import COHERE_KEY, QDRANT_KEY, SHARED
from tests.library import write_index
from tests.running import ROOT, environment, wait_until
from tests.shared_embedder import shared_embedder


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
        body = raw if data is None else json.dumps(data).encode()
        sent = ({} if body is None else {"Content-Type": "application/json"}) | dict(headers or {})
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            pairs = [(name.lower(), value) for name, value in answer.getheaders()]
            repeated = {name: [value for other, value in pairs if other == name] for name, _ in pairs}
            reply = Reply(answer.status, dict(pairs), answer.read(), repeated)
        self.check(method, path, reply)
        return reply

    def check(self, method: str, path: str, reply: Reply) -> None:
        """Check what every reply must have."""

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

    def __init__(self, make_app: Callable[[], Any], proxies: Sequence[str] = ()) -> None:
        self._make_app = make_app
        self._proxies = proxies

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._server = uvicorn.Server(server_config(self._make_app, 20.0, self._proxies, factory=True))
        sockets = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._server.run, kwargs=sockets, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive(), 120)
        assert self._thread.is_alive(), "the service did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        assert not self._thread.is_alive()


@cache
def described() -> dict[str, Any]:
    """Return the OpenAPI description; nothing is opened for it."""
    return make_app(Settings("local", "edge", Path("nowhere")), ServeOptions()).openapi()


class Service(ThreadServer):
    """The HTTP server in a thread; each of its JSON responses must have the format that it describes."""

    def __init__(self, settings: Settings, options: ServeOptions | None = None) -> None:
        options = options or ServeOptions()
        super().__init__(lambda: self._open(settings, options), options.proxies)

    def _open(self, settings: Settings, options: ServeOptions) -> Any:
        with pytest.MonkeyPatch.context() as patch:  # one model for all services of this process
            patch.setattr(granite, "built_in_embedder", self._open_model)
            return make_app(settings, options, lambda _: None)

    @staticmethod
    def _open_model(_home: Path, threads: int, precision: Precision, **_: Any) -> Embedder:
        return shared_embedder(SHARED, threads, precision).real

    def check(self, method: str, path: str, reply: Reply) -> None:
        if method == "HEAD" or reply.headers.get("content-type") != "application/json":
            return
        for template, operations in described()["paths"].items():
            if re.fullmatch(re.sub(r"{\w+}", ".+", template), path.partition("?")[0]):
                responses = operations.get(method.lower(), {}).get("responses", {})
                content = responses.get(str(reply.status), {}).get("content", {})
                schema = content.get("application/json", {}).get("schema", {})
                whole = {**schema, "components": described()["components"]}
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
            serve = [sys.executable, "-m", "recto", "serve", "--port", "0", *self.arguments]
            env = environment(self.home, **self.variables)
            own: dict[str, Any] = {"cwd": self.directory, "stdout": log, "stderr": log}
            self.process = subprocess.Popen([*self.prefix, *serve], env=env, **own)
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

    def __exit__(self, *_: object) -> None:
        self.end()
        assert "Traceback" not in self.output, self.output


def indexed(home: Path, name: str, book: Path | Source, embedder: Embedder, **more: Any) -> Settings:
    """Index a book, and return the settings of a service that serves it."""
    write_index(book, embedder, home, name, **more)
    return served(home, name)


def served(home: Path, name: str | None = None) -> Settings:
    """Return the settings of a service for a home."""
    return Settings("local", "edge", home, threads=1, precision="fp32", collection=name)


def indexed_in_cloud(home: Path, book: Path, cohere_url: str, qdrant_url: str) -> Settings:
    """Index a book as `garden` with the doubles of Cohere and Qdrant, and return the settings."""
    cohere: dict[str, Any] = {"api_key": COHERE_KEY, "api_url": cohere_url, "pace": "off"}
    values = {f"cohere_{name}": value for name, value in cohere.items()}
    values |= {"qdrant_url": qdrant_url, "qdrant_api_key": QDRANT_KEY, "collection": "garden"}
    settings = Settings("cohere", "server", home, "embed-english-v3.0", **values)
    embedder, store = open_embedder(settings, print), open_store(settings, print)
    index_book(IndexJob(open_book(book), embedder), store, "garden", journal=home / "journal")
    embedder.close()
    store.close()
    return settings
