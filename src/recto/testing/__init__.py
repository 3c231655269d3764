"""Conformance suites for plugins: subclass one in a pytest file and provide its fixtures.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

The built-in embedders, stores, readers and sources run the same suites. They need pytest and nothing else.
"""

import pytest

pytest.register_assert_rewrite("recto.testing.books", "recto.testing.embedders", "recto.testing.stores")

from recto.testing.books import ReaderConformance, SourceConformance  # noqa: E402 - asserts are rewritten
from recto.testing.embedders import EmbedderConformance  # noqa: E402
from recto.testing.stores import StoreConformance  # noqa: E402
from recto.testing.values import HashEmbedder  # noqa: E402

__all__ = [
    "EmbedderConformance",
    "HashEmbedder",
    "ReaderConformance",
    "SourceConformance",
    "StoreConformance",
]
