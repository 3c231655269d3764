"""Conformance suites for plugins: subclass one in a pytest file and provide its fixtures.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

The built-in embedders, stores, readers and sources run the same suites. They need pytest and nothing else.
"""

import pytest

pytest.register_assert_rewrite("recto.testing.parts", "recto.testing.stores")

# Asserts of the suites are rewritten, so they are imported only now.
from recto.testing.parts import EmbedderConformance, HashEmbedder, ReaderConformance, SourceConformance  # noqa: E402
from recto.testing.stores import StoreConformance  # noqa: E402

__all__ = [
    "EmbedderConformance",
    "HashEmbedder",
    "ReaderConformance",
    "SourceConformance",
    "StoreConformance",
]
