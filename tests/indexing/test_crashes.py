"""Killing an index run is safe: readers see the old or the new index, and the next run finishes the work."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from recto.stores.edge.store import EdgeStore
from tests.running import ROOT, environment

KILLS = 25
BATCH = 4
PAGES = 10
WRITER = f"""
import hashlib, sys
from pathlib import Path
import recto.indexing.indexer
from recto.book.sources.tree import MarkdownTree
from recto.indexing.indexer import IndexJob, index_book
from recto.settings import load_settings
from recto.api import open_embedder, open_store
from tests.counting import Counting

class LoggingEmbedder(Counting):
    def embed_documents(self, texts, progress=None):
        vectors = super().embed_documents(texts, progress)
        with open(sys.argv[2], "a") as log:
            log.write("".join(hashlib.sha256(text.encode()).hexdigest() + "\\n" for text in texts))
        return vectors

recto.indexing.indexer._BATCH = {BATCH}
settings = load_settings()
job = IndexJob(MarkdownTree(Path(sys.argv[1]), "crashes"), LoggingEmbedder(open_embedder(settings, print)))
print(index_book(job, open_store(settings, print), "crashes", journal=settings.home / "journal").published)
"""


def write(book: Path, edition: int) -> set[str]:
    """Write an edition of a book whose pages differ from those of other editions; return its texts."""
    book.mkdir(exist_ok=True)
    texts = set()
    for page in range(PAGES):
        plant = ["beans", "peas", "oats"][page % 3]
        text = f"Edition {edition} of page {page} tells how {plant} grow in week {edition}."
        (book / f"page{page}.md").write_text(f"# Page {page}\n\n{text}\n")
        texts.add(text)
    return texts


def start(book: Path, home: Path, log: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(book), str(log)],
        cwd=ROOT,
        env=environment(home),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def run_to_end(book: Path, home: Path, log: Path) -> None:
    process = start(book, home, log)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out


@pytest.mark.long
def test_killed_at_random_moments(tmp_path: Path) -> None:
    home, book, log = tmp_path / "home", tmp_path / "book", tmp_path / "log"
    numbers = random.Random(20260101)
    old = write(book, 0)
    began = time.monotonic()
    run_to_end(book, home, log)
    duration = time.monotonic() - began
    reader = EdgeStore(home)
    edition, killed = 1, 0
    new = write(book, edition)
    while killed < KILLS:
        process = start(book, home, log)
        try:
            process.communicate(timeout=numbers.uniform(0.3, 1.0) * duration)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += 1
        for store in (reader, EdgeStore(home)):
            index = store.open("crashes")
            assert not index.info.warnings
            assert {chunk.text for chunk in index.scroll()} in (old, new)
        if {chunk.text for chunk in reader.open("crashes").scroll()} == new:
            edition += 1
            old, new = new, write(book, edition)
    run_to_end(book, home, log)
    assert {chunk.text for chunk in reader.open("crashes").scroll()} == new
    times = Counter(log.read_text().split())
    needed = {
        hashlib.sha256(f"Page {page}\n\n{text}".encode()).hexdigest()
        for number in range(edition + 1)
        for page, text in enumerate(sorted(write(book, number)))
    }
    assert set(times) == needed, "every text of every edition was embedded"
    twice = sum(count - 1 for count in times.values())
    assert twice <= killed * BATCH, "only a batch in flight is embedded again"
