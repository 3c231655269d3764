"""Start real Qdrant servers on loopback: one node, or a cluster whose nodes are killed and stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.running import wait_until

START_SECONDS = 120.0  # an emulated server on a busy machine is slow
NEED_SERVER = "RECTO_TEST_NEED_QDRANT"
"""If it is set, as in CI, a missing server fails the tests instead of skipping them."""


def server_program() -> str:
    """Return the path of `qdrant`, or skip the test."""
    result = shutil.which("qdrant")
    if result is None:
        stop = pytest.fail if os.environ.get(NEED_SERVER) else pytest.skip
        stop("there is no `qdrant` on PATH; `.ci/qdrant DIRECTORY` fetches one")
    return result


def free_ports(count: int) -> list[int]:
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in bound]


class Node:
    """One Qdrant process with its own directory; it keeps its ports and data over a restart."""

    def __init__(
        self,
        directory: Path,
        service: dict[str, Any] | None = None,
        storage: dict[str, Any] | None = None,
        *,
        cluster: bool = False,
    ) -> None:
        self.directory = directory
        self.port, self._grpc, self._p2p = free_ports(3)
        self.url, self.p2p_url = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._p2p}"
        self._service, self._storage = service or {}, storage or {}
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, bootstrap: str = "") -> None:
        """Start the server; a killed node starts again with its data, and finds its cluster by itself."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "config.yaml"  # JSON is YAML
        config.write_text(json.dumps(self._config()))
        command = [server_program(), "--config-path", str(config), "--disable-telemetry"]
        command += ["--uri", self.p2p_url] if self._cluster else []
        command += ["--bootstrap", bootstrap] if bootstrap else []
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, (self.directory / "log").read_text()[-2000:]
            try:
                with urlopen(f"{self.url}/readyz", timeout=5) as answer:
                    return bool(answer.status == 200)
            except (URLError, OSError):
                return False

        wait_until(is_ready, START_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Stop the process: it accepts connections, but never answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()

    def _config(self) -> dict[str, Any]:
        return {
            "log_level": "WARN",
            "telemetry_disabled": True,
            "storage": {
                "storage_path": str(self.directory / "storage"),
                "snapshots_path": str(self.directory / "snapshots"),
                "performance": {"max_search_threads": 1, "max_optimization_threads": 1},
                # Small and few files: creating a collection is most of the work of these tests.
                "wal": {"wal_capacity_mb": 1, "wal_segments_ahead": 0},
                "optimizers": {"default_segment_number": 1, "flush_interval_sec": 5},
                **self._storage,
            },
            "service": {
                "host": "127.0.0.1",
                "http_port": self.port,
                "grpc_port": self._grpc,
                "max_workers": 2,
                "enable_static_content": False,
                **self._service,
            },
            "cluster": {"enabled": self._cluster, "p2p": {"port": self._p2p}},
        }


class Cluster:
    """Three nodes that know each other."""

    def __init__(self, directory: Path) -> None:
        self.nodes = [Node(directory / f"node-{number}", cluster=True) for number in (1, 2, 3)]

    @property
    def url(self) -> str:
        """The value of QDRANT_URL."""
        return ",".join(node.url for node in self.nodes)

    def __enter__(self) -> Self:
        first, *others = self.nodes
        with ExitStack() as started:
            started.push(self)
            first.start()
            first.wait_until_ready()
            for node in others:
                node.start(bootstrap=first.p2p_url)
            for node in others:
                node.wait_until_ready()
            started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.__exit__()
