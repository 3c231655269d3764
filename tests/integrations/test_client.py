"""The code that the adapters share, without any framework."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import json
import logging
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from recto import api
from recto.errors import install_command
from recto.integrations import CollectionClient, metadata
from recto.search.retriever import Retriever

QUESTION = "What is a ROS 2 node?"


def test_metadata(retriever: Retriever) -> None:
    response = retriever.search(QUESTION)
    hit = response.hits[0]
    found = metadata(hit, response)
    assert json.loads(json.dumps(found)) == found
    assert found["url"] == f"{hit.chunk.page_url}#{hit.chunk.anchor}"
    assert (found["title"], found["module"], found["score"]) == (hit.chunk.title, "ros2", hit.score)
    assert (found["mode"], found["dense"], found["lexical"]) == ("hybrid", hit.dense, hit.lexical)
    assert found["above_noise"] is True
    assert found["headings"] == list(hit.chunk.headings)


def test_threads_share_one(retriever: Retriever, sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    connect, connections, ready = api.connect, [], threading.Barrier(4)

    def counted(collection: str | None = None) -> Retriever:
        connections.append(collection)
        return connect(collection)

    def ask(_: int) -> str:
        ready.wait(30)
        return client.search(QUESTION, {"top_k": 1}).hits[0].chunk.id

    monkeypatch.setattr(api, "connect", counted)
    client = CollectionClient("rag_embedding")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) == {retriever.search(QUESTION).hits[0].chunk.id}
    assert connections == ["rag_embedding"]
    lexical = CollectionClient("rag_embedding").asearch(
        QUESTION, {"top_k": 1, "module": "ros2", "mode": "lexical"}
    )
    assert asyncio.run(lexical).hits
    client.retriever().close()


def test_no_results_are_logged(retriever: Retriever, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "recto")
    assert not CollectionClient(retriever=retriever).search(QUESTION, {"module": ["ros3"]}).hits
    assert "Did you mean 'ros2'?" in caplog.text


@pytest.mark.parametrize(
    ("adapter", "package"),
    [
        ("langchain", "langchain_core"),
        ("llamaindex", "llama_index"),
        ("haystack", "haystack"),
        ("mkdocs", "mkdocs"),
    ],
)
def test_the_extra_is_missing(adapter: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named '{package}'", name=package)
        return load(name, *rest)

    monkeypatch.delitem(sys.modules, f"recto.integrations.{adapter}", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=re.escape(install_command(adapter))):
        importlib.import_module(f"recto.integrations.{adapter}")
