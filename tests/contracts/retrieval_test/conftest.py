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
from recto.cli.retrieval_test import check_command, run
from recto.cli.retrieval_test import command as test_command
from recto.embedders.cohere import PACES, CohereEmbedder
from recto.indexing.indexer import IndexJob, index_book
from recto.settings import ServerOptions
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import ServerConnection as Connection
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
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which a command runs and writes its log."""
    workdir = tmp_path / "workdir"
    workdir.mkdir()
    monkeypatch.chdir(workdir)
    monkeypatch.setenv("RECTO_THREADS", "1")
    return workdir


@pytest.fixture
def call(workdir: Path, schema: Draft202012Validator, capfd: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str, command: click.Command = test_command) -> Outcome:
        capfd.readouterr()
        code = run(command, arguments, "test_retrieval.py")
        output = capfd.readouterr()
        document = json.loads(output.out)
        schema.validate(document)
        for key in (COHERE_KEY, QDRANT_KEY):
            assert key not in output.out + output.err
            assert all(
                key not in log.read_text("utf-8")
                for log in workdir.glob("retrieval_test.log*")
                if log.is_file()
            )
        return Outcome(code, document, output.err)

    return call


@pytest.fixture
def check(call: Call) -> Call:
    return lambda *arguments: call(*arguments, command=check_command)


@pytest.fixture
def embedded(sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the sample book on the embedded engine."""
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    return sample_home


@pytest.fixture
def configured(
    cohere: CohereDouble, qdrant: QdrantDouble, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use the doubles of both services; nothing is indexed yet."""
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
    """Index the small book on the doubles, with the contract's collection name."""
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere.url, PACES["off"], lambda _: None)
    store = ServerStore(Connection(qdrant.url, QDRANT_KEY, lambda _: None), home, ServerOptions(), None)
    index_book(
        IndexJob(MarkdownTree(small_book), embedder), store, "website_embeddings", journal=home / "journal"
    )
    embedder.close()
    store.close()


@pytest.fixture
def retrieval(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import backend/retrieval.py as a script in that directory does."""
    monkeypatch.syspath_prepend(str(BACKEND))
    sys.modules.pop("retrieval", None)
    import retrieval

    yield retrieval
    retrieval.close()
