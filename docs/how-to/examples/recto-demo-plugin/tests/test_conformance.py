"""Run the conformance suites of Recto on the plugin."""

from pathlib import Path
from zipfile import ZipFile

import pytest
from recto_demo.embedder import HashEmbedder
from recto_demo.reader import read_rst
from recto_demo.source import ZipSource
from recto_demo.store import SqliteStore

from recto.protocols import Embedder, Reader, Source, Store
from recto.testing import EmbedderConformance, ReaderConformance, SourceConformance, StoreConformance

PAGE = """\
======
Robots
======
A robot senses and acts.

Arms
----

An arm has joints::

    shoulder
    elbow

Legs
----

Two legs are enough.
"""


class TestHashEmbedder(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashEmbedder()


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return SqliteStore(tmp_path)

    @pytest.fixture
    def other_store(self, tmp_path: Path) -> Store:
        return SqliteStore(tmp_path)


class TestRstReader(ReaderConformance):
    @pytest.fixture
    def reader(self) -> Reader:
        return read_rst

    @pytest.fixture
    def text(self) -> str:
        return PAGE


class TestZipSource(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        with ZipFile(tmp_path / "book.zip", "w") as archive:
            archive.writestr("guide/robots.rst", PAGE)
            archive.writestr("intro.md", "# Introduction\n\nThis book is about robots.\n")
        return ZipSource(tmp_path / "book.zip")
