"""The doubles behave like the services: tested through the official SDKs, over real sockets."""

from __future__ import annotations

import gc
import json
import math
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import cohere
import httpx
import pytest
from cohere.core.api_error import ApiError
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from tests.doubles.cohere import CohereDouble, bag_of_words
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import (
    Answer,
    Double,
    Fault,
    Request,
    answer_json,
    delay,
    drop,
    hang,
    refused_url,
    reset,
    rubbish,
    slow_drip,
    status,
)

MODEL = "embed-english-v3.0"
DIM = 4

TLS = ssl.create_default_context()
"""Created once, because loading the certificates takes longer than most of these tests."""
get = partial(httpx.get, verify=TLS)
post = partial(httpx.post, verify=TLS)

PATIENT = 20.0
"""A timeout that is long enough on a busy machine."""


@pytest.fixture(autouse=True)
def _no_threads_are_left() -> Iterator[None]:
    """Check that no thread outlives its double; unclosed sockets raise warnings, which are errors."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture(autouse=True, scope="module")
def _collect_garbage() -> Iterator[None]:
    yield
    gc.collect()


class Echo(Double):
    def answer(self, request: Request) -> Answer:
        return answer_json(
            [
                request.method,
                request.path,
                request.query,
                request.body if request.body != b"\xff" else "rubbish",
            ]
        )


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as double:
        yield double


# The server and its faults


def test_requests_are_recorded(echo: Echo) -> None:
    start = time.monotonic()
    with httpx.Client(base_url=echo.url, verify=TLS) as client:
        assert client.put("/a/b?wait=true", json={"x": 1}, headers={"X-One": "two"}).json() == [
            "PUT",
            "/a/b",
            {"wait": "true"},
            {"x": 1},
        ]
        assert client.post("/c", content=b"\xff").status_code == 200, "on the same connection"
        assert client.get("/").json() == ["GET", "/", {}, None]
    first, second, third = echo.requests
    assert (first.method, first.path, first.headers["x-one"], first.body, first.size) == (
        "PUT",
        "/a/b",
        "two",
        {"x": 1},
        7,
    )
    assert (second.body, third.body) == (b"\xff", None)
    assert start <= first.at <= second.at <= third.at


def test_scripted_faults_happen_once_and_in_order(echo: Echo) -> None:
    echo.script(status(500), status(503), path="*/b")
    echo.script(status(404))
    with httpx.Client(base_url=echo.url, verify=TLS) as client:
        assert [client.get(path).status_code for path in ("/a", "/b", "/b", "/b", "/a")] == [
            404,
            500,
            503,
            200,
            200,
        ]


def test_scripted_faults_have_priority_over_permanent_ones(echo: Echo) -> None:
    echo.always(status(500), path="/b")
    echo.script(status(404))
    with httpx.Client(base_url=echo.url, verify=TLS) as client:
        assert [client.get(path).status_code for path in ("/b", "/a", "/b", "/b")] == [404, 200, 500, 500]
        echo.always(None)
        assert client.get("/b").status_code == 200


@pytest.mark.parametrize(
    ("fault", "kind", "body"),
    [
        (status(418, {"a": 1}), "application/json", b'{"a": 1}'),
        (status(418, "short and stout"), "text/plain", b"short and stout"),
        (status(418, "<p>"), "text/html", b"<p>"),
        (status(418, b"\x00\xff", content_type="application/x-tea"), "application/x-tea", b"\x00\xff"),
        (status(418), "application/json", b'{"message": "simulated error 418"}'),
    ],
)
def test_responses_are_sent_as_written(echo: Echo, fault: Fault, kind: str, body: bytes) -> None:
    echo.script(fault)
    answer = get(echo.url)
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (418, kind, body)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (drop(), httpx.RemoteProtocolError),
        (reset(), httpx.ReadError),
        (slow_drip(0.01, 0.1), httpx.RemoteProtocolError),
    ],
)
def test_broken_connections(echo: Echo, fault: Fault, error: type[Exception]) -> None:
    echo.script(fault)
    with pytest.raises(error):
        post(echo.url, json=list(range(1000)), timeout=PATIENT)
    assert get(echo.url).status_code == 200


def test_a_server_that_hangs(echo: Echo) -> None:
    echo.script(hang())
    with pytest.raises(httpx.ReadTimeout):
        get(echo.url, timeout=0.2)
    assert get(echo.url).status_code == 200


def test_a_fast_drip_is_a_complete_response(echo: Echo) -> None:
    echo.script(slow_drip(0.001, 10), delay(0.01))
    assert get(echo.url).json() == get(echo.url).json()


def test_a_dropped_response_can_follow_a_handled_request() -> None:
    with CohereDouble() as double, cohere_client(double) as client:
        double.script(drop(), drop(done=True))
        for calls in (0, 1):
            with pytest.raises(httpx.RemoteProtocolError):
                embed(client)
            assert double.calls == calls


def test_a_refused_url_refuses_connections() -> None:
    with pytest.raises(httpx.ConnectError):
        get(refused_url())


@pytest.mark.parametrize("fault", [hang(), delay(20), slow_drip(20, 30)])
def test_closing_ends_running_faults(fault: Fault) -> None:
    start = time.monotonic()
    with Echo() as double, ThreadPoolExecutor() as pool:
        double.always(fault)
        waiting = [pool.submit(get, double.url, timeout=15) for _ in range(3)]
        while len(double.requests) < 3:
            time.sleep(0.01)
        double.__exit__(None, None, None)
        for one in waiting:
            with pytest.raises(httpx.RemoteProtocolError):
                one.result()
    assert time.monotonic() - start < 10


def test_closing_does_not_wait_for_keep_alive_connections() -> None:
    with httpx.Client(verify=TLS) as client:
        with Echo() as double:
            assert client.get(double.url).status_code == 200
            address = double.url
        with pytest.raises(httpx.TransportError):
            client.get(address)


def test_an_error_in_the_double_is_raised_when_it_closes() -> None:
    with pytest.raises(NotImplementedError), Double() as double:
        assert get(double.url).status_code == 500


def test_many_clients_at_once(echo: Echo) -> None:
    with ThreadPoolExecutor(16) as pool, httpx.Client(verify=TLS) as client:
        assert list(pool.map(lambda number: client.post(echo.url, json=number).json()[3], range(64))) == list(
            range(64)
        )
    assert len(echo.requests) == 64


# Cohere


@contextmanager
def cohere_client(double: Double | str, key: str = "test-key") -> Iterator[cohere.ClientV2]:
    url = double if isinstance(double, str) else double.url
    with cohere.ClientV2(
        key, base_url=url, max_retries=0, httpx_client=httpx.Client(verify=TLS, timeout=PATIENT)
    ) as client:
        yield client


def embed(
    client: cohere.ClientV2,
    texts: list[str] | None = None,
    *,
    model: str = MODEL,
    input_type: str = "search_query",
) -> list[list[float]]:
    vectors = client.embed(texts=texts or ["one text"], model=model, input_type=input_type).embeddings.float_
    assert vectors is not None
    return vectors


@pytest.fixture
def co() -> Iterator[CohereDouble]:
    with CohereDouble() as double:
        yield double


def test_texts_that_share_words_have_similar_vectors(co: CohereDouble) -> None:
    passages = [
        "Worms keep the soil loose.",
        "Knead the dough, then let it rise.",
        "Sow beans after the last frost.",
    ]
    with cohere_client(co) as client:
        stored = embed(client, passages, input_type="search_document")
        asked = embed(client, ["What keeps soils loose?", "When are beans sown?", "kneading a dough"])
    assert {len(vector) for vector in stored + asked} == {1024}
    assert all(math.isclose(math.hypot(*vector), 1, abs_tol=1e-9) for vector in stored + asked)
    assert [best(question, stored) for question in asked] == [0, 2, 1]
    assert asked[0] == bag_of_words("What keeps soils loose?")
    assert (co.calls, co.texts, co.tokens, co.input_types) == (2, 6, 29, ["search_document", "search_query"])


def best(question: list[float], stored: list[list[float]]) -> int:
    scores = [sum(a * b for a, b in zip(question, vector, strict=True)) for vector in stored]
    return scores.index(max(scores))


def test_cohere_responses_are_complete(co: CohereDouble) -> None:
    with cohere_client(co) as client:
        answer = client.embed(
            texts=["red blue", "green"],
            model=MODEL,
            input_type="search_document",
            embedding_types=["float", "int8", "uint8", "binary", "ubinary", "base64"],
            truncate="END",
        )
    sent = co.requests[0]
    assert (sent.method, sent.path, sent.headers["authorization"]) == ("POST", "/v2/embed", "Bearer test-key")
    assert sent.body["input_type"] == "search_document"
    assert answer.response_type == "embeddings_by_type"
    assert answer.texts == ["red blue", "green"]
    assert answer.meta is not None
    assert answer.meta.billed_units is not None
    assert answer.meta.billed_units.input_tokens == 3
    vectors = answer.embeddings
    assert vectors.float_ is not None
    assert vectors.ubinary is not None
    assert vectors.int8 is not None
    assert [len(vector) for vector in vectors.float_] == [1024, 1024]
    assert [len(vector) for vector in vectors.ubinary] == [128, 128]
    assert (
        sum(byte.bit_count() for byte in vectors.ubinary[0])
        == sum(number > 0 for number in vectors.float_[0])
        == 2
    )
    assert max(vectors.int8[1]) == 127


@pytest.mark.parametrize(
    ("model", "size", "dim"),
    [("embed-multilingual-v3.0", None, 1024), ("embed-v4.0", None, 1536), ("embed-v4.0", 256, 256)],
)
def test_dimensions_of_models(co: CohereDouble, model: str, size: int | None, dim: int) -> None:
    with cohere_client(co) as client:
        answer = client.embed(texts=["a"], model=model, input_type="clustering", output_dimension=size)
    assert answer.embeddings.float_ is not None
    assert [len(vector) for vector in answer.embeddings.float_] == [dim]


def test_custom_vectors() -> None:
    seen = []

    def own(texts: list[str], input_type: str) -> list[list[float]]:
        seen.append((texts, input_type))
        return [[1.0, 0.0]] * len(texts)

    with CohereDouble(embed=own) as double, cohere_client(double) as client:
        assert embed(client, ["a", "b"]) == [[1.0, 0.0], [1.0, 0.0]]
    assert seen == [(["a", "b"], "search_query")]


BODY = {"texts": ["a"], "model": MODEL, "input_type": "search_query"}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            {"texts": ["a"] * 97},
            400,
            "invalid request: total number of texts must be at most 96 - received 97",
        ),
        ({"texts": []}, 400, "at least one"),
        ({"texts": ["a", " "]}, 400, "non-empty"),
        ({"texts": ["a", 1]}, 400, "non-empty strings"),
        ({"texts": None}, 400, "at least one"),
        ({"model": "embed-none"}, 404, "model 'embed-none' not found"),
        ({"input_type": None}, 400, "valid input_type must be provided"),
        ({"input_type": "question"}, 400, "valid input_type must be provided"),
        ({"output_dimension": 256}, 400, "output_dimension"),
        ({"model": "embed-v4.0", "output_dimension": 100}, 400, "output_dimension"),
        ({"embedding_types": ["double"]}, 400, "embedding_types"),
        ({"truncate": "MIDDLE"}, 400, "truncate"),
        ({"truncate": "NONE", "texts": ["word " * 513]}, 400, "too many tokens"),
    ],
)
def test_cohere_rejects_invalid_requests(
    co: CohereDouble, change: dict[str, object], code: int, message: str
) -> None:
    body = {key: value for key, value in {**BODY, **change}.items() if value is not None}
    answer = post(f"{co.url}/v2/embed", json=body, headers={"Authorization": "Bearer test-key"})
    assert (answer.status_code, set(answer.json())) == (code, {"id", "message"})
    assert message in answer.json()["message"]
    assert co.calls == 0


def test_long_texts_are_truncated_or_rejected(co: CohereDouble) -> None:
    words = [f"w{number}" for number in range(600)]
    with cohere_client(co) as client:
        start, end = (
            client.embed(
                texts=[" ".join(words)], model=MODEL, input_type="search_query", truncate=side
            ).embeddings.float_
            for side in ("START", "END")
        )
    assert start == [bag_of_words(" ".join(words[-512:]))]
    assert end == [bag_of_words(" ".join(words[:512]))]
    assert co.tokens == 1024


def test_other_cohere_endpoints_do_not_exist(co: CohereDouble) -> None:
    headers = {"Authorization": "Bearer test-key"}
    assert post(f"{co.url}/v1/embed", json=BODY, headers=headers).status_code == 404
    assert get(f"{co.url}/v2/embed", headers=headers).status_code == 405
    assert post(f"{co.url}/v2/embed", content=b"{", headers=headers).status_code == 400
    assert post(f"{co.url}/v2/embed", json=BODY).status_code == 401


def test_cohere_faults_raise_what_the_sdk_documents(co: CohereDouble) -> None:
    with cohere_client(co, "wrong") as client, pytest.raises(cohere.UnauthorizedError) as caught:
        embed(client)
    assert caught.value.body["message"] == "invalid api token"
    with cohere_client(co) as client, pytest.raises(cohere.BadRequestError):
        embed(client, ["a"] * 97)


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        (status(401), cohere.UnauthorizedError, 401),
        (status(402), ApiError, 402),
        (status(403), cohere.ForbiddenError, 403),
        (status(404), cohere.NotFoundError, 404),
        (status(422), cohere.UnprocessableEntityError, 422),
        (status(429), cohere.TooManyRequestsError, 429),
        (status(498), cohere.InvalidTokenError, 498),
        (status(500), cohere.InternalServerError, 500),
        (status(503), cohere.ServiceUnavailableError, 503),
        (status(503, "<html>busy</html>"), ApiError, 503),
        (rubbish(), ApiError, 200),
        (drop(), httpx.RemoteProtocolError, None),
        (reset(), httpx.ReadError, None),
        (slow_drip(0.01, 0.1), httpx.RemoteProtocolError, None),
    ],
)
def test_each_fault_through_the_sdk(
    co: CohereDouble, fault: Fault, error: type[Exception], code: int | None
) -> None:
    co.script(fault)
    with cohere_client(co) as client:
        with pytest.raises(error) as caught:
            embed(client)
        assert type(caught.value) is error
        assert getattr(caught.value, "status_code", None) == code
        assert len(co.requests) == 1, "the SDK did not try again"
        assert len(embed(client)) == 1


def test_a_server_that_hangs_through_the_sdk(co: CohereDouble) -> None:
    co.script(hang())
    with cohere_client(co) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.embed(
                texts=["a"], model=MODEL, input_type="search_query", request_options={"timeout": 0.2}
            )
        assert len(embed(client)) == 1


def test_the_sdk_passes_retry_after_on(co: CohereDouble) -> None:
    co.script(status(429, headers={"Retry-After": "2"}))
    with cohere_client(co) as client, pytest.raises(cohere.TooManyRequestsError) as caught:
        embed(client)
    assert caught.value.headers is not None
    assert caught.value.headers["retry-after"] == "2"


def test_the_sdk_does_not_check_responses(co: CohereDouble) -> None:
    co.script(
        rubbish({}),
        rubbish({"embeddings": {"float": "abc"}}),
        rubbish({"embeddings": {"float": [[0.1, 0.2]]}}),
    )
    with cohere_client(co) as client:
        answers = [
            client.embed(texts=["a", "b"], model=MODEL, input_type="search_query").embeddings
            for _ in range(3)
        ]
    assert [answer and answer.float_ for answer in answers] == [None, "abc", [[0.1, 0.2]]]


def test_a_refused_connection_through_the_sdk() -> None:
    with cohere_client(refused_url()) as client, pytest.raises(httpx.ConnectError):
        embed(client)


@pytest.mark.parametrize(
    ("limits", "texts", "message"),
    [
        (
            {"calls_per_minute": 2},
            ["a"],
            "You are using a Trial key, which is limited to 2 API calls / minute.",
        ),
        (
            {"inputs_per_minute": 5},
            ["a", "b"],
            "trial input rate limit exceeded, limit is 5 inputs per minute",
        ),
        (
            {"tokens_per_minute": 8},
            ["a b", "c"],
            "trial token rate limit exceeded, limit is 8 tokens per minute",
        ),
    ],
)
def test_limits_are_per_minute(limits: dict[str, Any], texts: list[str], message: str) -> None:
    now = [0.0]
    with (
        CohereDouble(**limits, retry_after=7, clock=lambda: now[0]) as double,
        cohere_client(double) as client,
    ):
        embed(client, texts)
        now[0] = 30.0
        embed(client, texts)
        for now[0] in (31.0, 59.0):
            with pytest.raises(cohere.TooManyRequestsError) as caught:
                embed(client, texts)
            assert caught.value.body["message"] == message
            assert (caught.value.headers or {})["retry-after"] == "7"
        now[0] = 60.0
        embed(client, texts)
    assert double.calls == 3


# Qdrant


@contextmanager
def qdrant_client(double: Double | str, key: str | None = None) -> Iterator[QdrantClient]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Api key is used with an insecure connection")
        url = double if isinstance(double, str) else double.url
        client = QdrantClient(
            url=url, api_key=key, check_compatibility=False, timeout=int(PATIENT), verify=TLS
        )
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def qd() -> Iterator[QdrantDouble]:
    with QdrantDouble() as double:
        yield double


@pytest.fixture
def qdrant(qd: QdrantDouble) -> Iterator[QdrantClient]:
    with qdrant_client(qd) as client:
        yield client


def axis(place: int) -> list[float]:
    return [float(number == place % DIM) for number in range(DIM)]


def only(module: str) -> models.Filter:
    return models.Filter(must=[models.FieldCondition(key="module", match=models.MatchValue(value=module))])


@pytest.fixture
def book(qdrant: QdrantClient) -> QdrantClient:
    """A collection of twelve points in three modules, with the four unit vectors in turn."""
    qdrant.create_collection(
        "book",
        vectors_config=models.VectorParams(size=DIM, distance=models.Distance.COSINE),
        metadata={"model": "m", "old": 1},
    )
    qdrant.create_payload_index(
        "book", "module", models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    )
    qdrant.create_payload_index("book", "place", models.PayloadSchemaType.INTEGER)
    points = [
        models.PointStruct(
            id=n, vector=axis(n), payload={"module": "abc"[n % 3], "place": 11 - n, "note": None, "text": "é"}
        )
        for n in range(12)
    ]
    qdrant.upsert("book", points)
    return qdrant


def refusal(code: int, act: Callable[[], object]) -> str:
    """Return the error text of a call that is rejected."""
    with pytest.raises(UnexpectedResponse) as caught:
        act()
    assert caught.value.status_code == code
    text = caught.value.structured()["status"]["error"]
    assert isinstance(text, str)
    return text


def test_the_server_version() -> None:
    with QdrantDouble(version="1.15.3", api_key="k") as double, qdrant_client(double) as client:
        assert (client.info().version, client.info().title) == ("1.15.3", "qdrant - vector search engine")
        assert get(f"{double.url}/readyz").text == "readyz check passed"
        assert get(f"{double.url}/nowhere", headers={"api-key": "k"}).status_code == 404


def test_collections_are_created_and_deleted(qdrant: QdrantClient) -> None:
    config = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    assert not qdrant.collection_exists("book")
    assert qdrant.create_collection("book", vectors_config=config)
    assert qdrant.collection_exists("book")
    assert [one.name for one in qdrant.get_collections().collections] == ["book"]
    assert (
        refusal(409, lambda: qdrant.create_collection("book", vectors_config=config))
        == "Wrong input: Collection `book` already exists!"
    )
    assert qdrant.delete_collection("book")
    assert not qdrant.delete_collection("book")
    assert not qdrant.get_collections().collections


def test_missing_collections(qdrant: QdrantClient) -> None:
    calls: list[Callable[[], object]] = [
        lambda: qdrant.get_collection("x"),
        lambda: qdrant.update_collection("x", metadata={"a": 1}),
        lambda: qdrant.query_points("x", query=axis(0)),
        lambda: qdrant.query_batch_points("x", requests=[models.QueryRequest(query=axis(0))]),
        lambda: qdrant.count("x"),
        lambda: qdrant.scroll("x"),
        lambda: qdrant.facet("x", "module"),
        lambda: qdrant.retrieve("x", [1]),
        lambda: qdrant.upsert("x", [models.PointStruct(id=1, vector=axis(0))]),
        lambda: qdrant.delete("x", [1]),
        lambda: qdrant.create_payload_index("x", "module", models.PayloadSchemaType.KEYWORD),
        lambda: qdrant.delete_payload_index("x", "module"),
        lambda: qdrant.get_collection_aliases("x"),
    ]
    for call in calls:
        assert refusal(404, call) == "Not found: Collection `x` doesn't exist!"


def test_collection_info(book: QdrantClient) -> None:
    info = book.get_collection("book")
    assert (info.status, info.optimizer_status, info.points_count) == (
        models.CollectionStatus.GREEN,
        models.OptimizersStatusOneOf.OK,
        12,
    )
    assert info.config.params.vectors == models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    assert (info.config.params.shard_number, info.config.params.replication_factor) == (1, 1)
    assert info.config.metadata == {"model": "m", "old": 1}
    assert info.config.strict_mode_config is not None
    assert info.config.strict_mode_config.enabled
    assert {key: (index.data_type, index.points) for key, index in info.payload_schema.items()} == {
        "module": (models.PayloadSchemaType.KEYWORD, 12),
        "place": (models.PayloadSchemaType.INTEGER, 12),
    }
    assert info.payload_schema["module"].params == models.KeywordIndexParams(
        type=models.KeywordIndexType.KEYWORD, is_tenant=True
    )


def test_parameters_are_stored_and_updated(qdrant: QdrantClient) -> None:
    qdrant.create_collection(
        "book",
        vectors_config={"text": models.VectorParams(size=DIM, distance=models.Distance.DOT, on_disk=False)},
        shard_number=12,
        on_disk_payload=False,
        hnsw_config=models.HnswConfigDiff(m=0, payload_m=16),
        optimizers_config=models.OptimizersConfigDiff(indexing_threshold=0),
        quantization_config=models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        ),
    )
    made = qdrant.get_collection("book").config
    assert (
        made.params.shard_number,
        made.params.on_disk_payload,
        made.hnsw_config.m,
        made.hnsw_config.payload_m,
    ) == (12, False, 0, 16)
    assert made.optimizer_config.indexing_threshold == 0
    assert isinstance(made.quantization_config, models.ScalarQuantization)
    qdrant.update_collection(
        "book",
        vectors_config={"text": models.VectorParamsDiff(on_disk=True)},
        optimizers_config=models.OptimizersConfigDiff(indexing_threshold=20_000),
        hnsw_config=models.HnswConfigDiff(m=16),
        collection_params=models.CollectionParamsDiff(replication_factor=2),
        strict_mode_config=models.StrictModeConfig(enabled=False),
    )
    now = qdrant.get_collection("book").config
    assert isinstance(now.params.vectors, dict)
    assert (now.params.vectors["text"].on_disk, now.params.replication_factor, now.params.shard_number) == (
        True,
        2,
        12,
    )
    assert (now.optimizer_config.indexing_threshold, now.hnsw_config.m, now.hnsw_config.payload_m) == (
        20_000,
        16,
        16,
    )
    assert qdrant.count("book", count_filter=only("a")).count == 0, "strict mode can be switched off"


def test_metadata_is_merged_and_null_deletes(book: QdrantClient) -> None:
    assert book.update_collection("book", metadata={"old": None, "new": [1, {"a": None}]})
    assert book.get_collection("book").config.metadata == {"model": "m", "new": [1, {"a": None}]}


def test_older_servers_have_no_metadata() -> None:
    with QdrantDouble(version="1.15.0", metadata_supported=False) as double, qdrant_client(double) as client:
        client.create_collection(
            "b",
            vectors_config=models.VectorParams(size=DIM, distance=models.Distance.COSINE),
            metadata={"a": 1},
        )
        assert client.update_collection("b", metadata={"a": 2})
        assert client.get_collection("b").config.metadata is None
        assert "metadata" not in get(f"{double.url}/collections/b").json()["result"]["config"]


def test_points_are_found(book: QdrantClient) -> None:
    found = book.query_points("book", query=[0.1, 1.0, 0.0, 0.0], limit=4, with_vectors=True).points
    assert {point.id for point in found[:3]} == {1, 5, 9}
    assert found[3].id in {0, 4, 8}
    assert found[0].score == pytest.approx(1 / math.hypot(0.1, 1), abs=1e-6)
    assert found[0].vector == axis(1)
    assert {point.id: point.payload for point in found}[1] == {
        "module": "b",
        "place": 10,
        "note": None,
        "text": "é",
    }
    assert {point.id for point in book.query_points("book", query=axis(2), score_threshold=0.5).points} == {
        2,
        6,
        10,
    }
    assert [
        point.id for point in book.query_points("book", query=axis(2), query_filter=only("a"), limit=1).points
    ] == [6]
    assert len(book.query_points("book", query=axis(2), limit=100, offset=9).points) == 3
    assert (
        book.query_points("book", query=axis(2), with_payload=["module"], score_threshold=0.5)
        .points[0]
        .payload
        is not None
    )
    assert (
        len(
            book.query_points(
                "book", query=axis(2), search_params=models.SearchParams(exact=True, hnsw_ef=64)
            ).points
        )
        == 10
    )


def test_a_bare_vector_is_a_query(book: QdrantClient, qd: QdrantDouble) -> None:
    answer = post(f"{qd.url}/collections/book/points/query", json={"query": axis(3), "limit": 3}).json()
    assert (answer["status"], answer["usage"], {point["id"] for point in answer["result"]["points"]}) == (
        "ok",
        None,
        {3, 7, 11},
    )
    assert answer["result"]["points"][0]["payload"] is None
    book.query_points("book", query=axis(3))
    assert qd.requests[-1].body["query"] == {"nearest": axis(3)}


def test_batches_have_no_payload_by_default(book: QdrantClient) -> None:
    requests = [
        models.QueryRequest(query=axis(n), filter=only("a"), limit=1, with_payload=bool(n)) for n in range(2)
    ]
    first, second = book.query_batch_points("book", requests=requests)
    assert [(point.id, point.payload) for point in first.points] == [(0, None)]
    assert [(point.id, (point.payload or {})["module"]) for point in second.points] == [(9, "a")]


def test_points_are_counted(book: QdrantClient) -> None:
    assert book.count("book").count == 12
    assert book.count("book", count_filter=only("b")).count == 4
    between = models.Filter(must=[models.FieldCondition(key="place", range=models.Range(gte=10))])
    assert book.count("book", count_filter=between).count == 2
    by_id = models.Filter(must_not=[models.HasIdCondition(has_id=[1, 2])])
    assert book.count("book", count_filter=by_id).count == 10


def test_scrolling_returns_every_point_once(book: QdrantClient) -> None:
    seen: list[object] = []
    offset = None
    while True:
        points, offset = book.scroll("book", limit=5, offset=offset, with_payload=False, with_vectors=True)
        seen += [point.id for point in points]
        assert all(point.vector and point.payload is None for point in points)
        if offset is None:
            break
    assert seen == list(range(12))
    points, _ = book.scroll("book", scroll_filter=only("c"), limit=100)
    assert [point.id for point in points] == [2, 5, 8, 11]


def test_facets_need_an_index(book: QdrantClient) -> None:
    assert {hit.value: hit.count for hit in book.facet("book", "module").hits} == {"a": 4, "b": 4, "c": 4}
    assert [hit.value for hit in book.facet("book", "module", facet_filter=only("b")).hits] == ["b"]
    assert len(book.facet("book", "module", limit=2).hits) == 2
    assert "No appropriate index for faceting: `text`" in refusal(400, lambda: book.facet("book", "text"))
    book.delete_payload_index("book", "module")
    assert "No appropriate index for faceting: `module`" in refusal(400, lambda: book.facet("book", "module"))


def test_points_are_read_by_id(book: QdrantClient) -> None:
    points = book.retrieve("book", [3, 99, 1], with_vectors=True)
    assert [(point.id, point.vector, (point.payload or {})["place"]) for point in points] == [
        (3, axis(3), 8),
        (1, axis(1), 10),
    ]
    assert book.retrieve("book", [3])[0].vector is None


def test_points_are_written_in_both_forms(book: QdrantClient, qd: QdrantDouble) -> None:
    name = "9bd7d0a0-0b1c-4b8e-9a52-9f0f3f6a1a11"
    done = book.upsert(
        "book",
        models.Batch(ids=[name, 20], vectors=[axis(0), axis(1)], payloads=[{"module": "z"}, {"module": "z"}]),
    )
    assert "batch" in qd.requests[-1].body
    assert done.status == models.UpdateStatus.COMPLETED
    later = book.upsert("book", [models.PointStruct(id=20, vector=axis(2), payload={})], wait=False)
    assert later.status == models.UpdateStatus.ACKNOWLEDGED
    assert (later.operation_id or 0) > (done.operation_id or 0)
    assert [point.id for point in book.scroll("book", scroll_filter=only("z"))[0]] == [name]
    book.upload_points("book", (models.PointStruct(id=n, vector=axis(n)) for n in range(100, 230)), wait=True)
    assert book.count("book").count == 12 + 2 + 130


def test_points_are_deleted_by_id_and_by_filter(book: QdrantClient) -> None:
    book.delete("book", [0, 99])
    assert book.count("book").count == 11
    book.delete("book", models.FilterSelector(filter=only("b")))
    assert book.count("book").count == 7
    assert not book.query_points("book", query=axis(1), query_filter=only("b")).points


def test_named_vectors(qdrant: QdrantClient) -> None:
    size = models.Distance.COSINE
    qdrant.create_collection(
        "two",
        vectors_config={
            "a": models.VectorParams(size=2, distance=size),
            "b": models.VectorParams(size=3, distance=size),
        },
    )
    qdrant.upsert(
        "two",
        [
            models.PointStruct(id=1, vector={"a": [1.0, 0.0], "b": [0.0, 0.0, 1.0]}),
            models.PointStruct(id=2, vector={"a": [0.0, 1.0]}),
        ],
    )
    assert [point.id for point in qdrant.query_points("two", query=[0.0, 1.0], using="a").points] == [2, 1]
    assert [point.id for point in qdrant.query_points("two", query=[0.0, 1.0, 0.0], using="b").points] == [1]
    assert qdrant.retrieve("two", [1], with_vectors=["b"])[0].vector == {"b": [0, 0, 1]}
    assert (
        refusal(400, lambda: qdrant.query_points("two", query=[0.0, 1.0]))
        == "Wrong input: Not existing vector name error: "
    )
    assert (
        refusal(400, lambda: qdrant.query_points("two", query=[0.0, 1.0], using="c"))
        == "Wrong input: Not existing vector name error: c"
    )
    wrong = "Wrong input: Vector dimension error: expected dim: 3, got 2"
    assert refusal(400, lambda: qdrant.query_points("two", query=[0.0, 1.0], using="b")) == wrong
    assert (
        refusal(400, lambda: qdrant.upsert("two", [models.PointStruct(id=3, vector={"b": [0.0, 1.0]})]))
        == wrong
    )


def test_wrong_dimensions_are_rejected(book: QdrantClient) -> None:
    wrong = "Wrong input: Vector dimension error: expected dim: 4, got 2"
    points = [models.PointStruct(id=50, vector=axis(0)), models.PointStruct(id=51, vector=[1.0, 2.0])]
    assert refusal(400, lambda: book.upsert("book", points)) == wrong
    assert refusal(400, lambda: book.query_points("book", query=[1.0, 2.0])) == wrong
    assert (
        refusal(
            400, lambda: book.query_batch_points("book", requests=[models.QueryRequest(query=[1.0, 2.0])])
        )
        == wrong
    )
    assert book.count("book").count == 12


def test_invalid_requests_are_rejected(book: QdrantClient, qd: QdrantDouble) -> None:
    assert "limit: value 0 invalid" in refusal(422, lambda: book.query_points("book", query=axis(0), limit=0))
    for body in (b"{", b"[1]", b'{"query": {"closest": [1]}}', b'{"filter": {"mus": []}}'):
        answer = post(f"{qd.url}/collections/book/points/query", content=body)
        assert answer.status_code == 400
        assert answer.json()["status"]["error"].startswith("Format error in JSON body")


def unindexed(key: str, kind: str = "keyword") -> str:
    return (
        f'Bad request: Index required but not found for "{key}" of one of the following types: [{kind}]. '
        "Help: Create an index for this key or use a different filter."
    )


def test_strict_mode_needs_an_index_for_every_key_of_a_filter(book: QdrantClient) -> None:
    text = models.FieldCondition(key="text", match=models.MatchValue(value="é"))
    plain = models.Filter(must=[text])
    calls: list[Callable[[models.Filter], object]] = [
        lambda given: book.query_points("book", query=axis(0), query_filter=given),
        lambda given: book.query_points(
            "book", prefetch=models.Prefetch(query=axis(0), filter=given), query=axis(0)
        ),
        lambda given: book.query_batch_points(
            "book", requests=[models.QueryRequest(query=axis(0), filter=given)]
        ),
        lambda given: book.count("book", count_filter=given),
        lambda given: book.scroll("book", scroll_filter=given),
        lambda given: book.facet("book", "module", facet_filter=given),
        lambda given: book.delete("book", models.FilterSelector(filter=given)),
    ]
    for call in calls:
        assert refusal(400, lambda call=call: call(plain)) == unindexed("text")  # type: ignore[misc]
    nested = [
        models.Filter(should=[models.Filter(must_not=[text])]),
        models.Filter(min_should=models.MinShould(conditions=[text], min_count=1)),
        models.Filter(must=[only("a"), text]),
    ]
    for given in nested:
        assert refusal(400, lambda given=given: book.count("book", count_filter=given)) == unindexed("text")  # type: ignore[misc]
    inner = models.NestedCondition(nested=models.Nested(key="parts", filter=plain))
    assert refusal(400, lambda: book.count("book", count_filter=models.Filter(must=[inner]))) == unindexed(
        "parts[].text"
    )
    empty = models.Filter(must=[models.IsEmptyCondition(is_empty=models.PayloadField(key="text"))])
    assert 'not found for "text"' in refusal(400, lambda: book.count("book", count_filter=empty))
    book.create_payload_index("book", "text", models.PayloadSchemaType.KEYWORD)
    for call in calls:
        call(plain)
    assert book.count("book").count == 0, "the last of them deleted all"


def test_the_index_must_have_the_right_type(book: QdrantClient) -> None:
    number = models.Filter(must=[models.FieldCondition(key="module", match=models.MatchAny(any=[1, 2]))])
    assert refusal(400, lambda: book.count("book", count_filter=number)) == unindexed("module", "integer")
    book.create_payload_index("book", "module", models.PayloadSchemaType.INTEGER)
    assert refusal(400, lambda: book.count("book", count_filter=only("a"))) == unindexed("module")


def test_without_strict_mode_only_facets_need_an_index() -> None:
    with QdrantDouble(strict=False) as double, qdrant_client(double) as client:
        client.create_collection(
            "b", vectors_config=models.VectorParams(size=DIM, distance=models.Distance.COSINE)
        )
        client.upsert("b", [models.PointStruct(id=1, vector=axis(0), payload={"module": "a"})])
        assert client.count("b", count_filter=only("a")).count == 1
        assert "faceting" in refusal(400, lambda: client.facet("b", "module"))


def test_aliases_are_switched_atomically(book: QdrantClient) -> None:
    def create(alias: str, name: str) -> models.CreateAliasOperation:
        return models.CreateAliasOperation(
            create_alias=models.CreateAlias(alias_name=alias, collection_name=name)
        )

    def delete(alias: str) -> models.DeleteAliasOperation:
        return models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))

    config = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    book.create_collection("book_v2", vectors_config=config)
    book.update_collection_aliases([create("current", "book")])
    assert book.collection_exists("current")
    assert book.count("current").count == 12
    book.upsert("current", [models.PointStruct(id=77, vector=axis(0))])
    assert book.count("book").count == 13
    assert refusal(
        404, lambda: book.update_collection_aliases([delete("current"), create("current", "none")])
    ).startswith("Not found")
    assert [one.alias_name for one in book.get_collection_aliases("book").aliases] == ["current"], (
        "nothing of a refused change counts"
    )
    book.update_collection_aliases([delete("current"), create("current", "book_v2")])
    assert book.count("current").count == 0
    assert {one.alias_name: one.collection_name for one in book.get_aliases().aliases} == {
        "current": "book_v2"
    }
    assert refusal(409, lambda: book.update_collection_aliases([create("book", "book_v2")])).startswith(
        "Wrong input"
    )
    assert "Alias with the same name" in refusal(
        400, lambda: book.create_collection("current", vectors_config=config)
    )
    assert not book.delete_collection("current"), "an alias is no collection"
    renamed = models.RenameAliasOperation(
        rename_alias=models.RenameAlias(old_alias_name="current", new_alias_name="newest")
    )
    book.update_collection_aliases([renamed])
    assert refusal(404, lambda: book.update_collection_aliases([renamed])).startswith(
        "Not found: Alias current"
    )
    assert book.delete_collection("book_v2")
    assert not book.get_aliases().aliases
    assert not book.collection_exists("newest")


def test_the_key_is_checked() -> None:
    with QdrantDouble(api_key="right") as double:
        for key, message in (
            (None, b"Must provide an API key or an Authorization bearer token"),
            ("wrong", b"Invalid API key or JWT"),
        ):
            with qdrant_client(double, key) as client, pytest.raises(UnexpectedResponse) as caught:
                client.get_collections()
            assert (caught.value.status_code, caught.value.content) == (401, message)
        with qdrant_client(double, "right") as client:
            assert client.get_collections().collections == []
        assert get(f"{double.url}/collections", headers={"Authorization": "Bearer right"}).status_code == 200


def test_large_bodies_are_rejected() -> None:
    assert QdrantDouble.max_body == 33_554_432
    with QdrantDouble(max_body=2000) as double, qdrant_client(double) as client:
        client.create_collection(
            "b", vectors_config=models.VectorParams(size=DIM, distance=models.Distance.COSINE)
        )
        text = refusal(
            400,
            lambda: client.upsert(
                "b", [models.PointStruct(id=1, vector=axis(0), payload={"text": "x" * 5_000_000})]
            ),
        )
        assert (
            text
            == f"Payload error: JSON payload ({double.requests[-1].size} bytes) is larger than allowed (limit: 2000 bytes)."
        )
        assert client.count("b").count == 0


def test_two_doubles_share_nothing() -> None:
    with (
        QdrantDouble() as one,
        QdrantDouble() as other,
        qdrant_client(one) as client,
        qdrant_client(other) as second,
    ):
        client.create_collection(
            "b", vectors_config=models.VectorParams(size=DIM, distance=models.Distance.COSINE)
        )
        assert not second.collection_exists("b")


def test_many_clients_of_qdrant_at_once(book: QdrantClient) -> None:
    def work(number: int) -> int:
        book.upsert(
            "book", [models.PointStruct(id=1000 + number, vector=axis(number), payload={"module": "many"})]
        )
        return len(book.query_points("book", query=axis(number), limit=5).points)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(40))) == {5}
    assert book.count("book", count_filter=only("many")).count == 40


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500])
def test_each_status_through_the_sdk(qd: QdrantDouble, qdrant: QdrantClient, code: int) -> None:
    qd.script(status(code))
    with pytest.raises(UnexpectedResponse) as caught:
        qdrant.get_collections()
    assert caught.value.status_code == code
    assert f"simulated error {code}".encode() in caught.value.content
    assert qdrant.get_collections().collections == []
    assert len(qd.requests) == 2, "the client does not try again by itself"


def test_html_is_an_unexpected_response(qd: QdrantDouble, qdrant: QdrantClient) -> None:
    qd.script(status(503, "<html>busy</html>"))
    with pytest.raises(UnexpectedResponse, match="503") as caught:
        qdrant.get_collections()
    assert caught.value.headers["content-type"] == "text/html"


def test_retry_after_is_another_exception(qd: QdrantDouble, qdrant: QdrantClient) -> None:
    qd.script(status(429, headers={"Retry-After": "3"}))
    with pytest.raises(ResourceExhaustedResponse) as caught:
        qdrant.get_collections()
    assert (caught.value.retry_after_s, str(caught.value)) == (3, "simulated error 429")


@pytest.mark.parametrize(
    ("fault", "source"),
    [
        (drop(), httpx.RemoteProtocolError),
        (reset(), httpx.ReadError),
        (slow_drip(0.01, 0.1), httpx.RemoteProtocolError),
    ],
)
def test_broken_connections_through_the_qdrant_sdk(
    qd: QdrantDouble, book: QdrantClient, fault: Fault, source: type[Exception]
) -> None:
    qd.script(fault, path="*/points/query")
    assert book.count("book").count == 12, "another path does not meet the fault"
    with pytest.raises(ResponseHandlingException) as caught:
        book.query_points("book", query=axis(0))
    assert isinstance(caught.value.source, source)
    assert len(book.query_points("book", query=axis(0)).points) == 10


def test_a_server_that_hangs_through_the_qdrant_sdk(qd: QdrantDouble, book: QdrantClient) -> None:
    qd.script(hang())
    with pytest.raises(ResponseHandlingException) as caught:
        book.query_points("book", query=axis(0), timeout=1)
    assert isinstance(caught.value.source, httpx.ReadTimeout)
    assert len(book.query_points("book", query=axis(0)).points) == 10


def test_an_upsert_with_a_lost_response_was_done(qd: QdrantDouble, book: QdrantClient) -> None:
    qd.script(drop(done=True))
    with pytest.raises(ResponseHandlingException):
        book.upsert("book", [models.PointStruct(id=12, vector=axis(0))])
    assert book.count("book").count == 13


def test_unexpected_bodies_through_the_qdrant_sdk(qd: QdrantDouble, qdrant: QdrantClient) -> None:
    qd.script(rubbish(), rubbish({}), rubbish({"result": {"count": "many"}}))
    with pytest.raises(json.JSONDecodeError):
        qdrant.count("book")
    with pytest.raises(AssertionError, match="Count points returned None result"):
        qdrant.count("book")
    with pytest.raises(ResponseHandlingException):
        qdrant.count("book")


def test_a_refused_connection_through_the_qdrant_sdk() -> None:
    with qdrant_client(refused_url()) as client, pytest.raises(ResponseHandlingException) as caught:
        client.get_collections()
    assert isinstance(caught.value.source, httpx.ConnectError)


def test_late_responses_are_accepted(qd: QdrantDouble, qdrant: QdrantClient) -> None:
    qd.script(delay(0.05))
    assert qdrant.get_collections().collections == []
