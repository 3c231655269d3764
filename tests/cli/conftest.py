"""The cloud profile, with doubles of Cohere and Qdrant."""

from __future__ import annotations

import pytest

from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble


def cloud_variables(cohere_url: str, qdrant_url: str) -> dict[str, str]:
    cohere = {"COHERE_API_KEY": COHERE_KEY, "COHERE_API_URL": cohere_url, "COHERE_PACE": "off"}
    return {**cohere, "QDRANT_URL": qdrant_url, "QDRANT_API_KEY": QDRANT_KEY}


@pytest.fixture
def cloud(cohere: CohereDouble, qdrant: QdrantDouble) -> dict[str, str]:
    return cloud_variables(cohere.url, qdrant.url)
