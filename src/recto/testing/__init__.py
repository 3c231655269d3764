"""Conformance suites for plugins: subclass one in a pytest file and provide its fixtures.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

The built-in embedders, stores, readers and sources run the same suites. They need pytest and nothing else.
"""

import pytest

pytest.register_assert_rewrite(
    "recto.testing.embedders", "recto.testing.readers", "recto.testing.sources", "recto.testing.stores"
)

from recto.testing.embedders import EmbedderConformance  # noqa: E402 - after its asserts are rewritten
from recto.testing.readers import ReaderConformance  # noqa: E402
from recto.testing.sources import SourceConformance  # noqa: E402
from recto.testing.stores import StoreConformance  # noqa: E402
from recto.testing.values import HashEmbedder  # noqa: E402

__all__ = [
    "EmbedderConformance",
    "HashEmbedder",
    "ReaderConformance",
    "SourceConformance",
    "StoreConformance",
]
