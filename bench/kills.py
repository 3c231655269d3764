"""Kill writers at random moments: `uv run python -m bench.kills`.

Each round starts `recto index` with a changed book, `recto rollback`, `delete`, `backup` or `restore`, and
kills it. Afterwards the index must be deleted, or have exactly the chunks of one edition of the book and no
warning, and the backup must be whole.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.spine import ROOT, table
from recto.errors import CollectionMissing, RectoError
from recto.stores.archive import open_archive
from recto.stores.edge.backup import KIND
from recto.stores.edge.store import EdgeStore

PAGES = 12
NAME = "kills"
_SHORT = 0.6  # seconds; all commands but `recto index` take about so long


def write_edition(book: Path, edition: int) -> frozenset[str]:
    """Write an edition of the book; half of its pages differ from the edition before."""
    book.mkdir(exist_ok=True)
    texts = set()
    for page in range(PAGES):
        number = edition if page % 2 else edition // 2
        text = f"Edition {number} of page {page} tells how beans grow in week {number}."
        (book / f"page{page}.md").write_text(f"# Page {page}\n\n{text}\n")
        texts.add(text)
    return frozenset(texts)


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command in its own process group."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RECTO_", "QDRANT_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "recto", *arguments],
        env={**clean, "RECTO_HOME": str(home), "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def stored(home: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the texts of the index, and its warnings; nothing if it is deleted."""
    try:
        index = EdgeStore(home).open(NAME)
    except CollectionMissing:
        return frozenset(), ()
    return frozenset(chunk.text for chunk in index.scroll()), index.info.warnings


def is_whole(archive: Path) -> bool:
    """Return whether the checksum of an archive is correct."""
    try:
        with open_archive(archive, KIND):
            return True
    except RectoError:
        return False


def main() -> None:
    """Kill as often as asked, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many kills (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random moments (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    chance, counts = random.Random(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        home, book, archive = (Path(folder) / name for name in ("home", "book", "kills.recto"))
        editions = [write_edition(book, 0)]
        longest, deleted = 0.0, False
        commands = {
            "index": ("index", str(book), "--collection", NAME),
            "index --rebuild": ("index", str(book), "--collection", NAME, "--rebuild"),
            "rollback": ("rollback", NAME),
            "delete": ("delete", NAME, "--yes"),
            "backup": ("backup", NAME, "--output", str(archive)),
            "restore": ("restore", str(archive), "--replace"),
        }
        for arguments in (commands["index"], commands["index --rebuild"]):
            began = time.monotonic()
            if start(home, *arguments).wait(300):
                raise RuntimeError("the first index failed")
            longest = time.monotonic() - began
        start(home, *commands["backup"]).wait(300)
        while counts["kills"] < options.count:
            action = chance.choice(tuple(commands))
            if action.startswith("index"):
                editions.append(write_edition(book, len(editions)))
            process = start(home, *commands[action])
            time.sleep(chance.random() * (longest if action.startswith("index") else _SHORT))
            ended = process.poll() is not None
            os.killpg(process.pid, signal.SIGKILL) if not ended else None
            process.wait(60)
            counts["kills"] += not ended
            counts["finished before the kill"] += ended
            counts[f"{action} killed"] += not ended
            texts, warnings = stored(home)
            deleted = not texts and (deleted or action == "delete")
            counts["lost or mixed (goal 0)"] += not deleted and texts not in editions
            counts["warnings (goal 0)"] += bool(warnings)
            counts["damaged backups (goal 0)"] += not is_whole(archive)
        if start(home, *commands["index"]).wait(300) or stored(home)[0] != editions[-1]:
            counts["the last run failed"] += 1
    figures = {"rounds": counts["kills"] + counts["finished before the kill"], **counts}
    print(json.dumps(figures, indent=2) if options.json else table(figures))


if __name__ == "__main__":
    main()
