"""The exit codes of all commands, as docs/reference/commands.md states them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.running import recto

COMPOST = "What does compost do?"
OTHER = ("--collection", "missing")
LOCAL = {"RECTO_STORE": "server", "RECTO_EMBEDDER": "local", "QDRANT_URL": "http://127.0.0.1:9"}
"""A server that nobody runs."""

# The words in braces are files, which `files` makes.
SUCCESS = (
    ("search", COMPOST),
    ("explain", COMPOST),
    ("explain", COMPOST, "--passage", "compost"),
    ("validate", "--suite", "{suite}"),
    ("suite", "lint", "{suite}"),
    ("suite", "new", "--count", "3"),
    ("tune", "--suite", "{suite}", "--mode", "dense"),
    ("gaps", "--queries", "{queries}"),
    ("coverage", "--fail-under", "50"),
    ("doctor",),
    ("collections",),
    ("collections", "house"),
    ("upgrade",),
    ("backup", "house", "--output", "{backup}"),
    ("export", "--llms", "{llms}"),
    ("keys", "list"),
    ("index", "{book}", "--dry-run"),
)
NO_RESULTS = (
    ("search", COMPOST, "--module", "nowhere"),
    ("search", COMPOST, "--min-score", "1"),
    ("explain", COMPOST, "--module", "nowhere"),
    ("explain", COMPOST, "--passage", "The moon is made of cheese"),
    ("suite", "add", "{new}", "--from-log", "--log", "{empty}"),
)
CONFIGURATION = (
    ("search", COMPOST, *OTHER),
    ("explain", COMPOST, *OTHER),
    ("validate", *OTHER),
    ("suite", "new", *OTHER),
    ("suite", "lint", "{suite}", *OTHER),
    ("tune", "--suite", "{suite}", *OTHER),
    ("gaps", "--queries", "{queries}", *OTHER),
    ("coverage", *OTHER),
    ("calibrate", *OTHER),
    ("doctor", *OTHER),
    ("collections", "missing"),
    ("delete", "missing", "--yes"),
    ("rollback", "missing"),
    ("rollback", "house", "--to", "gen-999999"),
    ("backup", "missing", "--output", "{new}"),
    ("upgrade", "missing"),
    ("export", "--llms", "{new}", *OTHER),
    ("promote", *OTHER),
    ("parity",),
    ("prepare",),
)
CONNECTION = (
    ("search", COMPOST),
    ("doctor",),
    ("collections",),
    ("promote",),
    ("prepare", "house"),
    ("index", "{book}"),
)
INVALID = (
    ("serch", COMPOST),
    ("search",),
    ("search", ""),
    ("search", COMPOST, "--top-k", "0"),
    ("search", COMPOST, "--mode", "sparse"),
    ("search", COMPOST, "--collection", "../house"),
    ("explain", COMPOST, "--unknown"),
    ("validate", "--suite", "{new}"),
    ("validate", "--gate", "Hit@5"),
    ("suite", "lint", "{new}"),
    ("suite", "lint", "{text}"),
    ("suite", "new", "--out", "{suite}"),
    ("tune", "--suite", "{suite}", "--weight", "2"),
    ("gaps",),
    ("coverage", "--fail-under", "101"),
    ("doctor", "--unknown"),
    ("delete", "house"),
    ("restore", "{new}"),
    ("restore", "{suite}"),
    ("export",),
    ("keys", "add", "reader"),
    ("keys", "revoke", "nobody"),
    ("index",),
    ("index", "{new}"),
    ("watch", "https://book.example"),
    ("mcp", "--port", "1"),
    ("serve", "--port", "70000"),
    ("judge", "{new}"),
)
FAILED = (
    ("validate", "--suite", "{wrong}"),
    ("suite", "lint", "{unclear}"),
)
CASES = [
    (arguments, code, variables)
    for code, listed, variables in (
        (0, SUCCESS, {}),
        (1, NO_RESULTS, {}),
        (2, CONFIGURATION, {}),
        (2, (("search", COMPOST), ("index", "{book}"), ("doctor",)), {"RECTO_PROFILE": "moon"}),
        (3, CONNECTION, LOCAL),
        (4, INVALID, {}),
        (5, FAILED, {}),
    )
    for arguments in listed
]


def _suite(question: dict[str, object]) -> str:
    return json.dumps({"queries": [question]})


@pytest.fixture(scope="module")
def files(house: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("files")
    texts = {
        "queries": COMPOST,
        "suite": _suite({"query": COMPOST, "expect": {"module": "garden"}}),
        "wrong": _suite({"query": COMPOST, "expect": {"module": "kitchen"}}),
        "unclear": _suite({"query": COMPOST}),
        "text": "no JSON",
    }
    for name, text in texts.items():
        (root / name).write_text(text, "utf-8")
    (root / "empty").mkdir()
    return {name: root / name for name in (*texts, "empty", "new", "backup", "llms")} | {
        "book": house / "book"
    }


@pytest.mark.parametrize(("arguments", "code", "variables"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_exit_code(
    house: Path, files: dict[str, Path], arguments: tuple[str, ...], code: int, variables: dict[str, str]
) -> None:
    done = recto(house / "home", *(one.format_map(files) for one in arguments), **variables)
    assert done.returncode == code, done.stdout + done.stderr
