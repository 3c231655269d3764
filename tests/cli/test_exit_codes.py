"""Exit codes: every command, with what it succeeds, finds nothing, or fails; each error says what is wrong."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.running import recto

SERVER = {"RECTO_STORE": "server", "RECTO_EMBEDDER": "local", "QDRANT_URL": "http://127.0.0.1:9"}
"""A server that nobody runs."""

# `tests/test_docs.py` runs every command with success. Commands are separated by semicolons; the words in braces are files, which `files` makes.
NO_RESULTS = """
search compost --module nowhere; search compost --min-score 1; explain compost --module nowhere;
explain compost --passage "The moon is made of cheese"; explain compost --expect no-such-page;
suite add {new} --log {empty}
"""
CONFIGURATION = """
search compost --collection missing; explain compost --collection missing; validate --collection missing;
validate --suite {suite} --compare missing; calibrate --collection missing;
suite lint {suite} --collection missing; collections missing;
gaps --queries {queries} --collection missing; coverage --collection missing; doctor --collection missing;
delete missing --yes; rollback missing; rollback house --to gen-999999; backup missing --output {new};
export --llms {new} --collection missing; promote --collection missing; parity; prepare;
index docs --docs-version 9; index docs --locale fr --dry-run;
keys add book --collection my-book --origin https://book.example/path
"""
CONNECTION = "search compost; doctor; collections; promote; prepare house; index {book}"
FAILED = "validate --suite {wrong}; suite lint {unclear}"
OTHERS = """
search; explain compost --expect #a; suite lint {new}; suite lint {text}; restore; restore {new};
restore {suite}; restore {suite} --collection a/b; gaps --queries {queries} --log {empty};
coverage --fail-under 101; doctor --unknown; export; export --llms a --static b;
export --static b --site-url https://x.org/; export --llms a --semantic on; keys add reader;
keys add book --scope admin --origin https://book.example; mcp --port 1; serve --port 70000;
index pyproject.toml;
keys add book --collection my-book --expires yesterday
"""
OF_A_COLLECTION = {
    "delete house": "--yes",
    "keys revoke nobody": "recto keys list",
    "gaps": "recto serve --query-log",
    "gaps --log {new}": "",
    "gaps --queries {new}": "Check the path.",
}
INVALID = {
    "serch compost": "Did you mean 'search'?",
    'search ""': "Query cannot be empty",
    "search compost --top-k 0": "--top-k must be between 1 and 100",
    "search compost --mode sparse": "sparse",
    "search compost --collection ../house": "--collection is not a usable collection name",
    "explain compost --unknown": "--unknown",
    "validate --measure nDGC@10": "did you mean nDCG@10",
    "validate --measure Hit@500": "more than the 100",
    "validate --gate Hit@5": "not a threshold",
    "validate --update-baseline": "needs --baseline",
    "validate --baseline missing.json": "cannot be read",
    "validate --baseline x.json --compare y": "exclude each other",
    "validate --baseline x.json --update-baseline --tag t": "writes all questions",
    "validate --compare ../x": "--compare is not",
    "validate --suite {new}": "cannot be read",
    "validate --suite tests": "cannot be read",
    "validate --suite {suite} --compare x --compare-setting nonsense": "NAME=VALUE",
    "rollback": "COLLECTION",
    "backup house": "--output",
    "index": "either the path or URL of a book",
    "index docs --sample": "either the path or URL of a book",
    "index {new}": "does not exist",
    f"index {'x' * 5000}": "",
    "index src/recto/cli": "There is no .md, .markdown, .mdown, .mkdn, .mkd, .mdx, .qmd, .rmd, .ipynb, .rst",
    "index docs --collection a/b": "--collection is not a usable collection name",
    "index --sample --collection x": "--sample has its own collection",
    "index docs --delay 1": "--delay is for websites",
    "index docs --allow-private": "--allow-private is for websites",
    "index https://example.org --docs-version 1": "--docs-version is for books on disk",
    "index https://example.org --no-trailing-slash": "--trailing-slash is for books on disk",
    "index ftp://example.org/book": "There is no source for ftp",
    "watch https://book.example": "A website cannot be watched",
    "watch {new}": "does not exist",
}
CASES = [
    (line, code, variables)
    for code, lines, variables in (
        (1, NO_RESULTS, {}),
        (2, CONFIGURATION, {}),
        (2, "search compost; index {book}; doctor", {"RECTO_PROFILE": "moon"}),
        (3, CONNECTION, SERVER),
        (5, FAILED, {}),
    )
    for line in map(str.strip, lines.split(";"))
]


def _suite(**question: object) -> str:
    return json.dumps({"queries": [{"query": "What does compost do?", **question}]})


@pytest.fixture(scope="module")
def files(house: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("files")
    texts = {
        "queries": "What does compost do?",
        "suite": _suite(expect={"module": "garden"}),
        "wrong": _suite(expect={"module": "kitchen"}),
        "unclear": _suite(),
        "text": "no JSON",
    }
    for name, text in texts.items():
        (root / name).write_text(text, "utf-8")
    (root / "empty").mkdir()
    others = {name: root / name for name in ("empty", "new", "backup", "llms")}
    return {name: root / name for name in texts} | others | {"book": house / "book"}


@pytest.mark.parametrize(("line", "code", "more"), CASES, ids=[case[0] for case in CASES])
def test_exit_code(house: Path, files: dict[str, Path], line: str, code: int, more: dict[str, str]) -> None:
    done = recto(house / "home", *shlex.split(line.format_map(files)), **more)
    assert done.returncode == code, done.stdout + done.stderr
    assert code in (0, 1, 5) or "[ERROR]" in done.stdout + done.stderr


@pytest.mark.parametrize(("line", "words"), OF_A_COLLECTION.items())
def test_arguments_a_collection_refuses(house: Path, files: dict[str, Path], line: str, words: str) -> None:
    done = recto(house / "home", *shlex.split(line.format_map(files)))
    assert (done.returncode, done.stdout) == (4, "")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("line", "words"), [*INVALID.items(), *((line.strip(), "") for line in OTHERS.split(";"))]
)
def test_invalid_arguments(home: Path, files: dict[str, Path], line: str, words: str) -> None:
    done = recto(home, *shlex.split(line.format_map(files)))
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    error, *hint = done.stderr.splitlines()
    assert error.startswith("[ERROR] ")
    assert words in done.stderr
    assert hint
    assert not home.exists(), "nothing is written"
