"""Test the limits: body size, slow clients, concurrency, request rate."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recto.server import limits, listening
from recto.server.http import ServeOptions
from recto.server.limits import (
    MAX_BODY,
    CurrentRequest,
    LimitsMiddleware,
    RateLimiter,
    Refused,
    client_address,
    current_request,
    set_deadline,
)
from recto.settings import Settings
from tests.running import wait_until
from tests.server.http.service import Service

POST = b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
LEFT: Message = {"type": "http.disconnect"}


@contextmanager
def connections(service: Service, count: int = 1) -> Iterator[list[socket.socket]]:
    address = ("127.0.0.1", service.port)
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(count)]


def test_the_largest_body(service: Service) -> None:
    selection = "a" * (MAX_BODY - len('{"selection": ""}'))
    body = f'{{"selection": "{selection}"}}'.encode()
    assert len(body) == MAX_BODY
    assert service.ask("POST", "/v1/related", raw=body).status == 200
    refused = service.ask("POST", "/v1/related", raw=body + b" ")
    assert (refused.status, refused.error) == (413, "The body is larger than 65536 bytes")
    head = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    for chunk, status in ((b'{"query": "robot"}', b"200"), (b" " * (MAX_BODY + 1), b"413")):
        sent = head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk)
        assert service.wire(sent).split()[1] == status


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
    with Service(house_settings, ServeOptions(timeout=0.2)) as service:
        answer = service.wire(POST + b"Content-Length: 100\r\n\r\n{")  # the rest is not waited for
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"The body did not arrive within 0.2 s" in answer


def test_slow_bodies_do_not_block_others(house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(concurrency=1)) as service, connections(service, 3) as slow:
        for one in slow:
            one.sendall(POST + b"Content-Length: 18\r\n\r\n{")
        while "recto_requests_running 4.0" not in service.get("/metrics").body.decode():
            pass  # the fourth is the one that asks
        assert [service.get(path).status for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
        assert service.post("/retrieve", {"query": "beans"}).status == 200
        for one in slow:
            one.sendall(b'"query": "beans"}')
            assert one.recv(65536).startswith(b"HTTP/1.1 200"), "those that come late are answered too"


def test_slow_headers_time_out(house_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.3)
    with Service(house_settings) as service, connections(service) as (slow,):
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        ended = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                while not ended.wait(0.05):
                    slow.sendall(b"X: y\r\n")

        dripping = threading.Thread(target=drip)
        dripping.start()
        with suppress(ConnectionResetError):
            assert slow.recv(100) == b""
        ended.set()
        dripping.join()


def test_rate_limit_for_each_key(house_settings: Settings) -> None:
    keys = ("first-key-012345", "other-key-012345")
    first, other = ({"Authorization": f"Bearer {key}"} for key in keys)
    with Service(house_settings, ServeOptions(keys=keys, rate=1)) as service:
        assert service.get("/v1/collections", **first).status == 200
        refused = service.get("/v1/collections", **first)
        assert (refused.status, refused.error) == (429, "Too many requests")
        assert int(refused.headers["retry-after"]) >= 1
        assert service.get("/v1/collections", **other).status == 200
        assert service.get("/readyz", **first).status == 200, "those who watch it are not counted"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_all_bytes_of_a_request_count_for_the_rate_limit(house_settings: Settings, is_chunked: bool) -> None:
    body = json.dumps({"query": "beans", "module": ["x" * 60] * 100}).encode()
    with Service(house_settings, ServeOptions(rate=1)) as service:
        if is_chunked:
            head = POST.replace(b"/retrieve", b"/v1/search") + b"Transfer-Encoding: chunked\r\n"
            chunk = b"Connection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            assert service.wire(head + chunk).split()[1] == b"200"
        else:
            assert service.ask("POST", "/v1/search", raw=body).status == 200
        refused = service.post("/v1/search", {"query": "beans"})
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) > 600, "14 minutes, for 6 500 bytes"


def test_concurrent_searches(service: Service) -> None:
    def ask(query: str) -> tuple[str, list[str]]:
        body = service.post("/v1/search", {"query": query}).json()
        return body["query"], [result["id"] for result in body["results"]]

    queries = ["What is ROS 2?", "robot navigation", "digital twin", "URDF joints", "sensor noise"]
    alone = dict(map(ask, queries))
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, queries * 10)) == list(alone.items()) * 10
    metrics = service.get("/metrics").body.decode()
    values = dict(re.findall(r"\nrecto_batch_queries_(sum|count) (\S+)", metrics))
    assert float(values["sum"]) > float(values["count"]), "some were embedded together"


def test_too_many_connections(house_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are always free descriptors: to accept, to open the index, to log."""
    monkeypatch.setattr(listening.BoundedProtocol, "limit", 5)
    with Service(house_settings) as service, connections(service, 20) as idle:
        for _ in range(3):
            assert service.get("/healthz").status == 200
        closed = [one for one in idle if _is_closed(one)]
        assert len(closed) >= 15
        assert closed[:15] == idle[:15], "the oldest are closed first"


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_batches_are_bounded(service: Service) -> None:
    reply = service.post("/v1/batch", {"queries": ["x" * 2000] * 9})
    assert (reply.status, reply.error) == (400, "The queries must have at most 16000 characters together")
    reply = service.post("/v1/batch", {"queries": ["beans"] * 11, "top_k": 100})
    assert (reply.status, reply.error) == (400, "The number of queries times top_k must be at most 1000")
    assert service.post("/v1/batch", {"queries": ["beans"] * 10, "top_k": 100}).status == 200


