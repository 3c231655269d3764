"""One browser and one service for all tests of the web UI; both end before other tests start event loops."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from recto.evaluation.calibration import calibrate
from recto.protocols import Embedder
from recto.server.http import ServeOptions
from tests.browser.hostile import write_hostile_book
from tests.browser.webui import WebUI
from tests.running import copy_home
from tests.server.http.service import Service, indexed, served

_NEEDED = os.environ.get("RECTO_NEED_BROWSER") == "1"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
expect.set_options(timeout=60_000)  # instead of 5 000: a busy machine must not fail a test


@contextmanager
def open_browser(*flags: str) -> Iterator[Browser]:
    """Start Chromium with more flags; skip the test if it is not installed."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        (pytest.fail if _NEEDED else pytest.skip)("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_FLAGS, *flags])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def books(sample_home: Path, embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the sample book and a hostile book."""
    root = tmp_path_factory.mktemp("books")
    copy_home(sample_home, root / "home")
    indexed(root / "home", "hostile", write_hostile_book(root / "hostile"), embedder, calibrate=calibrate)
    return root / "home"


@pytest.fixture(scope="package")
def service(books: Path) -> Iterator[Service]:
    with Service(served(books), ServeOptions(collections=("hostile",))) as service:
        yield service


@pytest.fixture
def ui(browser: Browser, service: Service) -> Iterator[WebUI]:
    """A window of common width."""
    with WebUI(browser, service.port) as ui:
        yield ui


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is bound, but that no program listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
