"""The embedder of OpenAI's API over real sockets, against doubles of nine servers."""

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
from recto.embedders.openai import OpenAIEmbedder
from recto.embedders.openai_wire import Endpoint, KnownModel, count_tokens, known_model
from recto.errors import ConfigurationError, EmbeddingError, FingerprintMismatch, RectoError
from recto.settings import OpenAIOptions
from tests.doubles.openai import API_VERSION, FLAVOURS, OpenAIDouble
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


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_server(flavour: str, told: list[Any], waits: list[Any], make: Make) -> None:
    model = "voyage-3.5" if flavour == "voyage" else "bge-base-en-v1.5"
    with OpenAIDouble(flavour, model, KEY) as double:
        embedder = make(double)
        vectors = embedder.embed_documents(TEXTS)
        for text, vector in list(zip(TEXTS, vectors, strict=True))[::20]:
            alone = embedder.embed_documents([text])[0]
            assert vector == pytest.approx(alone, abs=1e-6), "in a batch as alone"
        both = embedder.embed_queries(["rain", "soil"])
        assert embedder.embed_query("soil") == pytest.approx(both[1], abs=1e-6)
        assert (embedder.dim, embedder.max_tokens) == (256, 32_000 if flavour == "voyage" else 512)
        assert any("not normalised" in line for line in embedder.describe()) == (flavour == "llamacpp")
        assert KEY not in "".join(embedder.describe())
        assert not waits + told
        for request in double.requests:
            assert ("authorization" in request.headers) == (flavour in {"openai", "voyage"})
            assert ("api-key" in request.headers) == (flavour == "azure")
            if flavour == "azure" and request.path.endswith("/embeddings"):
                assert request.query["api-version"] == API_VERSION


@pytest.mark.parametrize(
    ("model", "setting", "tokens", "origin"),
    [
        ("nomic-embed-text", None, 2048, "says the model card"),
        ("nomic-embed-text", 77, 77, "RECTO_OPENAI_MAX_TOKENS"),
        ("my-own-model", None, 512, "assumed: set RECTO_OPENAI_MAX_TOKENS"),
    ],
)
def test_lengths_of_models(model: str, setting: int | None, tokens: int, origin: str, make: Make) -> None:
    with OpenAIDouble("ollama", model) as double:
        embedder = make(double, max_tokens=setting)
        assert embedder.max_tokens == tokens
        assert any(f"Reads {tokens} tokens ({origin})" in line for line in embedder.describe())


@pytest.mark.parametrize(
    ("name", "query", "document", "tokens"),
    [
        ("nomic-embed-text:latest", "search_query: ", "search_document: ", 2048),
        ("intfloat/multilingual-e5-large", "query: ", "passage: ", 512),
        ("BAAI/bge-m3", "", "", 8192),
        ("BAAI/bge-small-en-v1.5", REPRESENT, "", 512),
        ("mxbai-embed-large", REPRESENT, "", 512),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "query: ", "", 8192),
        ("snowflake-arctic-embed", REPRESENT, "", 512),
        ("embeddinggemma:300m", "task: search result | query: ", "title: none | text: ", 2048),
        ("text-embedding-3-small", "", "", 8191),
        ("Alibaba-NLP/gte-large-en-v1.5", "", "", 8192),
        ("granite-embedding:30m", "", "", 512),
        ("ibm-granite/granite-embedding-english-r2", "", "", 8192),
        ("voyage-2", "", "", 4000),
        ("voyage-law-2", "", "", 16_000),
    ],
)
def test_known_models(name: str, query: str, document: str, tokens: int) -> None:
    assert known_model(name) == KnownModel(query, document, tokens)


def test_models_without_a_sure_prefix_are_not_known() -> None:
    names = ("my-own-model", "jina-embeddings-v3", "jinaai/jina-embeddings-v4", "voyage-lite-01")
    assert {known_model(name) for name in names} == {KnownModel()}