async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Send an endless response for a second."""
    await send(START)
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.5)
    protocol = listening.BoundedProtocol
    config = uvicorn.Config(endless, http=protocol, lifespan="off", ws="none", log_config=None)
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


def arriving(messages: Sequence[Message]) -> Receive:
    """Return a `receive` that gives the messages in order, and then waits."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def scope(path: str = "/retrieve", **headers: str) -> Scope:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "path": path, "query_string": b"", "headers": raw, "client": ("127.0.0.1", 1)}


def test_a_full_queue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request runs and two wait; requests that stop waiting make room for others."""
    monkeypatch.setattr(limits, "MAX_WAITING", 2)
    end = asyncio.Event()
    running: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        running.append(scope["path"])
        await end.wait()

    async def main() -> None:
        limited = LimitsMiddleware(app, concurrency=1)

        def start(path: str) -> asyncio.Task[None]:
            return asyncio.create_task(limited(scope(path), arriving([part(b"{}")]), ignore))

        async def settle() -> None:
            for _ in range(10):
                await asyncio.sleep(0)

        first, second, third = (start(path) for path in ("/1", "/2", "/3"))
        await settle()
        refused = start("/4")
        await settle()
        error = refused.exception()
        assert isinstance(error, Refused)
        assert (error.reason, error.refusal.status, error.refusal.headers) == (
            *("queue", 503),
            (("Retry-After", "1"),),
        )
        second.cancel()
        await settle()
        last = start("/5")
        await settle()
        assert running == ["/1"]
        end.set()
        await asyncio.gather(first, third, last)
        assert running == ["/1", "/3", "/5"]

    asyncio.run(main())


async def ignore(_message: Message) -> None:
    pass


async def empty(_scope: Scope, _receive: Receive, _send: Send) -> None:
    pass


def admitted(app: ASGIApp, receive: Receive, deadline: float, send: Send) -> tuple[CurrentRequest, str]:
    """Run an application behind the limits; return the request, and why it was refused."""
    requests: list[CurrentRequest] = []

    async def tracked(scope: Scope, receive: Receive, send: Send) -> None:
        requests.append(current_request())
        await app(scope, receive, send)

    async def main() -> str:
        try:
            await LimitsMiddleware(tracked, deadline=deadline)(scope(), receive, send)
        except Refused as refused:
            return refused.reason
        return ""

    reason = asyncio.run(main())
    return requests[0], reason


@pytest.mark.parametrize(
    ("messages", "deadline", "reason"), [([LEFT], 60.0, "disconnect"), ([], 0.05, "timeout")]
)
def test_threads_stop_if_nobody_waits(messages: list[Message], deadline: float, reason: str) -> None:
    cancelled: list[bool] = []

    async def working(_scope: Scope, _receive: Receive, _send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(current_request().cancelled.is_set())

    request, refused = admitted(working, arriving([part(b"{}"), *messages]), deadline, ignore)
    assert (refused, cancelled) == (reason, [True])
    assert request.cancelled.is_set()


def test_a_response_that_has_started_is_not_followed_by_an_error() -> None:
    """A client that reads slowly keeps `send` waiting until the deadline has passed."""
    sent: list[Message] = []

    async def started(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    request, refused = admitted(started, arriving([part(b"{}")]), 0.05, send)
    assert (refused, sent) == ("", [START])
    assert request.cancelled.is_set()
    assert not request.disconnected.is_set()


def test_the_end_of_a_response_is_not_taken_for_a_client_that_left() -> None:
    """The server reports a disconnect as soon as it has sent the whole response."""
    messages: list[Message] = [part(b"{}")]
    answered = asyncio.Event()

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await answered.wait()
        return LEFT

    async def slow_to_return(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        await send({"type": "http.response.body", "body": b"{}"})
        answered.set()
        for _ in range(10):
            await asyncio.sleep(0)

    request, refused = admitted(slow_to_return, receive, 60.0, ignore)
    assert refused == ""
    assert not request.disconnected.is_set()


def test_refusals_for_the_rate_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not wait would otherwise keep the service busy with refusals."""
    pauses: list[float] = []

    async def record(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(limits, "sleep", record)
    monkeypatch.setattr(limits, "REFUSAL_SECONDS", 1.0)
    limited = LimitsMiddleware(empty, RateLimiter(1))

    async def main() -> None:
        await limited(scope(), arriving([part(b"")]), ignore)
        assert pauses == []
        with pytest.raises(Refused, match="Too many requests"):
            await limited(scope(), arriving([part(b"")]), ignore)

    asyncio.run(main())
    assert pauses == [1.0]


def test_a_request_may_take_more_time() -> None:
    """An answer streams its response for longer than other requests take."""
    left: list[float] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        set_deadline(scope, 1000)
        when = scope[limits._DEADLINE].when()
        left.append(when - asyncio.get_running_loop().time())

    asyncio.run(LimitsMiddleware(app, deadline=60)(scope(), arriving([part(b"")]), ignore))
    assert 900 < left[0] <= 1000


def test_token_buckets_refill_and_a_costly_request_counts_as_several() -> None:
    now = 0.0
    rate = RateLimiter(60, lambda: now)

    def retry_after() -> str:
        with pytest.raises(Refused) as refused:
            rate.check("a")
        return dict(refused.value.refusal.headers)["Retry-After"]

    for _ in range(5):  # five seconds at one request per second
        rate.check("a")
    assert retry_after() == "1"
    rate.check("b")  # each caller has a bucket of its own
    for _ in range(1000):
        RateLimiter(0).check("a")
    now = 5.0
    assert rate.check("a", 21) == -16
    rate.charge("a", -16, 10)  # a batch
    with pytest.raises(Refused):
        rate.charge("a", 5, 1)  # a request that was admitted before the batch has emptied the bucket
    now = 30.0
    assert retry_after() == "2"
    now = 32.0
    rate.check("a")


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("198.51.100.7", 1), "198.51.100.7"),
        (("::ffff:198.51.100.7", 1), "198.51.100.7"),
        (("2001:db8:1:2::9", 1), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        (("a-socket", 0), "a-socket"),
        (None, "unknown"),
    ],
)
def test_addresses_of_one_subscriber_are_one_caller(client: tuple[str, int] | None, address: str) -> None:
    assert client_address({"client": client}) == address
