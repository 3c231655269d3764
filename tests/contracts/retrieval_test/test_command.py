"""The command with odd queries, bad flags, unwritable files and a closed output: always JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from recto.search.retriever import Retriever
from recto.types.search import Mode
from tests.contracts.retrieval_test.conftest import BACKEND, Call
from tests.running import environment, wait_until

QUOTED = [
    ["--query", "What is ROS 2?"],
    ["--query", "Unity integration", "--top-k", "10"],
    ["--test-suite", "test_queries.json"],
    ["--query", "DDS explained", "--output", "results.json"],
    ["--query", "What is DDS in ROS 2?"],
    ["--test-suite", "test_queries.json", "--verbose"],
]


def script(workdir: Path, home: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(BACKEND / "test_retrieval.py"), *arguments]
    return subprocess.run(
        command,
        cwd=workdir,
        env=environment(home),
        timeout=300,
        check=False,
        **{"capture_output": True, **more},
    )


@pytest.mark.parametrize("arguments", QUOTED, ids=" ".join)
def test_every_command_of_the_contract_runs(
    tmp_path: Path, sample_home: Path, schema: Draft202012Validator, arguments: list[str]
) -> None:
    """Run in a copy of the backend directory, to leave no files in the checkout."""
    for name in ("test_retrieval.py", "retrieval.py", "test_queries.json"):
        (tmp_path / name).symlink_to(BACKEND / name)
    done = subprocess.run(
        [sys.executable, "test_retrieval.py", *arguments],
        cwd=tmp_path,
        env=environment(sample_home),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    schema.validate(json.loads(done.stdout))
    if "--output" in arguments:
        document = json.loads((tmp_path / "results.json").read_bytes())
        schema.validate(document)
        assert document["query"] == "DDS explained"
        assert json.loads(done.stdout) == {"schema_version": "1.0", "output": "results.json", "exit_code": 0}
    assert (b"[DEBUG] [EMBED]" in done.stderr) == ("--verbose" in arguments)
    assert "[CLI]" in (tmp_path / "retrieval_test.log").read_text("utf-8")


@pytest.mark.parametrize(
    "query",
    [
        "null \0 byte",
        "half \ud83d of a pair",
        "🤖🦾 robots",
        "a" * 2000,
        "ما هو الروبوت",
        "' OR 1=1; DROP TABLE chunks; --",
        "\x1b[31mred\x07",
    ],
    ids=["null", "surrogate", "emoji", "2000", "rtl", "sql", "escape"],
)
def test_unusual_queries(call: Call, embedded: Path, query: str) -> None:
    outcome = call("--query", query)
    assert outcome.code == 0
    assert outcome.document["result_count"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give either --query or --test-suite"),
        (["--query", "x", "--test-suite", "y.json"], "Give either --query or --test-suite"),
        (["--query", "a" * 2001], "Query is too long: 2001 characters"),
        (["--query", " "], "Query cannot be empty"),
        (["--query"], "requires an argument"),
        (["--query", "x", "--top-k", "0"], "between 1 and 50"),
        (["--query", "x", "--top-k", "51"], "between 1 and 50"),
        (["--query", "x", "--top-k", "many"], "'many' is not a valid integer"),
        (["--query", "x", "--delay", "1"], "go with --test-suite"),
        (["--test-suite", "x.json", "--delay", "-1"], "'--delay'"),
        (["--wrong"], "No such option"),
        (["What is ROS 2?"], "unexpected extra argument"),
        (["--query", "x", "--output", "no/such/place.json"], "--output no/such/place.json cannot be written"),
        (["--query", "x", "--output", "."], "is not a file"),
        (["--query", "x", "--output", "a\0b"], "--output"),
    ],
)
def test_bad_arguments_are_json_with_exit_code_1(
    call: Call, embedded: Path, arguments: list[str], message: str
) -> None:
    outcome = call(*arguments)
    assert outcome.code == 1
    assert outcome.error["kind"] == "argument"
    assert message in outcome.error["message"]
    assert outcome.error["hint"]


def test_hybrid_mode(call: Call, embedded: Path, retriever: Retriever) -> None:
    query = "costmap inflation"
    plain, dense, hybrid = (
        call("--query", query, *more) for more in ((), ("--mode", "dense"), ("--mode", "hybrid"))
    )
    assert plain.document == dense.document
    asked: list[tuple[Any, Mode]] = [(dense, "dense"), (hybrid, "hybrid")]
    for outcome, mode in asked:
        assert outcome.code == 0
        found = [result["text"] for result in outcome.document["results"]]
        assert found == [hit.chunk.text for hit in retriever.search(query, mode=mode).hits]
    assert hybrid.document["results"] != dense.document["results"]


def test_an_error_replaces_an_old_result(call: Call, embedded: Path, workdir: Path) -> None:
    (workdir / "results.json").write_text("old")
    outcome = call("--query", "", "--output", "results.json")
    assert outcome.code == 1
    assert json.loads((workdir / "results.json").read_text("utf-8")) == outcome.document


def test_output_keeps_a_symbolic_link(call: Call, embedded: Path, workdir: Path) -> None:
    (workdir / "real.json").write_text("old")
    (workdir / "link.json").symlink_to("real.json")
    assert call("--query", "robot", "--output", "link.json").code == 0
    assert (workdir / "link.json").is_symlink()
    assert json.loads((workdir / "real.json").read_text("utf-8"))["query"] == "robot"
    assert sorted(path.name for path in workdir.iterdir()) == [
        "link.json",
        "real.json",
        "retrieval_test.log",
    ], "no temporary files are left"


def test_help_is_text(workdir: Path, home: Path) -> None:
    done = script(workdir, home, "--help")
    assert done.returncode == 0
    assert b"--test-suite" in done.stdout
    assert b"Exit codes: 0 success, 1 invalid arguments, 2 API error" in done.stdout
    assert list(workdir.iterdir()) == []


def test_configuration_error(call: Call, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTO_PROFILE", "cloud")
    outcome = call("--query", "robot")
    assert (outcome.code, outcome.error["kind"]) == (2, "configuration")
    assert "COHERE_API_KEY is required but not set" in outcome.error["message"]


def test_recto_is_not_installed(workdir: Path, schema: Draft202012Validator) -> None:
    for name in ("test_retrieval.py", "check_qdrant.py"):
        done = subprocess.run(
            [sys.executable, "-S", str(BACKEND / name)], cwd=workdir, capture_output=True, check=False
        )
        assert done.returncode == 2
        document = json.loads(done.stdout)
        schema.validate(document)
        assert document["error"]["hint"] == f"Run it with: uv run python {name}"


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_interruption(workdir: Path, sample_home: Path, schema: Draft202012Validator) -> None:
    suite = workdir / "suite.json"
    suite.write_text(json.dumps({"queries": [{"query": f"robot {number}"} for number in range(50)]}))
    command = [
        sys.executable,
        str(BACKEND / "test_retrieval.py"),
        "--test-suite",
        "suite.json",
        "--delay",
        "5",
    ]
    with subprocess.Popen(
        command, cwd=workdir, env=environment(sample_home), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        log = workdir / "retrieval_test.log"
        wait_until(lambda: log.exists() and "query (top_k" in log.read_text("utf-8"), 120)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert program.returncode == 130
    assert b"Traceback" not in err
    document = json.loads(out)
    schema.validate(document)
    assert document["error"]["kind"] == "interrupted"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_cannot_be_written(workdir: Path, sample_home: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = script(
            workdir,
            sample_home,
            "--query",
            "robot",
            capture_output=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 1
    assert b"[ERROR] The output cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors")
def test_closed_outputs(workdir: Path, sample_home: Path) -> None:
    line = f"exec {sys.executable} {BACKEND / 'test_retrieval.py'} --query robot"
    done = subprocess.run(
        ["sh", "-c", f"{line} >&- 2>&-"], cwd=workdir, env=environment(sample_home), check=False
    )
    assert done.returncode == 0
    done = subprocess.run(
        ["sh", "-c", f"{line} --output out.json >&-"], cwd=workdir, env=environment(sample_home), check=False
    )
    assert done.returncode == 0
    assert json.loads((workdir / "out.json").read_text("utf-8"))["result_count"] == 5


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@pytest.mark.parametrize("arguments", [["--query", "robot"], ["--help"]], ids=" ".join)
def test_closed_pipe(workdir: Path, sample_home: Path, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = script(
            workdir, sample_home, *arguments, capture_output=False, stdout=write, stderr=subprocess.PIPE
        )
    finally:
        os.close(write)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_an_ascii_terminal(workdir: Path, sample_home: Path) -> None:
    env = {**environment(sample_home), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, str(BACKEND / "test_retrieval.py"), "--query", "robot 🤖"]
    done = subprocess.run(command, cwd=workdir, env=env, capture_output=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout.decode("utf-8"))["query"] == "robot 🤖"


def test_check_qdrant(check: Call, embedded: Path) -> None:
    outcome = check()
    assert outcome.code == 0
    assert outcome.document["points"] > 300
    assert set(outcome.document["modules"]) == {"intro", "ros2", "simulation", "isaac", "vla"}
    missing = check("--collection", "elsewhere")
    assert (missing.code, missing.error["kind"]) == (2, "missing")
    assert check("--collection", "../x").code == 1
