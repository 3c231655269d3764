"""Index a book again, or a website: plans, progress, reports, and `recto watch`."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.book.sources.tree import open_book
from recto.indexing.indexer import IndexJob, IndexProgress, index_book
from recto.stores.edge import EdgeStore
from recto.testing import HashEmbedder
from tests.book.files import write_pages
from tests.cli.terminals import Terminal
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import refused_url, status
from tests.doubles.site import SiteDouble, page, sitemap
from tests.running import recto, start, wait_until


def test_dry_run_embedded(home: Path, small_book: Path) -> None:
    done = recto(home, "index", str(small_book), "--collection", "garden", "--dry-run", "--verbose")
    assert (done.returncode, done.stderr) == (0, "")
    assert not home.exists(), "nothing is written"
    head, pages, chunks, embedding, *table = done.stdout.splitlines()
    assert head == "Plan for 'garden' (nothing is written):"
    assert pages == "  Pages: 4 new"
    assert re.fullmatch(r"  Chunks: 4 to embed \(\d+ tokens\), 0 reused", chunks)
    assert embedding == "  Embedding: on this machine, at no cost"
    assert table[0].split() == ["Module", "Pages", "Chunks", "Title"]
    assert table[1].split() == ["garden", "2", "2", "Garden"]
    soil = "new 1 module-1-garden/01-soil.md local://docs/docs/module-1-garden/01-soil"
    assert table[4].split() == soil.split()


def test_dry_run_with_cohere_estimates_the_cost(
    home: Path, small_book: Path, cloud: dict[str, str], cohere: CohereDouble, qdrant: QdrantDouble
) -> None:
    text = "Water the beans daily. " * 20
    (small_book / "long.md").write_text("\n\n".join(f"## Part {n}\n\n{text}" for n in range(100)))
    dry_run = ("index", str(small_book), "--collection", "garden", "--dry-run")
    done = recto(home, *dry_run, "--json", **cloud)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert cohere.calls == 0
    assert [request.method for request in qdrant.requests if request.method != "GET"] == []
    estimate, texts, tokens = data["estimate"], data["embedded"]["texts"], data["embedded"]["tokens"]
    assert texts > 96
    assert estimate["api_calls"] == -(-texts // 96)
    assert estimate["trial_minutes"] == pytest.approx(max(tokens / 100_000, texts / 2000), abs=0.01)
    assert estimate["dollars"] == pytest.approx(tokens * 0.10 / 1e6, abs=1e-6)
    text = recto(home, *dry_run, **cloud).stdout
    assert re.search(r"Embedding: 3 API calls, less than a minute at trial limits, about \$0\.0", text)


def test_the_report_of_changes(home: Path, small_book: Path) -> None:
    arguments = ("index", str(small_book), "--collection", "garden")
    recto(home, *arguments)
    done = recto(home, *arguments)
    assert done.stdout.startswith("Nothing has changed: 4 pages, 4 chunks in 'garden' (gen-000001), checked ")
    (small_book / "welcome.md").write_text("# Welcome\n\nHello again.\n")
    (small_book / "module-2-kitchen" / "01-bread.md").write_bytes(b"\xff")
    done = recto(home, *arguments)
    assert done.returncode == 1
    assert "[WARNING] Kept the old version of module-2-kitchen/01-bread.md: not UTF-8" in done.stderr
    assert "Pages: 1 changed, 2 unchanged, 1 kept" in done.stdout
    assert "1 to embed" in done.stdout
    assert "3 reused" in done.stdout
    assert "Bread" in recto(home, "search", "dough", "--collection", "garden").stdout
    done = recto(home, *arguments, "--module", "gardn")
    assert done.returncode == 4
    assert "Did you mean 'garden'?" in done.stderr


def test_progress_on_a_pipe(home: Path, small_book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("index", str(small_book), "--collection", "garden", "--rebuild")
    monkeypatch.setattr("recto.cli.commands.index._LOG_SECONDS", 3600.0)
    assert recto(home, *command).stderr == "", "a short run prints no progress"
    monkeypatch.setattr("recto.cli.commands.index._LOG_SECONDS", 0.0)
    lines = recto(home, *command).stderr.splitlines()
    assert {"Reading: 1 page, 1 chunk", "Reading: 4 pages, 4 chunks"} <= set(lines)
    assert lines[-1] == "4 pages, 4 of 4 chunks, about 0 s left"
    assert recto(home, *command[:-1]).stderr.splitlines()[-1] == "Reading: 4 pages, 0 chunks"


def test_the_time_left_is_estimated_from_the_beginning(small_book: Path, home: Path) -> None:
    seen: list[IndexProgress] = []
    job = IndexJob(open_book(small_book), HashEmbedder())
    index_book(job, EdgeStore(home), "garden", journal=home / "journal", progress=seen.append)
    assert {now.expected for now in seen if now.pages} == {4}, "a chunk on each of four pages"
    assert any(now.plan is None and now.expected for now in seen)


def test_progress_bar(home: Path, small_book: Path) -> None:
    index = (str(small_book), "--collection", "garden")
    with Terminal(home, *index, command="index", columns="120") as terminal:
        assert terminal.end(120) == 0
    assert "4 pages, " in terminal.text
    assert " of 4 chunks" in terminal.text
    assert "Indexed 4 pages as 4 chunks" in terminal.text


def test_watch(home: Path, small_book: Path) -> None:
    store, watch = EdgeStore(home), ("watch", str(small_book), "--collection=garden", "--interval=0.1")
    process = start(home, *watch, PYTHONUNBUFFERED="1")

    def texts() -> str:
        if "garden" not in store.collections():
            return ""
        return "\n".join(chunk.text for chunk in store.open("garden").scroll())

    try:
        wait_until(lambda: "worms" in texts().lower(), 120)
        (small_book / "module-2-kitchen" / "01-bread.md").unlink()
        (small_book / "new.md").write_bytes(b"\xff\xfe")
        (small_book / "snippet.txt").write_text("A snippet.")
        (small_book / "welcome.md").write_text('# Welcome\n\nHello again.\n\n--8<-- "snippet.txt"\n')
        wait_until(lambda: "A snippet." in texts() and "dough" not in texts(), 120)
        (small_book / "snippet.txt").write_text("Another snippet.")
        wait_until(lambda: "Another snippet." in texts(), 120)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while not lines[-1].startswith(store.open("garden").info.generation):
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        lines += process.communicate(timeout=60)[0].splitlines()
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
    first, *rounds = (line for line in lines if line.startswith("gen-"))
    assert first.startswith("gen-000001: ")
    assert any("welcome.md" in line and "; 1 chunk embedded in " in line for line in rounds)
    assert lines[0].startswith("Watching ")
    assert any(line.startswith("[WARNING] Left out new.md: not UTF-8") for line in lines)
    assert not any("Traceback" in line for line in lines)


def test_options_are_repeated_and_urls_are_guarded(home: Path, small_book: Path) -> None:
    """Neither a bare re-index nor the doctor's command turns published links into local ones."""
    book = ("index", str(small_book), "--collection", "garden")
    url = "https://garden.example/"
    assert recto(home, *book, "--site-url", url, "--generator", "plain").returncode == 0
    again = recto(home, *book)
    assert again.returncode == 0, again.stderr
    assert "Options of the last run: --site-url https://garden.example/ --generator plain" in again.stderr
    assert "Nothing has changed" in again.stdout
    (small_book / "index.md").write_text("# Welcome\n\nAnother text.\n", "utf-8")
    examined = json.loads(recto(home, "doctor", "--collection", "garden", "--json").stdout)
    (repair,) = {one["repair"] for one in examined["findings"] if one["name"] == "changed"}
    assert repair == f"recto index {small_book} --collection garden --site-url {url} --generator plain"

    refused = recto(home, *book, "--site-url", "https://other.example/", "--json")
    assert refused.returncode == 4
    assert "would get other URLs: https://other.example/" in refused.stderr
    assert "--new-urls" in refused.stderr
    dropped = recto(home, *book, "--site-url", "")
    assert dropped.returncode == 4
    assert "local://docs/docs" in dropped.stderr
    accepted = recto(home, *book, "--site-url", "https://other.example/", "--new-urls", "--json")
    assert accepted.returncode == 0, accepted.stderr
    found = json.loads(recto(home, "search", "soil", "--collection", "garden", "--json").stdout)
    assert found["results"][0]["page_url"].startswith("https://other.example/")


def test_a_copy_of_a_published_book_keeps_its_urls(home: Path, small_book: Path, tmp_path: Path) -> None:
    """Options of the last run are not repeated for another directory, so links would become local ones."""
    flags = ("--collection", "garden")
    first = recto(home, "index", str(small_book), *flags, "--site-url", "https://garden.example/")
    assert "no published addresses" not in first.stdout
    copy = small_book.rename(tmp_path / "copy")
    refused = recto(home, "index", str(copy), *flags)
    assert refused.returncode == 4
    assert "4 of 4 pages would get other URLs: local://docs/docs" in refused.stderr
    assert f"of {small_book} had the options --site-url https://garden.example/" in refused.stderr
    other = write_pages(tmp_path / "other", "index.md", "other.md")
    assert "would get other URLs: local://docs/docs" in recto(home, "index", str(other), *flags).stderr
    assert recto(home, "index", str(other), *flags, "--site-url", "https://b.example/").returncode == 0
    local = recto(home, "index", str(copy), *flags, "--new-urls")
    assert local.stdout.endswith("with\n  --site-url https://ADDRESS-OF-THE-BOOK/\n")


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
