"""Share one server among all tests that only send requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.server import limits
from recto.server.http import ServeOptions
from recto.settings import Settings
from tests.server.http.service import Service, served


@pytest.fixture(autouse=True)
def refuse_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for refusals."""
    monkeypatch.setattr(limits, "REFUSAL_SECONDS", 0)


@pytest.fixture(scope="session")
def service(sample_home: Path) -> Iterator[Service]:
    """A server with the sample book."""
    with Service(served(sample_home), ServeOptions(collections=("not-there",))) as service:
        yield service


@pytest.fixture(scope="session")
def house_service(house_settings: Settings) -> Iterator[Service]:
    """A server with the small book; it also serves a collection that its home does not have."""
    with Service(house_settings, ServeOptions(collections=("physical-ai-book",))) as service:
        yield service
