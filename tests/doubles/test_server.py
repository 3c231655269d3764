"""The base of all doubles: faults happen when and as often as a test asks for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.doubles.server import (
    Answer,
    Double,
    Fault,
    Request,
    answer_json,
    delay,
    drop,
    hang,
    reset,
    slow_drip,
    status,
)


class Echo(Double):
    def answer(self, request: Request) -> Answer:
        return answer_json([request.method, request.path, request.query, request.body])


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as double:
        yield double


@pytest.fixture
def client(echo: Echo) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=echo.url, timeout=20) as client:
        yield client


def test_faults_happen_once_and_in_order_before_permanent_ones(echo: Echo, client: httpx.Client) -> None:
    echo.always(status(500), path="/b")
    echo.script(status(502), status(503, headers={"Retry-After": "3"}), path="*/b")
    echo.script(status(404))
    codes = [client.get(path).status_code for path in ("/a", "/b", "/b", "/b", "/a")]
    assert codes == [404, 502, 503, 500, 200]
    echo.always(None)
    assert client.put("/b?wait=true", json={"x": 1}).json() == ["PUT", "/b", {"wait": "true"}, {"x": 1}]
    assert [request.path for request in echo.requests] == ["/a", "/b", "/b", "/b", "/a", "/b"]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (drop(), httpx.RemoteProtocolError),
        (reset(), httpx.ReadError),
        (slow_drip(0.01, 0.1), httpx.RemoteProtocolError),
    ],
)
def test_broken_connections(
    echo: Echo, client: httpx.Client, fault: Fault, error: type[httpx.HTTPError]
) -> None:
    echo.script(fault)
    with pytest.raises(error):
        client.post("/", json=list(range(1000)))
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("fault", [hang(), delay(20), slow_drip(20, 30)])
def test_closing_ends_running_faults(fault: Fault) -> None:
    start = time.monotonic()
    with Echo() as double, ThreadPoolExecutor() as pool:
        double.always(fault)
        waiting = [pool.submit(httpx.get, double.url, timeout=15) for _ in range(3)]
        while len(double.requests) < 3:
            time.sleep(0.01)
        double.__exit__(None, None, None)
        for one in waiting:
            with pytest.raises(httpx.RemoteProtocolError):
                one.result()
    assert time.monotonic() - start < 10


def test_an_error_in_the_double_is_raised_when_it_closes() -> None:
    with pytest.raises(NotImplementedError), Double() as double:
        assert httpx.get(double.url).status_code == 500