def test_prefixes(double: OpenAIDouble, embedder: OpenAIEmbedder, make: Make) -> None:
    embedder.embed_query("soil")
    embedder.embed_documents(["worms"])
    assert ["search_query: soil"] in double.embedded()
    assert double.embedded()[-1] == [f"search_document: {text}" for text in ("worms", PROBE_TEXTS[0])]
    assert embedder.count_tokens("worms") > count_tokens("", "worms")
    other = make(double, query_prefix="ask: ", document_prefix="")
    other.embed_query("soil")
    other.embed_documents(["worms"])
    assert double.embedded()[-1] == ["worms", PROBE_TEXTS[0]]
    assert ["ask: soil"] in double.embedded()
    assert other.fingerprint.variant == "no prefix"
    assert not other.fingerprint.is_compatible(embedder.fingerprint), "documents have another prefix"


def test_voyage_has_input_types_and_its_own_dimension(make: Make) -> None:
    with OpenAIDouble("voyage", "voyage-3.5", KEY) as double:
        embedder = make(double, dimensions=64)
        embedder.embed_query("soil")
        embedder.embed_documents(["worms"])
        assert embedder.dim == 64
        sent = [request.body for request in double.requests if request.path.endswith("/embeddings")]
        types = {body["input"][0]: body["input_type"] for body in sent}
        assert (types["soil"], types["worms"]) == ("query", "document")
        assert sent[-1]["truncation"] is False, "no document is cut"


def test_input_types_of_other_servers(double: OpenAIDouble, make: Make) -> None:
    make(double, input_types=("query", "passage")).embed_query("soil")
    assert [request.body["input_type"] for request in double.requests] == ["passage", "query", "query"]


def test_dimensions(make: Make) -> None:
    with OpenAIDouble("openai", "text-embedding-3-small", KEY) as double:
        embedder = make(double, dimensions=64)
        assert embedder.fingerprint.dim == len(embedder.embed_query("x")) == 64
    ignores = "ignores RECTO_OPENAI_DIMENSIONS=64, and returns 256"
    for flavour, words in {"lmstudio": ignores, "vllm": "matryoshka"}.items():
        with OpenAIDouble(flavour) as double:
            with pytest.raises(ConfigurationError, match=words) as caught:
                make(double, dimensions=64).warm_up()
            assert "Unset it" in caught.value.hint


def test_vectors_are_ordered_by_their_index(double: OpenAIDouble, embedder: OpenAIEmbedder) -> None:
    expected = embedder.embed_documents(TEXTS)
    double.reverse = True
    for vector, other in zip(embedder.embed_documents(TEXTS), expected, strict=True):
        assert vector == pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize("url", ["{}", "{}/", "{}/v1/", "{}/v1/embeddings"])
def test_any_form_of_the_address(double: OpenAIDouble, url: str, make: Make) -> None:
    assert make(double, url=url.format(double.url)).dim == 256


def test_a_server_without_v1_in_its_paths(make: Make) -> None:
    with OpenAIDouble("infinity") as double:
        assert make(double).dim == 256
        with pytest.raises(ConfigurationError, match="no embeddings API") as caught:
            make(double, url=double.url).warm_up()
        assert "up to /embeddings" in caught.value.hint


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
    monkeypatch.setattr(module, "_CHECK_AGAIN", -1.0)
    embedder = make(double, **options)
    expected = embedder.embed_query("soil")
    assert embedder.embed_query("soil") == pytest.approx(expected)
    assert len(embedder.embed_documents(["soil", "rain"])) == 2
    double.weights = 5
    for embed in (lambda: embedder.embed_query("soil"), lambda: embedder.embed_documents(["soil"])):
        with pytest.raises(FingerprintMismatch, match="now has another model") as caught:
            embed()
        assert "recto index" in caught.value.hint


def test_every_batch_of_documents_is_checked(waits: list[float], make: Make) -> None:
    with OpenAIDouble("tei") as double:
        embedder = make(double)
        assert len(embedder.embed_documents(TEXTS)) == len(TEXTS)
        assert [len(texts) for texts in double.embedded()][-3:] == [32, 32, 19], "TEI takes 32 texts"

        def replace_model(done: int, total: int) -> None:
            double.weights = 5

        with pytest.raises(FingerprintMismatch, match="now has another model"):
            embedder.embed_documents(TEXTS, replace_model)
        assert waits == [], "a retry does not help"


