"""Imports: no heavy package before it is needed, and no socket in the embedded profile."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.running import run

HEAVY = {
    *("numpy", "onnxruntime", "tokenizers", "qdrant_edge", "qdrant_client", "cohere"),
    *("fastapi", "httpx", "rich", "prompt_toolkit"),
}
RUN = """
import json, os, sys
from recto.cli import run
codes, before = [], dict(os.environ)
for name, arguments, variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    if name == "recto":
        from recto.cli.main import recto as command
    else:
        from recto.cli.retrieve import retrieve as command
    codes.append(run(command, arguments, name))
    os.environ.clear()
    os.environ.update(before)
print("\\n" + json.dumps([codes, sorted(sys.modules)]))
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
Case = tuple[str, list[str], dict[str, str]]


def run_all(home: Path, *cases: Case, before: str = "") -> tuple[list[int], set[str]]:
    """Run commands one after the other in a new process; return their exit codes and the modules it loaded."""
    done = run([sys.executable, "-c", before + RUN, json.dumps(cases)], home)
    assert (done.returncode, "AssertionError" in done.stderr) == (0, False), done.stderr
    result: Any = json.loads(done.stdout.splitlines()[-1])
    return result[0], set(result[1])


def test_help_and_errors_import_nothing_heavy(home: Path) -> None:
    retrieving: list[tuple[list[str], dict[str, str], int]] = [
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
    ]
    product = (
        "--help", "index --help", "index", "index /no/such/place", "search", "nonsense", "serve --help",
        "serve --host 0.0.0.0",
    )  # fmt: skip
    cases: list[Case] = [("retrieve.py", arguments, variables) for arguments, variables, _ in retrieving]
    cases += [("recto", line.split(), {}) for line in product]
    codes, loaded = run_all(home, *cases)
    assert codes[: len(retrieving)] == [code for *_, code in retrieving]
    assert {name.split(".")[0] for name in loaded} & HEAVY == set()


def test_the_overview_of_the_commands_imports_no_settings_and_no_values(home: Path) -> None:
    """They have dozens of dataclasses, which take longer than the rest of `recto --help`."""
    _, loaded = run_all(home, ("recto", ["--help"], {}))
    assert "recto.cli" in loaded
    assert loaded & {"recto.settings", "recto.types.search", "recto.api", "recto.protocols"} == set()


def test_a_query_imports_only_the_embedded_engine_and_opens_no_socket(sample_home: Path) -> None:
    codes, modules = run_all(sample_home, ("retrieve.py", ["What is ROS 2?"], {}), before=NO_SOCKETS)
    loaded = {name.split(".")[0] for name in modules}
    assert codes == [0]
    # The model runs through the C API of onnxruntime.
    assert loaded & {"numpy", "onnxruntime", "tokenizers", "qdrant_edge"} == {"qdrant_edge"}
    unwanted = (
        "subprocess qdrant_client cohere fastapi rich prompt_toolkit markdown_it asyncio httpx yaml "
        "huggingface_hub difflib opentelemetry"
    )
    assert loaded & set(unwanted.split()) == set()


def test_importing_recto(home: Path) -> None:
    code = "import sys, recto; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = run([sys.executable, "-c", code], home)
    assert set(done.stdout.split()) & (HEAVY | {"click", "asyncio"}) == set()


def test_the_embedded_profile_opens_no_socket(sample_home: Path, home: Path, small_book: Path) -> None:
    assert run_all(sample_home, ("retrieve.py", ["--validate"], {}), before=NO_SOCKETS)[0] == [0]
    named = ["--collection", "garden"]
    commands = (["index", str(small_book), *named], ["search", "dough", *named])
    assert run_all(home, *(("recto", one, {}) for one in commands), before=NO_SOCKETS)[0] == [0, 0]
