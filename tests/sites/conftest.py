"""Sites that are built once: two with one `recto serve` behind both, and two without a server."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from recto.protocols import Embedder
from tests.browser.conftest import open_browser
from tests.running import recto
from tests.server.http.service import Program
from tests.sites.building import build_sites
from tests.sites.serving import PublishedSite
from tests.sites.visitor import Visitor

Places = tuple[Path, Path]
NAMES = ("docusaurus", "mkdocs")
STATIC_NAMES = ("docusaurus-static", "recto")


@pytest.fixture(scope="session")
def places(shared_home: Path, real_embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """The directories of the sites, and a home with their indexes for this run.

    RECTO_TEST_SITES names a directory that keeps the packages, the sites and the indexes for the next run.
    """
    pytest.importorskip("material", reason="uv run --group sites has it")
    kept = os.environ.get("RECTO_TEST_SITES", "")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("sites")
    root = build_sites(folder, shared_home)
    home = tmp_path_factory.mktemp("served") / "home"
    shutil.copytree(root / "home", home, symlinks=True)
    return root, home


@pytest.fixture(scope="session")
def axe(places: tuple[Path, Path]) -> str:
    """The source of axe-core, which checks accessibility."""
    return (places[0] / "docusaurus" / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="package")
def sites(places: tuple[Path, Path]) -> Iterator[dict[str, PublishedSite]]:
    """All sites; those with a server have a key of their own each, which only their pages can use."""
    root, home = places
    with ExitStack() as running:
        sites = [PublishedSite(name, root) for name in NAMES]
        for site in sites:
            site.key = add_key(home, site)
        collections = [f"--collection={site.collection}" for site in sites]
        program = Program(home, (*collections, "--trusted-proxy=127.0.0.1"), {"RECTO_THREADS": "2"})
        service = running.enter_context(program)
        for site in sites:
            site.service_port = service.port
            running.enter_context(site)
        sites += [running.enter_context(PublishedSite(name, root)) for name in STATIC_NAMES]
        yield {site.name: site for site in sites}


def add_key(home: Path, site: PublishedSite) -> str:
    """Create a publishable key for the pages of a site."""
    options = ("--collection", site.collection, "--origin", site.origin, "--json")
    key: str = json.loads(recto(home, "keys", "add", site.name, *options).stdout)["key"]
    return key


@pytest.fixture(scope="package")
def browser(sites: dict[str, PublishedSite]) -> Iterator[Browser]:
    """A browser in which the published addresses of the sites lead to their servers."""
    rules = ",".join(f"MAP {name}.localhost:80 127.0.0.1:{site.port}" for name, site in sites.items())
    with open_browser(f"--host-resolver-rules={rules}") as browser:
        yield browser


@pytest.fixture(params=NAMES)
def site(request: pytest.FixtureRequest, sites: dict[str, PublishedSite]) -> Iterator[PublishedSite]:
    """A site; what a test changes on it is reset."""
    site = sites[request.param]
    key, port = site.key, site.service_port
    site.requests.clear()
    yield site
    site.key, site.service_port = key, port


@pytest.fixture
def visitor(browser: Browser, site: PublishedSite) -> Iterator[Visitor]:
    with Visitor(browser, site) as visitor:
        yield visitor
