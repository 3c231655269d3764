"""Lines from a pipe: results on standard output, errors on standard error, one exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT, environment


def piped(home: Path, lines: str | bytes, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "recto", "shell", *arguments],
        cwd=ROOT,
        env=environment(home, **more),
        input=lines if isinstance(lines, bytes) else lines.encode(),
        capture_output=True,
        check=False,
        timeout=300,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def test_a_query_and_quit(sample_home: Path) -> None:
    done = piped(sample_home, "What is DDS in ROS 2?\n:quit\nnever asked\n", TERM="xterm-256color")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('Query: "What is DDS in ROS 2?"\n5 results in ')
    assert "#what-is-dds" in done.stdout
    assert "recto>" not in done.stdout
    assert "\x1b" not in done.stdout
    assert "never" not in done.stdout
    assert not (sample_home / "shell-history").exists(), "only a terminal has a history"


def test_the_exit_code_is_that_of_the_first_failure(sample_home: Path) -> None:
    lines = (
        "\ufeff:top 1\r\n:url intro\n:module nowhere\n:url off\nWhat is ROS 2?\n:collection gone\n"
        + "a" * 2001
        + "\nrobot"
    )
    done = piped(sample_home, lines)
    assert done.returncode == 4
    errors = [line for line in done.stderr.split("\n") if line.startswith("[ERROR]")]
    assert [error.partition(": ")[0] for error in errors] == [
        "[ERROR] line 3",
        "[ERROR] line 6",
        "[ERROR] line 7",
    ]
    assert done.stdout.count("Query: ") == 2
    assert done.stdout.count("1 result in ") == 2


def test_json(sample_home: Path) -> None:
    done = piped(sample_home, ":module ros2\nURDF\n:select 1\n\n", "--json", "--top-k", "2")
    assert (done.returncode, done.stderr) == (0, "")
    decoder, rest, found = json.JSONDecoder(), done.stdout.strip(), []
    while rest:
        data, end = decoder.raw_decode(rest)
        found.append(data)
        rest = rest[end:].strip()
    assert [data["total_found"] for data in found] == [2, 2]
    assert found[0]["filters"] == {"module": "ros2"}
    assert found[1]["selection"]["given"] > 0


@pytest.mark.parametrize(
    "lines",
    ["", "\n\n", ":help\n", ":select\nNodes talk over topics.\n", ":select\nNodes talk over topics.\n.\n"],
)
def test_end_of_input(sample_home: Path, lines: str) -> None:
    done = piped(sample_home, lines)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("results in" in done.stdout) == lines.startswith(":select")


def test_no_results_is_exit_code_1(sample_home: Path) -> None:
    assert piped(sample_home, "robot\n", "--min-score", "2").returncode == 1


def test_invalid_utf_8(sample_home: Path) -> None:
    done = piped(sample_home, b"\xff\xfe robots \x1b[31m\n:nul\x00l\n")
    assert done.returncode == 4
    assert "results in" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_invalid_options(sample_home: Path) -> None:
    assert piped(sample_home, "robot\n", "--top-k", "0").returncode == 4
    done = piped(sample_home, "robot\n", "--collection", "my-book")
    assert (done.returncode, done.stdout) == (2, "")
    assert "recto index PATH --collection my-book" in done.stderr


def test_prompt_toolkit_is_not_imported(sample_home: Path) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: sys.stderr.write('LOADED' if 'prompt_toolkit' in sys.modules else 'NOT'))\n"
        "sys.argv = ['recto', 'shell']\nfrom recto.cli.main import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(sample_home),
        input="robot\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "NOT")