def test_a_broken_connection_checks_the_model(double: OpenAIDouble, embedder: OpenAIEmbedder) -> None:
    embedder.warm_up()
    double.script(drop(), drop())
    with pytest.raises(EmbeddingError, match="broke"):
        embedder.embed_query("soil")
    embedder.embed_query("soil")
    assert len(double.embedded()[-1]) == 2
    embedder.embed_query("soil")
    assert len(double.embedded()[-1]) == 1


@pytest.mark.parametrize("fault", [drop(), reset()])
def test_a_connection_that_the_server_has_closed_is_replaced(
    double: OpenAIDouble, embedder: OpenAIEmbedder, waits: list[float], fault: Fault
) -> None:
    expected = embedder.embed_query("soil")
    for embed in (embedder.embed_query, lambda text: in_a_loop(embedder, text)[0]):
        double.script(fault)
        assert embed("soil") == pytest.approx(expected)
    assert waits == []


def test_probes() -> None:
    assert not is_same_probe("1", "1"), "only probes are compared by their angle"
    assert not is_same_probe("probe-", "probe-")
    assert not is_same_probe("probe-!", "probe-!")


# Long texts


def test_a_server_that_cuts_in_silence(double: OpenAIDouble, embedder: OpenAIEmbedder) -> None:
    embedder.embed_documents(["short"])
    double.max_tokens = 100
    with pytest.raises(EmbeddingError, match="ignores the end of a text of 192 tokens") as caught:
        embedder.embed_documents(["soil " * 150])
    assert "RECTO_OPENAI_MAX_TOKENS" in caught.value.hint


@pytest.mark.parametrize("flavour", ["tei", "vllm", "llamacpp"])
def test_a_text_that_the_server_refuses(flavour: str, waits: list[float], make: Make) -> None:
    with OpenAIDouble(flavour) as double:
        embedder = make(double, max_tokens=2000)
        double.max_tokens = 600
        with pytest.raises(EmbeddingError, match="too large") as caught:
            embedder.embed_documents(["a short one", "soil " * 700, "another"])
        assert "RECTO_OPENAI_MAX_TOKENS" in caught.value.hint
        assert waits == []
        assert len(embedder.embed_query("soil " * 700)) == 256, "a query is cut"


@pytest.mark.parametrize("flavour", ["tei", "infinity", "openai"])
def test_a_batch_that_the_server_refuses(flavour: str, make: Make) -> None:
    with OpenAIDouble(flavour, api_key=KEY) as double:
        embedder = make(double, batch_size=64)
        double.max_texts = 16
        seen: list[tuple[int, int]] = []
        vectors = embedder.embed_documents(TEXTS, lambda done, total: seen.append((done, total)))
        assert vectors[::10] == [embedder.embed_documents([text])[0] for text in TEXTS[::10]]
        assert seen[-1] == (80, 80)
        assert seen == sorted(seen)
        calls = len(double.embedded())
        embedder.embed_documents(TEXTS)
        assert max(map(len, double.embedded()[calls:])) <= 16, "the smaller size is remembered"


