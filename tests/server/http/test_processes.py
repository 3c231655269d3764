"""Test `recto serve` as a process: killed workers, shutdown, a new index under load, the log."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from recto.protocols import Embedder
from recto.stores.edge import EdgeStore
from tests.book.files import write
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import delay
from tests.running import recto, wait_until
from tests.server.http.service import Program, Reply, indexed, indexed_in_cloud

KEY = "a-secret-key-0123456789"
ASKED = "When are the beans sown, by the way?"


def workers(program: Program) -> set[int]:
    """Return the worker processes."""
    found = set()
    for child in psutil.Process(program.process.pid).children():
        with suppress(psutil.Error):  # one that has just ended
            if "spawn_main" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def answering(program: Program) -> set[int]:
    """Return the workers that are ready."""
    started = {line["pid"] for line in program.lines() if "startup complete" in line["message"]}
    return started & workers(program)


def patient(program: Program, data: dict[str, object]) -> Reply:
    """Send a search; retry if the connection breaks before the response."""
    for _ in range(20):
        try:
            return program.post("/v1/search", data, Authorization=f"Bearer {KEY}")
        except (ConnectionError, OSError):
            time.sleep(0.05)
    pytest.fail("no answer in twenty tries")


@pytest.mark.slow
def test_two_workers(house: Path, embedder: Embedder, tmp_path: Path) -> None:
    home = tmp_path / "home"
    indexed(home, "house", house / "book", embedder)
    variables = {"RECTO_API_KEY": KEY, "COLLECTION_NAME": "house", "RECTO_THREADS": "1"}
    with Program(home, ("--workers", "2"), variables) as program:
        wait_until(lambda: len(answering(program)) == 2, 120)
        key = f"Bearer {KEY}"
        expected = patient(program, {"query": ASKED}).json()
        before = expected["generation"]

        # A worker is killed: the other one goes on, and a new one takes its place.
        victim = min(answering(program))
        os.kill(victim, signal.SIGKILL)
        for _ in range(10):
            assert patient(program, {"query": ASKED}).json()["results"] == expected["results"]
        wait_until(lambda: len(answering(program) - {victim}) == 2, 120)

        # A new index under load: every answer is whole and of one of the two states.
        book = write(tmp_path / "book", {"beans.md": "# Beans\n\nBeans are sown in May.\n"})
        ended = threading.Event()
        replies: list[Reply] = []

        def ask() -> None:
            while not ended.is_set():
                replies.append(patient(program, {"query": ASKED}))

        with ThreadPoolExecutor(3) as pool:
            for _ in range(3):
                pool.submit(ask)
            indexed(home, "house", book, embedder)
            after = EdgeStore(home).open("house").info.generation
            wait_until(lambda: [reply.json()["generation"] for reply in replies[-6:]] == [after] * 6, 60)
            ended.set()
        assert {reply.status for reply in replies} == {200}
        for reply in replies:
            body = reply.json()
            pages = {result["title"] for result in body["results"]}
            assert (pages == {"Beans"}) == (body["generation"] == after), "the answer is of its state"
            assert body["generation"] in (before, after)

        # The figures count both workers, and one that is gone.
        figures = program.get("/metrics", Authorization=key).body.decode()
        counted = sum(
            float(line.rpartition(" ")[2])
            for line in figures.splitlines()
            if line.startswith('recto_requests_total{method="POST"')
        )
        assert counted >= len(replies) + 10
        assert f'recto_index_info{{collection="house",generation="{after}"}} 1.0' in figures
        assert "recto_requests_running 1.0" in figures

        assert program.end() == 0
        wait_until(lambda: not psutil.pid_exists(victim))
    check_log(program.output)
    lines = [line for line in program.lines() if line["message"] == "request"]
    assert {line["route"] for line in lines} == {"/v1/search", "/metrics"}
    assert all(line["key"] == 1 and line["id"] and line["ms"] >= 0 for line in lines)


def check_log(output: str) -> None:
    """Check that the log is JSON and has no queries, keys or stack traces."""
    for word in (KEY, "beans", "Traceback", 'File "'):
        assert word not in output
    (spoken,) = [line for line in output.splitlines() if not line.startswith("{")]
    assert spoken.startswith("Recto listens at http://127.0.0.1:")


def test_sigterm_drains(home: Path, small_book: Path, cohere: CohereDouble, qdrant: QdrantDouble) -> None:
    indexed_in_cloud(home, small_book, cohere.url, qdrant.url)
    variables = {"COHERE_API_KEY": COHERE_KEY, "COHERE_API_URL": cohere.url, "COLLECTION_NAME": "garden"}
    variables |= {"QDRANT_URL": qdrant.url, "QDRANT_API_KEY": QDRANT_KEY}
    with Program(home, (), variables) as program:
        assert program.post("/retrieve", {"query": "knead the dough"}).status == 200
        cohere.requests.clear()
        cohere.always(delay(1.0))
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(program.post, "/retrieve", {"query": "knead the dough"})
            wait_until(lambda: bool(cohere.requests))
            program.process.send_signal(signal.SIGTERM)
            reply = answer.result(60)
        assert reply.status == 200
        assert reply.json()["results"][0]["title"] == "Bread"
        assert program.process.wait(60) == 0
        with pytest.raises(ConnectionError):
            program.get("/healthz")
    # Before it listens, the warning of a key over plain http names its address to the person.
    log = program.output.partition("Recto listens at")[2]
    assert '"status": 200' in log
    for word in (COHERE_KEY, QDRANT_KEY, cohere.url, qdrant.url, "knead", "Traceback"):
        assert word not in log


def test_a_port_that_is_taken(sample_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = recto(sample_home, "serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "Cannot listen on 127.0.0.1" in done.stderr


def test_workers_do_not_outlive_their_supervisor(sample_home: Path) -> None:
    program = Program(sample_home, ("--workers", "2"))
    with program:
        wait_until(lambda: len(answering(program)) == 2, 120)
        left = workers(program)
        program.process.kill()
        program.process.wait(60)
        wait_until(lambda: not [pid for pid in left if psutil.pid_exists(pid)])


def test_a_project_and_many_connections_cannot_harm_the_service(sample_home: Path, tmp_path: Path) -> None:
    """Its `.env` cannot open the service. More clients connect than the process may open files, byte by byte."""
    evil = "https://evil.example"
    (tmp_path / ".env").write_text(f"RECTO_CORS_ORIGINS={evil}\nRECTO_ALLOWED_HOSTS=evil.example\n")
    limited = ("bash", "-c", 'ulimit -n 256 && exec "$@"', "bash")
    with Program(sample_home, directory=tmp_path, prefix=limited) as program, ExitStack() as clients:
        reply = program.get("/v1/collections", Origin=evil)
        assert "access-control-allow-origin" not in reply.headers
        assert program.get("/v1/collections", Host="evil.example").status == 400
        told = program.read()
        assert f"Settings were read from {tmp_path / '.env'}" in told
        for name in ("RECTO_ALLOWED_HOSTS", "RECTO_CORS_ORIGINS"):
            assert f"{name} in {tmp_path / '.env'} is ignored" in told
        for _ in range(400):
            client = socket.create_connection(("127.0.0.1", program.port), timeout=60)
            clients.callback(client.close)
            with suppress(OSError):  # closed already
                client.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        assert program.get("/v1/collections").status == 200
        output = program.read().removeprefix(told)
    assert len(output) < 100_000, "at most a line for each connection"
    assert all(line.startswith(("{", "Recto", "[")) for line in output.splitlines())
