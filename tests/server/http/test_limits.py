"""Test the limits: body size, slow clients, concurrency, request rate."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from recto.server import listening as connections
from recto.server.http import ServeOptions
from recto.server.limits import MAX_BODY
from recto.server.listening import BoundedConnection
from recto.settings import Settings
from tests.running import wait_until
from tests.server.http.service import Service

POST = b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_the_largest_body(service: Service) -> None:
    selection = "a" * (MAX_BODY - len('{"selection": ""}'))
    body = f'{{"selection": "{selection}"}}'.encode()
    assert len(body) == MAX_BODY
    assert service.ask("POST", "/v1/related", raw=body).status == 200
    refused = service.ask("POST", "/v1/related", raw=body + b" ")
    assert refused.status == 413
    assert refused.error == "The body is larger than 65536 bytes"


def test_chunked_bodies(service: Service) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    body = b'{"query": "robot"}'
    assert b" 200 " in service.wire(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)).splitlines()[0]
    large = b"%x\r\n%s\r\n0\r\n\r\n" % (MAX_BODY + 1, b" " * (MAX_BODY + 1))
    assert b" 413 " in service.wire(head + large).splitlines()[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Content-Length: 99999999999999999999", b"413"),
        (b"Content-Length: -1", b"400"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"400"),
    ],
)
def test_invalid_lengths_close_the_connection(service: Service, headers: bytes, status: bytes) -> None:
    answer = service.wire(POST + headers + b"\r\nConnection: close\r\n\r\n0\r\n\r\n")
    assert answer.split()[1] == status
    assert b"connection: close" in answer.lower()


def test_slow_bodies_time_out(house_settings: Settings) -> None:
    head = POST + b"Content-Length: 100\r\n\r\n{"
    with Service(house_settings, ServeOptions(timeout=0.2)) as service:
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as slow:
            slow.sendall(head)
            answer = b""
            while not answer.endswith(b"}"):
                answer += slow.recv(65536)
            assert slow.recv(100) == b"", "the rest of the body is not waited for"
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"The body did not arrive within 0.2 s" in answer


def test_slow_bodies_do_not_block_others(house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(concurrency=1)) as service:
        slow = [socket.create_connection(("127.0.0.1", service.port), timeout=60) for _ in range(3)]
        try:
            for one in slow:
                one.sendall(POST + b"Content-Length: 18\r\n\r\n{")
            while "recto_requests_running 4.0" not in service.get("/metrics").body.decode():
                pass  # the fourth is the one that asks
            assert [service.get(path).status for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
            assert service.post("/retrieve", {"query": "beans"}).status == 200
            for one in slow:
                one.sendall(b'"query": "beans"}')
                assert one.recv(65536).startswith(b"HTTP/1.1 200"), "those that come late are answered too"
        finally:
            for one in slow:
                one.close()


def test_slow_headers_time_out(house_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.3)
    with (
        Service(house_settings) as service,
        socket.create_connection(("127.0.0.1", service.port), timeout=60) as slow,
    ):
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.05):
                try:
                    slow.sendall(b"X: y\r\n")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert slow.recv(100) == b""
        except ConnectionResetError:
            pass
        finally:
            ended.set()
            dripping.join()


def test_rate_limit_for_each_key(house_settings: Settings) -> None:
    with Service(
        house_settings, ServeOptions(keys=("first-key-012345", "other-key-012345"), rate=36)
    ) as service:
        first, other = (
            {"Authorization": f"Bearer {key}"} for key in ("first-key-012345", "other-key-012345")
        )
        codes = [service.get("/v1/collections", **first).status for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        refused = service.get("/v1/collections", **first)
        assert refused.error == "Too many requests"
        assert int(refused.headers["retry-after"]) >= 1
        assert service.get("/v1/collections", **other).status == 200
        assert service.get("/readyz", **first).status == 200, "those who watch it are not counted"


def test_all_bytes_of_a_request_count_for_the_rate_limit(house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(rate=120)) as service:
        module = ["x" * 60] * 100
        assert service.post("/v1/search", {"query": "beans", "module": module}).status == 200
        refused = service.post("/v1/search", {"query": "beans"})
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1


def test_concurrent_searches(service: Service) -> None:
    def ask(query: str) -> tuple[str, list[str]]:
        body = service.post("/v1/search", {"query": query}).json()
        return body["query"], [result["id"] for result in body["results"]]

    queries = ["What is ROS 2?", "robot navigation", "digital twin", "URDF joints", "sensor noise"]
    alone = dict(map(ask, queries))
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, queries * 10)) == list(alone.items()) * 10
    metrics = service.get("/metrics").body.decode()
    embedded, batches = (
        float(metrics.partition(f"\nrecto_batch_queries_{name} ")[2].split()[0]) for name in ("sum", "count")
    )
    assert embedded > batches, "some were embedded together"


def test_too_many_connections_close_the_one_that_is_idle_longest(
    house_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are always free descriptors: to accept, to open the index, to log."""
    monkeypatch.setattr(connections.BoundedConnection, "limit", 5)
    with Service(house_settings) as service:
        idle = [socket.create_connection(("127.0.0.1", service.port), timeout=60) for _ in range(20)]
        try:
            for _ in range(3):
                assert service.get("/healthz").status == 200
            closed = [one for one in idle if _is_closed(one)]
            assert len(closed) >= 15
            assert closed[:15] == idle[:15], "the oldest are closed first"
        finally:
            for one in idle:
                one.close()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_batches_are_bounded(house_settings: Settings) -> None:
    with Service(house_settings) as service:
        reply = service.post("/v1/batch", {"queries": ["x" * 2000] * 9})
        assert (reply.status, reply.error) == (400, "The queries must have at most 16000 characters together")
        reply = service.post("/v1/batch", {"queries": ["beans"] * 11, "top_k": 100})
        assert (reply.status, reply.error) == (400, "The number of queries times top_k must be at most 1000")
        assert service.post("/v1/batch", {"queries": ["beans"] * 10, "top_k": 100}).status == 200


def test_requests_of_other_sites_are_refused(house_settings: Settings) -> None:
    allowed = "https://book.example.org"
    with Service(house_settings, ServeOptions(origins=(allowed,))) as service:
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Origin": allowed}, 200),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "same-site", "Origin": allowed}, 200),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Sec-Fetch-Site": "none"}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://127.0.0.1:{service.port}"}, 200),
            ({}, 200),
        ):
            assert service.get("/v1/collections", **headers).status == status, headers
            assert service.get("/metrics", **headers).status == status, headers
        assert service.get("/", **{"Sec-Fetch-Site": "cross-site"}).status == 200, "a link to the page works"


async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Send an endless response for a second."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.5)
    config = uvicorn.Config(endless, http=BoundedConnection, lifespan="off", ws="none", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as caller:
        running = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        running.start()
        try:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.connect(listener.getsockname())
            caller.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: bool(server.server_state.connections))
            wait_until(lambda: not server.server_state.connections)
        finally:
            server.should_exit = True
            running.join(30)
