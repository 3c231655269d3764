"""Test the server with an embedder of OpenAI's API: it goes down, returns, and gets another model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.embedders import openai as module
from recto.settings import Settings, load_settings
from tests.doubles.openai import OpenAIDouble
from tests.doubles.server import Fault, reset, status
from tests.running import recto, wait_until
from tests.server.http.service import Reply, Service

LEXICAL = {"query": "dough", "mode": "lexical"}


@pytest.fixture
def double() -> Iterator[OpenAIDouble]:
    with OpenAIDouble("ollama") as made:
        yield made


@pytest.fixture
def settings(double: OpenAIDouble, home: Path, small_book: Path) -> Settings:
    """A book that is indexed as `garden`, with the vectors of the double."""
    values = {"RECTO_EMBEDDER": "openai", "RECTO_OPENAI_URL": double.base, "RECTO_MODEL": double.model}
    done = recto(home, "index", str(small_book), "--collection", "garden", **values)
    assert done.returncode == 0, done.stderr
    return load_settings({**values, "RECTO_HOME": str(home), "COLLECTION_NAME": "garden"}, home)


def dense(service: Service, query: str = "Knead the dough") -> Reply:
    return service.post("/v1/search", {"query": query, "mode": "dense"})


def best_url(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    url: str = reply.json()["results"][0]["url"]
    return url


@pytest.mark.parametrize("fault", [reset(), status(429)], ids=["reset", "rate limit"])
def test_the_embedder_goes_down_and_returns(settings: Settings, double: OpenAIDouble, fault: Fault) -> None:
    with Service(settings) as service:
        assert "seeds" in best_url(dense(service, "When do I sow beans?"))
        assert double.embedded()[-1][0] == "search_query: When do I sow beans?"
        double.always(fault)
        for _ in range(2):  # the second time, the circuit breaker is open
            reply = dense(service)
            assert reply.status == 503
            assert "unreachable" in reply.error
            assert reply.json()["hint"]
            assert int(reply.headers["retry-after"]) > 0
            assert double.url not in reply.body.decode()
            assert service.post("/v1/search", {"query": "dough"}).status == 503, "hybrid needs vectors"
            assert "bread" in best_url(service.post("/v1/search", LEXICAL))
            assert "bread" in best_url(service.get("/v1/search?q=dough&mode=lexical"))
        assert service.get("/v1/pages").status == 200
        double.always(None)
        wait_until(lambda: dense(service).status == 200)
        double.always(reset())
        assert dense(service).status == 503
        double.always(None)
        double.weights = 7
        wait_until(lambda: dense(service).status != 503)
        assert dense(service).status == 500, "the first answer after a broken connection is checked"


@pytest.mark.parametrize("change", ["weights", "dim"])
def test_another_model_while_the_service_runs(
    settings: Settings,
    double: OpenAIDouble,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: str,
) -> None:
    monkeypatch.setattr(module, "_CHECK_AGAIN", -1.0)
    with Service(settings) as service, caplog.at_level(logging.WARNING):
        before = dense(service).json()["results"]
        setattr(double, change, getattr(double, change) + 7)
        for path in ("/v1/search", "/retrieve"):
            reply = service.post(path, {"query": "Knead the dough"})
            assert reply.status == 500, "not results of vectors that cannot be compared"
            assert "not configured correctly" in reply.error
            assert "recto doctor" in reply.json()["hint"]
        words = f"another model under the name {double.model}" if change == "weights" else "numbers; before"
        assert any(words in record.getMessage() for record in caplog.records), (
            "the operator learns the reason"
        )
        assert "bread" in best_url(service.post("/v1/search", LEXICAL))
        setattr(double, change, getattr(double, change) - 7)
        assert dense(service).json()["results"] == before, "the model is restored"
