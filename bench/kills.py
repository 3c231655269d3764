"""Kill writers at random moments: `python -m bench.kills`.

Each round starts `recto index` with a changed book, `recto rollback`, `delete`, `backup`, `restore`, `export`
or `questions add`, and kills it. Afterwards the index must be deleted, or have exactly the chunks of one
edition of the book and no warning, the backup must be whole, no section question may be lost, and the files
of the user next to the exported ones must be unchanged. At the end, one run of each command leaves no draft
of a killed one behind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.common import new_parser, print_figures, recto_command
from recto.errors import CollectionMissing
from recto.stores.edge import EdgeStore

PAGES = 12
NAME = "kills"
USER_FILES = ("index.html", "search/MINE.txt")
"""Files of the user in the directory of the site."""
_DRAFTS = (".recto-export-", ".CURRENT.", ".search.", ".deleted-", "building-")
"""Not the temporary file of a killed backup: it is among the user's files, and stays (see backup.md)."""
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
    command, environment = recto_command(home, *arguments)
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)


def stored(home: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the texts of the index, and its warnings; nothing if it is deleted."""
    try:
        index = EdgeStore(home).open(NAME)
    except CollectionMissing:
        return frozenset(), ()
    return frozenset(chunk.text for chunk in index.scroll()), index.info.warnings


def write_question(path: Path, number: int) -> None:
    """Write the input of `recto questions add`: a question about one page."""
    page = number % PAGES
    question = f"How do beans grow on page {page} in week {number} of the year?"
    line = {"page": f"page{page}.md", "heading": f"Page {page}", "questions": [question]}
    path.write_text(json.dumps(line) + "\n")


def written_questions(book: Path) -> int:
    """Return the number of questions in the question file; a broken line is an error."""
    path = book / "recto-questions.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return sum(len(json.loads(line)["questions"]) for line in lines)


def is_whole(archive: Path, home: Path) -> bool:
    """Return whether an archive can be restored into another home."""
    return start(home, "restore", str(archive), "--replace").wait(300) == 0


def is_site_whole(site: Path) -> bool:
    """Return whether the user's files are unchanged, and no exported file is incomplete."""
    files = [site / name for name in USER_FILES]
    pages = [
        path
        for path in site.rglob("*.md")
        if ".recto-export-" not in str(path) and path.name != "skill.md"  # it ends with a list
    ]
    return all(path.read_text() == "mine" for path in files) and all(
        path.read_bytes().endswith(b".\n") for path in pages
    )


def drafts(*folders: Path) -> list[str]:
    """Return the files and directories that a killed command left behind."""
    names = (path.name for folder in folders for path in folder.rglob("*"))
    return [name for name in names if name.startswith(_DRAFTS)]


def main() -> None:
    """Kill as often as asked, and print what was found."""
    parser = new_parser(__doc__, "bench.kills")
    parser.add_argument("--count", type=int, default=200, help="how many kills (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random moments (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    chance, counts = random.Random(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        home, book, archive = (Path(folder) / name for name in ("home", "book", "kills.recto"))
        site = Path(folder) / "site"
        for name in USER_FILES:
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text("mine")
        new = Path(folder) / "new.jsonl"
        editions, questions = [write_edition(book, 0)], 0
        longest, deleted = 0.0, False
        commands = {
            "index": ("index", str(book), "--collection", NAME),
            "index --rebuild": ("index", str(book), "--collection", NAME, "--rebuild"),
            "rollback": ("rollback", NAME),
            "delete": ("delete", NAME, "--yes"),
            "backup": ("backup", NAME, "--output", str(archive)),
            "restore": ("restore", str(archive), "--replace"),
            "export --llms": ("export", "--llms", str(site), "--collection", NAME),
            "questions add": ("questions", "add", str(new), str(book)),
            "export --static": ("export", "--static", str(site / "search"), "--collection", NAME),
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
            write_question(new, sum(counts.values()))
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
            counts["damaged backups (goal 0)"] += not is_whole(archive, Path(folder) / "restored")
            before, questions = questions, written_questions(book)
            counts["lost questions (goal 0)"] += questions < before
            counts["damaged sites (goal 0)"] += not is_site_whole(site)
        if start(home, *commands["index"]).wait(300) or stored(home)[0] != editions[-1]:
            counts["the last run failed"] += 1
        for action in ("backup", "restore", "export --llms", "export --static", "delete"):
            counts["the last run failed"] += bool(start(home, *commands[action]).wait(300))
        counts["drafts that were left behind (goal 0)"] = len(drafts(Path(folder)))
    figures = {"rounds": counts["kills"] + counts["finished before the kill"], **counts}
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
