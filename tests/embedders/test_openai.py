"""The embedder of OpenAI's API over real sockets, against doubles of six servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto._util import PROBE_TEXTS, is_same_probe
from recto._util.retry import retry_after
from recto.embedders import openai as module
from recto.embedders.model_cards import ModelCard, model_card, model_languages
from recto.embedders.openai import OpenAIEmbedder, count_tokens
from recto.errors import ConfigurationError, EmbeddingError, FingerprintMismatch, RectoError
from recto.settings import OpenAIOptions
from tests.doubles.openai import FLAVOURS, OpenAIDouble
from tests.doubles.server import Fault, drop, hang, refused_url, reset, rubbish, slow_drip, status

KEY = "sk-secret-1234567890"
TEXTS = [f"text number {number} about soil" for number in range(80)]
REPRESENT = "Represent this sentence for searching relevant passages: "
Make = Callable[..., OpenAIEmbedder]


@pytest.fixture
def make(told: list[str], waits: list[float]) -> Iterator[Make]:
    """Return a function that opens embedders, which are closed after the test."""
    opened: list[OpenAIEmbedder] = []

    def make(double: OpenAIDouble, model: str = "", url: str = "", **options: Any) -> OpenAIEmbedder:
        key = KEY if double.rules.needs_key else ""
        changed = replace(OpenAIOptions(url=url or double.base, api_key=key), **options)
        opened.append(OpenAIEmbedder(changed, model or double.model, told.append, waits.append))
        return opened[-1]

    yield make
    for embedder in opened:
        embedder.close()


@pytest.fixture
def double() -> Iterator[OpenAIDouble]:
    with OpenAIDouble("ollama") as created:
        yield created


@pytest.fixture
def embedder(double: OpenAIDouble, make: Make) -> OpenAIEmbedder:
    return make(double)


def in_a_loop(embedder: OpenAIEmbedder, *texts: str) -> list[list[float]]:
    async def embed() -> list[list[float]]:
        try:
            return await embedder.aembed_queries(texts)
        finally:
            await embedder.aclose()

    return asyncio.run(embed())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_server(flavour: str, told: list[Any], waits: list[Any], make: Make) -> None:
    with OpenAIDouble(flavour, "bge-base-en-v1.5", KEY) as double:
        embedder, seen = make(double), list[tuple[int, int]]()
        vectors = embedder.embed_documents(TEXTS, lambda done, total: seen.append((done, total)))
        assert [len(texts) for texts in double.embedded()] == [2, 32, 32, 19], "with the probe"
        assert seen == [(31, 80), (62, 80), (80, 80)]
        double.reverse = True  # the order is the order of `index`
        for text, vector in list(zip(TEXTS, vectors, strict=True))[::20]:
            alone = embedder.embed_documents([text])[0]
            assert vector == pytest.approx(alone, abs=1e-6), "in a batch as alone"
        both = embedder.embed_queries(["rain", "soil"])
        assert embedder.embed_query("soil") == pytest.approx(both[1], abs=1e-6)
        assert in_a_loop(embedder, "soil")[0] == pytest.approx(both[1], abs=1e-6)
        assert (embedder.dim, embedder.max_tokens) == (256, 512)
        assert embedder.describe() == (
            f"{double.base}: 256 dimensions, prefix of queries {REPRESENT!r}, of documents ''",
        )
        assert not waits + told
        for request in double.requests:
            assert ("authorization" in request.headers) == (flavour == "openai")


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("nomic-embed-text:latest", ModelCard("search_query: ", "search_document: ", 2048)),
        ("intfloat/multilingual-e5-large", ModelCard("query: ", "passage: ", 512)),
        ("BAAI/bge-m3", ModelCard("", "", 8192)),
        ("BAAI/bge-small-en-v1.5", ModelCard(REPRESENT, "", 512)),
        ("mxbai-embed-large", ModelCard(REPRESENT, "", 512)),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", ModelCard("query: ", "", 8192)),
        ("snowflake-arctic-embed", ModelCard(REPRESENT, "", 512)),
        ("embeddinggemma:300m", ModelCard("task: search result | query: ", "title: none | text: ", 2048)),
        ("text-embedding-3-small", ModelCard("", "", 8191)),
        ("Alibaba-NLP/gte-large-en-v1.5", ModelCard("", "", 8192)),
        ("granite-embedding:30m", ModelCard()),
        ("ibm-granite/granite-embedding-english-r2", ModelCard("", "", 8192)),
        *(
            (name, ModelCard())
            for name in ("my-own-model", "jina-embeddings-v3", "jinaai/jina-embeddings-v4")
        ),
    ],
)
def test_model_cards(name: str, card: ModelCard) -> None:
    assert model_card(name) == card


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("embed-english-v3.0", ("en",)),
        ("BAAI/bge-small-en-v1.5", ("en",)),
        ("jina-embeddings-v2-base-en", ("en",)),
        ("embed-multilingual-v3.0", ()),
        ("Qwen/Qwen3-Embedding-0.6B", ()),
        ("snowflake/encoder", ()),
    ],
)
def test_models_for_english_only_are_told_by_their_names(name: str, languages: tuple[str, ...]) -> None:
    assert model_languages(name) == languages


def test_prefixes_and_lengths(double: OpenAIDouble, embedder: OpenAIEmbedder, make: Make) -> None:
    embedder.embed_query("soil")
    embedder.embed_documents(["worms"])
    assert ["search_query: soil"] in double.embedded()
    assert double.embedded()[-1] == [f"search_document: {text}" for text in ("worms", PROBE_TEXTS[0])]
    assert embedder.count_tokens("worms") > count_tokens("", "worms")
    other = make(double, query_prefix="ask: ", document_prefix="", max_tokens=77)
    other.embed_query("soil")
    other.embed_documents(["worms"])
    assert double.embedded()[-1] == ["worms", PROBE_TEXTS[0]]
    assert ["ask: soil"] in double.embedded()
    assert (embedder.max_tokens, other.max_tokens) == (2048, 77)
    assert other.fingerprint.variant == "no prefix"
    assert not other.fingerprint.is_compatible(embedder.fingerprint), "documents have another prefix"


def test_long_texts(double: OpenAIDouble, embedder: OpenAIEmbedder) -> None:
    """A query is cut, and a document that is too long is not sent."""
    long = "soil " * 3000
    embedder.embed_query(long)
    assert 1000 < len(double.embedded()[-1][0].split()) < 2048
    calls = len(double.embedded())
    with pytest.raises(EmbeddingError, match="longer than the 2048 tokens"):
        embedder.embed_documents(["short", long])
    assert len(double.embedded()) == calls


def test_input_types(double: OpenAIDouble, make: Make) -> None:
    embedder = make(double, input_types=("query", "passage"))
    embedder.embed_query("soil")
    embedder.embed_documents(["soil"])
    assert [request.body["input_type"] for request in double.requests] == ["passage", "query", "passage"]


def test_dimensions(make: Make) -> None:
    with OpenAIDouble("openai", "text-embedding-3-small", KEY) as double:
        embedder = make(double, dimensions=64)
        assert embedder.fingerprint.dim == len(embedder.embed_query("x")) == 64
    ignores = "ignores RECTO_OPENAI_DIMENSIONS=64, and returns 256"
    for flavour, words in {"lmstudio": ignores, "vllm": "matryoshka"}.items():
        with OpenAIDouble(flavour) as double, pytest.raises(RectoError, match=words) as caught:
            make(double, dimensions=64).warm_up()
        assert caught.value.hint


@pytest.mark.parametrize("url", ["{}", "{}/", "{}/v1/", "{}/v1/embeddings", "{}/v1?tenant=a"])
def test_any_form_of_the_address(double: OpenAIDouble, url: str, make: Make) -> None:
    assert make(double, url=url.format(double.url)).dim == 256
    assert double.requests[-1].query.get("tenant") == ("a" if "tenant" in url else None)


# Other models behind the same name


@pytest.mark.parametrize(("change", "same"), [({"noise": 0.001}, True), ({"weights": 5}, False)])
def test_only_another_model_is_another_one(
    double: OpenAIDouble, embedder: OpenAIEmbedder, change: dict[str, Any], same: bool, make: Make
) -> None:
    before = embedder.fingerprint
    for name, value in change.items():
        setattr(double, name, value)
    other = make(double, model="nomic-embed-text:latest")
    assert other.fingerprint.model == before.model
    assert other.fingerprint.revision != before.revision
    assert other.fingerprint.is_compatible(before) is same


@pytest.mark.parametrize("options", [{}, {"input_types": ("query", "passage")}, {"batch_size": 1}])
def test_a_model_that_is_replaced_in_the_middle(
    double: OpenAIDouble, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], make: Make
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", -1.0)
    embedder = make(double, **options)
    expected = embedder.embed_query("soil")
    assert embedder.embed_query("soil") == pytest.approx(expected)
    assert len(embedder.embed_documents(["soil", "rain"])) == 2
    double.weights = 5
    for embed in (lambda: embedder.embed_query("soil"), lambda: embedder.embed_documents(["soil"])):
        with pytest.raises(FingerprintMismatch, match="now has another model") as caught:
            embed()
        assert "recto index" in caught.value.hint


def test_queries_are_checked_once_in_a_while(
    double: OpenAIDouble, embedder: OpenAIEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 1000.0)
    embedder.embed_query("soil")
    assert len(double.embedded()[-1]) == 1
    embedder._checked_at -= 1001
    embedder.embed_query("soil")
    assert len(double.embedded()[-1]) == 2, "with the probe"


def test_every_batch_of_documents_is_checked(
    double: OpenAIDouble, embedder: OpenAIEmbedder, waits: list[float]
) -> None:
    def replace_model(done: int, total: int) -> None:
        double.weights = 5

    with pytest.raises(FingerprintMismatch, match="now has another model"):
        embedder.embed_documents(TEXTS, replace_model)
    assert waits == [], "a retry does not help"


def test_probes() -> None:
    for revision in ("1", "probe-", "probe-!"):
        assert not is_same_probe(revision, revision), "only complete probes are compared by their angle"


# Errors


def refuses(code: int, message: str) -> Fault:
    return status(code, {"error": {"message": message}})


def returns(embedding: object, index: int = 0) -> Fault:
    return rubbish({"data": [{"index": index, "embedding": embedding}]})


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (refuses(401, f"bad key {KEY}"), ConfigurationError, r"refuses the key: bad key \*\*\*"),
        (status(403, {"error": "no"}), ConfigurationError, "refuses the key: no"),
        (status(404, b"page not found"), ConfigurationError, "has no embeddings API, or not the model"),
        (refuses(404, "model not found"), ConfigurationError, r"\(404\): model not found"),
        (refuses(400, "input cannot be empty"), EmbeddingError, r"\(400\): input cannot be empty"),
        (status(400, {"detail": [{"msg": "field required"}]}), EmbeddingError, "field required$"),
        (status(400, b""), EmbeddingError, "no reason given"),
        (status(413, {"message": "batch size 2 > 1"}), EmbeddingError, "batch size 2 > 1"),
        (
            refuses(429, "exceeded your current quota"),
            EmbeddingError,
            r"\(429\): exceeded your current quota",
        ),
        (status(429, headers={"Retry-After": "500"}), EmbeddingError, "limits the rate"),
        (status(502, b"<html>Bad gateway</html>"), EmbeddingError, r"not available \(502\)"),
        (status(302, b"", {"Location": f"http://x/?k={KEY}"}), ConfigurationError, "redirects to http://x/$"),
        (drop(), EmbeddingError, "Cannot connect to"),
        (reset(), EmbeddingError, "Cannot connect to"),
        (rubbish({"error": "Unexpected endpoint"}), EmbeddingError, "Unexpected endpoint"),
        *(
            (fault, EmbeddingError, "does not have one vector for each text")
            for fault in (
                rubbish(),
                *map(rubbish, ("OK", {}, {"data": ["x"]}, {"data": []})),
                *(returns(vector) for vector in (None, "?", [None] * 256, [[0.5] * 256])),
                returns([1.0] * 256, index=3),
            )
        ),
        *((returns([number] * 256), EmbeddingError, "zero or not finite") for number in (float("nan"), 0.0)),
        (returns([0.5, 0.5]), FingerprintMismatch, "another model"),
    ],
)
def test_a_query_fails_at_once_with_a_hint(
    waits: list[float], fault: Fault, kind: type[RectoError], words: str, make: Make
) -> None:
    with OpenAIDouble("openai", api_key=KEY) as double:
        embedder = make(double)
        embedder.warm_up()
        double.always(fault, "*/embeddings")
        for embed in (lambda: embedder.embed_query("soil"), lambda: in_a_loop(embedder, "soil")):
            calls = len(double.embedded())
            with pytest.raises(kind, match=words) as caught:
                embed()
            assert caught.value.hint
            assert KEY not in str(caught.value) + caught.value.hint
            tries = 2 if "connect" in words else 1  # the server may have closed an idle connection
            assert len(double.embedded()) == calls + tries, "no hidden retries"
        assert waits == []


@pytest.mark.parametrize("fault", [drop(), reset()])
def test_a_connection_that_the_server_has_closed_is_replaced(
    double: OpenAIDouble, embedder: OpenAIEmbedder, waits: list[float], fault: Fault
) -> None:
    expected = embedder.embed_query("soil")
    for embed in (embedder.embed_query, lambda text: in_a_loop(embedder, text)[0]):
        double.script(fault)
        assert embed("soil") == pytest.approx(expected)
    assert waits == []


def test_a_model_or_a_key_that_the_server_does_not_know(make: Make) -> None:
    with OpenAIDouble("openai", api_key=KEY) as double:
        with pytest.raises(ConfigurationError, match=r'model "other" not found') as caught:
            make(double, model="other").warm_up()
        assert "RECTO_MODEL" in caught.value.hint
        with pytest.raises(ConfigurationError, match="needs a key") as caught:
            make(double, api_key="").warm_up()
        assert "RECTO_OPENAI_API_KEY" in caught.value.hint


def test_a_redirect_is_not_followed(make: Make) -> None:
    with OpenAIDouble("openai", api_key=KEY) as double, OpenAIDouble("openai", api_key=KEY) as other:
        double.always(status(307, b"", {"Location": f"{other.url}/v1/embeddings"}))
        with pytest.raises(ConfigurationError, match="redirects"):
            make(double).warm_up()
        assert other.requests == []


def test_connection_refused(told: list[str], waits: list[float]) -> None:
    url = refused_url()
    embedder = OpenAIEmbedder(OpenAIOptions(url=url), "x", told.append, waits.append)
    with pytest.raises(EmbeddingError, match=f"Cannot connect to {url}/v1") as caught:
        embedder.warm_up()
    assert "Is the server running?" in caught.value.hint
    assert waits == []


def test_proxies_do_not_see_requests_to_this_machine(
    double: OpenAIDouble, embedder: OpenAIEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, refused_url())
    assert embedder.dim == 256


@pytest.mark.parametrize("fault", [hang(30), slow_drip(0.05, 30)])
def test_query_deadline(double: OpenAIDouble, embedder: OpenAIEmbedder, fault: Fault) -> None:
    embedder.warm_up()
    embedder.query_seconds = 0.5
    double.always(fault)
    began = time.monotonic()
    with pytest.raises(EmbeddingError, match="did not answer in time"):
        embedder.embed_query("x")
    assert time.monotonic() - began < 20


def test_a_server_that_loads_the_model(waits: list[float], make: Make) -> None:
    with OpenAIDouble("llamacpp") as double:
        double.script(*[status(503, {"error": {"code": 503, "message": "Loading model"}})] * 5)
        assert make(double).dim == 256
        assert waits == [2.0] * 5


def test_documents_are_retried_with_backoff(
    double: OpenAIDouble, embedder: OpenAIEmbedder, waits: list[float], told: list[str]
) -> None:
    embedder.embed_documents(["a text"])
    double.script(status(500), status(429, headers={"Retry-After": "7"}), drop(), drop(), rubbish({}))
    assert len(embedder.embed_documents(["a text"])) == 1
    assert waits == [1.0, 7.0, 4.0, 8.0]
    assert all("waiting" in line for line in told)
    double.always(status(503))
    with pytest.raises(EmbeddingError, match="not available"):
        embedder.embed_documents(["a text"])
    assert len(waits) == 4 + 5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 50.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 -0000"}, 50.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, lambda: 10.0) == seconds


def test_token_counts_are_upper_estimates() -> None:
    """Compare with the tokenizer of the built-in model, a byte-level BPE."""
    from recto.embedders.granite.embedder import built_in_embedder

    real = built_in_embedder(Path("nowhere"), 1, "fp32", single_query=True)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text("utf-8")
        for start in range(0, len(text), 4000):
            piece = text[start : start + 600]
            assert count_tokens("", piece) >= real.count_tokens(piece), piece
