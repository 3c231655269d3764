"""Imports: no heavy package before it is needed, and no socket in the embedded profile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT, environment

HEAVY = {
    "numpy",
    "onnxruntime",
    "tokenizers",
    "qdrant_edge",
    "qdrant_client",
    "cohere",
    "fastapi",
    "httpx",
    "rich",
    "prompt_toolkit",
}

PROBE = """
import sys
sys.argv = ["retrieve.py", *{arguments!r}]
import atexit, json, os
def report():
    sys.stderr.write("LOADED " + " ".join(sorted({{name.split(".")[0] for name in sys.modules}})))
atexit.register(report)
from recto.{program} import main
main()
"""

NO_SOCKETS = """
import socket
class Refused(socket.socket):
    def __new__(cls, *arguments, **more):
        raise AssertionError("a socket was opened")
def refuse(*arguments, **more):
    raise AssertionError("the network was used")
socket.socket = Refused
for name in ("create_connection", "getaddrinfo", "gethostbyname", "create_server", "socketpair", "fromfd"):
    setattr(socket, name, refuse)
"""


def probe(
    home: Path, *arguments: str, program: str = "cli.retrieve", before: str = "", **more: str
) -> tuple[int, set[str]]:
    code = before + PROBE.format(arguments=list(arguments), program=program)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "LOADED " in done.stderr, done.stderr
    assert "AssertionError" not in done.stderr, done.stderr
    return done.returncode, set(done.stderr.rpartition("LOADED ")[2].split())


@pytest.mark.parametrize(
    ("arguments", "more", "code"),
    [
        (["--help"], {}, 0),
        (["robot", "--top-k", "0"], {}, 4),
        (["robot", "--top-k", "x"], {}, 4),
        ([""], {}, 4),
        (["a" * 2001], {}, 4),
        (["robot", "--wrong"], {}, 4),
        (["robot", "--module", " "], {}, 4),
        (["--validate", "--suite", "missing.json"], {}, 4),
        (["robot"], {"RECTO_PROFILE": "cloud"}, 2),
        (["--validate"], {"QDRANT_URL": "https://x.example.org"}, 2),
        (["robot"], {"COLLECTION_NAME": "not-there"}, 2),
        (["robot"], {"RECTO_THREADS": "no"}, 2),
    ],
)
def test_help_and_errors_of_retrieve(
    home: Path, arguments: list[str], more: dict[str, str], code: int
) -> None:
    found, loaded = probe(home, *arguments, **more)
    assert found == code
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["index", "--help"],
        ["index"],
        ["index", "/no/such/place"],
        ["search", ""],
        ["nonsense"],
        ["serve", "--help"],
        ["serve", "--host", "0.0.0.0"],
    ],
)
def test_help_and_errors_of_recto(home: Path, arguments: list[str]) -> None:
    _, loaded = probe(home, *arguments, program="cli.main")
    assert loaded & HEAVY == set()


def test_the_overview_of_the_commands_imports_no_settings_and_no_values(home: Path) -> None:
    """They have dozens of dataclasses, which take longer than the rest of `recto --help`."""
    before = "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules)))\n"
    code = before + "sys.argv = ['recto', '--help']; from recto.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "recto.cli.runner" in loaded
    assert loaded & {"recto.settings", "recto.types.search", "recto.api", "recto.protocols"} == set()


def test_a_query_imports_only_the_embedded_engine(sample_home: Path) -> None:
    code, loaded = probe(sample_home, "What is ROS 2?", "--json")
    assert code == 0
    assert loaded & {"numpy", "onnxruntime", "tokenizers", "qdrant_edge"} == {
        "qdrant_edge"
    }  # the model runs through the C API of onnxruntime
    unwanted = {
        "subprocess",
        "qdrant_client",
        "cohere",
        "fastapi",
        "rich",
        "prompt_toolkit",
        "markdown_it",
        "asyncio",
        "httpx",
        "yaml",
        "huggingface_hub",
        "difflib",
        "opentelemetry",
    }
    assert loaded & unwanted == set()


def test_importing_recto() -> None:
    code = "import sys, recto; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & (HEAVY | {"click", "asyncio"}) == set()


def test_the_embedded_profile_opens_no_socket(sample_home: Path, home: Path, small_book: Path) -> None:
    assert probe(sample_home, "What is ROS 2?", before=NO_SOCKETS)[0] == 0
    assert probe(sample_home, "--validate", before=NO_SOCKETS)[0] == 0
    for arguments in (["index", str(small_book)], ["search", "dough"]):
        code, _ = probe(home, *arguments, "--collection", "garden", program="cli.main", before=NO_SOCKETS)
        assert code == 0
