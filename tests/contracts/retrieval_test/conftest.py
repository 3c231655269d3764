"""Run the contract's commands in this process, each in its own directory, and validate their JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from recto.book.sources.tree import MarkdownTree
from recto.contracts.retrieval_test.cli import command as test_command
from recto.contracts.retrieval_test.inspection import command as check_command
from recto.contracts.retrieval_test.program import run
from recto.embedders.cohere import PACES, CohereEmbedder
from recto.indexing.indexer import IndexJob, index_book
from recto.settings import ServerOptions
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.running import ROOT

BACKEND = ROOT / "backend"


@dataclass(frozen=True)
class Outcome:
    code: int
    document: Any
    stderr: str

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = self.document["error"]
        return found


Call = Callable[..., Outcome]


@pytest.fixture(scope="session")
def schema() -> Draft202012Validator:
    data = json.loads(files("recto.contracts.retrieval_test").joinpath("schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(data)
    return Draft202012Validator(data)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which a command runs and leaves its log."""
    desk = tmp_path / "desk"
    desk.mkdir()
    monkeypatch.chdir(desk)
    monkeypatch.setenv("RECTO_THREADS", "2")
    return desk


@pytest.fixture
def call(desk: Path, schema: Draft202012Validator, capfd: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str, command: click.Command = test_command) -> Outcome:
        capfd.readouterr()
        code = run(command, arguments, "test_retrieval.py")
        output = capfd.readouterr()
        document = json.loads(output.out)
        schema.validate(document)
        for key in (COHERE_KEY, QDRANT_KEY):
            assert key not in output.out + output.err
            assert all(
                key not in log.read_text("utf-8") for log in desk.glob("retrieval_test.log*") if log.is_file()
            )
        return Outcome(code, document, output.err)

    return call


@pytest.fixture
def check(call: Call) -> Call:
    return lambda *arguments: call(*arguments, command=check_command)


@pytest.fixture
def embedded(sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample book on the embedded engine."""
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    return sample_home


@pytest.fixture
def configured(
    cohere: CohereDouble, qdrant: QdrantDouble, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that lead to both doubles; nothing is indexed yet."""
    values = {
        "COHERE_API_KEY": COHERE_KEY,
        "COHERE_API_URL": cohere.url,
        "QDRANT_URL": qdrant.url,
        "QDRANT_API_KEY": QDRANT_KEY,
    }
    for name, value in {**values, "RECTO_HOME": str(home)}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cloud(configured: None, cohere: CohereDouble, qdrant: QdrantDouble, home: Path, small_book: Path) -> None:
    """The small book, indexed on the doubles under the contract's own name."""
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere.url, PACES["off"], lambda _: None)
    store = ServerStore(Connection(qdrant.url, QDRANT_KEY, lambda _: None), home, ServerOptions(), None)
    index_book(
        IndexJob(MarkdownTree(small_book), embedder), store, "website_embeddings", journal=home / "journal"
    )
    embedder.close()
    store.close()


@pytest.fixture
def retrieval(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as a program beside it imports it."""
    monkeypatch.syspath_prepend(str(BACKEND))
    sys.modules.pop("retrieval", None)
    import retrieval

    yield retrieval
    retrieval.close()
