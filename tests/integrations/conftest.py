"""What the frameworks' own code must not do in a test, and the book under a name that their suites do not use."""

from __future__ import annotations

import os

import pytest

from recto.retriever import Retriever

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when the package is imported
os.environ["LANGSMITH_TRACING"] = "false"


@pytest.fixture(scope="session")
def book(retriever: Retriever) -> Retriever:
    return retriever