def test_a_text_beyond_the_limit_is_not_sent(double: OpenAIDouble, embedder: OpenAIEmbedder) -> None:
    with pytest.raises(EmbeddingError, match="longer than the 2048 tokens"):
        embedder.embed_documents(["short", "soil " * 3000])
    assert not any("soil" in text for texts in double.embedded() for text in texts if len(text) > 12_000)


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
        (status(404, b"page not found"), ConfigurationError, "no embeddings API at"),
        (refuses(400, "input cannot be empty"), EmbeddingError, r"\(400\): input cannot be empty"),
        (status(400, {"detail": [{"msg": "field required"}]}), EmbeddingError, "field required$"),
        (status(400, b""), EmbeddingError, "no reason given"),
        (refuses(400, "Pooling type 'none' is not OAI compatible."), EmbeddingError, "Pooling type"),
        (refuses(429, "Rate limit reached"), EmbeddingError, "The rate limit of"),
        (refuses(429, "You exceeded your current quota"), EmbeddingError, "quota"),
        (status(429, headers={"Retry-After": "500"}), EmbeddingError, "rate limit"),
        (status(500, {"error": "json: unsupported value: NaN"}), EmbeddingError, "fails on a text"),
        (refuses(501, "not supported"), EmbeddingError, "does not support embeddings"),
        (status(502, b"<html>Bad gateway</html>"), EmbeddingError, r"not available \(502\)"),
        (status(302, b"", {"Location": f"http://x/?k={KEY}"}), ConfigurationError, "redirects to http://x/$"),
        (drop(), EmbeddingError, "broke"),
        (reset(), EmbeddingError, "broke"),
        (rubbish(), EmbeddingError, "a web page instead of JSON"),
        (rubbish("OK"), EmbeddingError, "a text instead of JSON"),
        (rubbish({}), EmbeddingError, "no vectors"),
        (rubbish({"error": "Unexpected endpoint"}), EmbeddingError, "Unexpected endpoint"),
        (rubbish({"error": "input is too long"}), EmbeddingError, "too large"),
        (status(422, {"detail": "batch size 1 > maximum allowed batch size 0"}), EmbeddingError, "too large"),
        (rubbish({"data": ["x"]}), EmbeddingError, "no vectors"),
        (rubbish({"data": []}), EmbeddingError, "0 vectors for 1 texts"),
        (returns([1.0] * 256, index=3), EmbeddingError, "which belongs to which"),
        *((returns(vector), EmbeddingError, "cannot be read") for vector in (None, "?", [None] * 256)),
        (returns([[0.5] * 256]), EmbeddingError, "every token"),
        *((returns([number] * 256), EmbeddingError, "zero or not finite") for number in (float("nan"), 0.0)),
        (returns([0.5, 0.5]), FingerprintMismatch, "vector of 2 numbers"),
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
            tries = 2 if "broke" in words else 1  # the server may have closed an idle connection
            assert len(double.embedded()) == calls + tries, "no hidden retries"
        assert waits == []


def in_a_loop(embedder: OpenAIEmbedder, *texts: str) -> list[list[float]]:
    async def embed() -> list[list[float]]:
        try:
            return await embedder.aembed_queries(texts)
        finally:
            await embedder.aclose()

    return asyncio.run(embed())


@pytest.mark.parametrize("flavour", ["ollama", "infinity", "openai", "azure"])
def test_a_model_that_the_server_does_not_have(flavour: str, make: Make) -> None:
    with OpenAIDouble(flavour, api_key=KEY) as double:
        embedder = make(double, model="nomic", url=double.base.replace("nomic-embed-text", "nomic"))
        with pytest.raises(ConfigurationError, match=r"does not have .* nomic") as caught:
            embedder.warm_up()
        assert ("nomic-embed-text" in caught.value.hint) == (flavour != "azure")
        assert "RECTO_MODEL" in caught.value.hint


def test_a_missing_key(make: Make) -> None:
    with OpenAIDouble("openai", api_key="right") as double, pytest.raises(ConfigurationError, match="a key"):
        make(double, api_key="").warm_up()


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


def test_requests_to_azure() -> None:
    options = OpenAIOptions(url="https://name.openai.azure.com", api_key=KEY)
    endpoint = Endpoint(options, "my-deployment")
    assert endpoint.embed(["x"], 0, 1).arguments["url"] == f"{options.url}/openai/v1/embeddings"
    assert endpoint.client_options()["headers"]["api-key"] == KEY
    deployment = f"{options.url}/openai/deployments/d"
    older = Endpoint(replace(options, url=f"{deployment}?api-version=1"), "d")
    assert older.embed(["x"], 0, 1).arguments["url"] == f"{deployment}/embeddings?api-version=1"
    assert older.shown == deployment


@pytest.mark.parametrize("fault", [hang(30), slow_drip(0.05, 30)])
def test_query_deadline(
    double: OpenAIDouble, embedder: OpenAIEmbedder, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    embedder.warm_up()
    monkeypatch.setattr(module, "_QUERY_SECONDS", 0.5)
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
