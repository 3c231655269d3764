"""`recto index` with a website."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.server import refused_url, status
from tests.doubles.site import SiteDouble, page, sitemap
from tests.running import recto

FLAGS = ("--collection", "bees", "--allow-private", "--delay", "0")


@pytest.fixture
def site() -> Iterator[SiteDouble]:
    with SiteDouble() as double:
        names = ("intro", "module-1-bees/hives", "module-2-wax/candles")
        double.put("/docs/intro", page("Welcome", "This book is about bees."))
        double.put(
            "/docs/module-1-bees/hives",
            page("Hives", "A hive is a box in which bees live.</p><h2 id='roof'>The roof</h2><p>Tin."),
        )
        double.put("/docs/module-2-wax/candles", page("Candles", "Candles are made of wax."))
        double.put("/sitemap.xml", sitemap(*(f"{double.url}/docs/{name}" for name in names)))
        yield double


def test_index_search_and_index_again(home: Path, site: SiteDouble) -> None:
    address = f"{site.url}/docs/"
    plan = recto(home, "index", address, *FLAGS, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert not home.exists()
    assert "Pages: 3 new" in plan.stdout
    done = recto(home, "index", address, *FLAGS, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["modules"] == {"intro": 1, "bees": 2, "wax": 1}
    done = recto(home, "search", "what is the roof made of", "--collection", "bees", "--json")
    assert json.loads(done.stdout)["results"][0]["page_url"] == f"{site.url}/docs/module-1-bees/hives"
    site.asked.clear()
    done = recto(home, "index", address, *FLAGS)
    assert done.stdout.startswith("Nothing has changed: 3 pages")
    assert sum(site.unchanged.values()) >= 3, "requests are conditional"
    site.drop("/docs/module-2-wax/candles")
    site.always(status(403), path="/docs/intro")
    done = recto(home, "index", address, *FLAGS)
    assert done.returncode == 1
    assert "Pages: 1 unchanged, 1 gone, 1 kept" in done.stdout
    assert "[WARNING] Kept the old version of intro: the server returned 403" in done.stderr


def test_refused_addresses(home: Path, site: SiteDouble) -> None:
    done = recto(home, "index", f"{site.url}/docs/", "--collection", "bees")
    assert done.returncode == 3
    assert "--allow-private" in done.stderr
    assert site.asked.total() == 0, "nothing was requested"
    done = recto(home, "index", "ftp://example.org/book", "--collection", "bees")
    assert done.returncode == 4
    assert "There is no source for ftp" in done.stderr
    done = recto(home, "index", refused_url(), *FLAGS)
    assert done.returncode == 3
    assert "cannot be read" in done.stderr
