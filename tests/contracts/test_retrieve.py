"""Document 000: every example runs verbatim, with the output, exit codes and messages of the document."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT, environment, recto, retrieve

HEAD = re.compile(r'Query: "(?P<query>.*)"\nFound (?P<count>\d+) results? in \d+ms\n')
HIT = re.compile(
    r"\n\[(?P<rank>\d+)\] Score: (?P<score>[01]\.\d{3}) \| Module: (?P<module>\w+)\n"
    r"    Title: (?P<title>.+)\n    URL: (?P<url>local://docs/docs/\S+)\n"
    r"(?P<text>    Text: \"(?:.|\n {10,})*\"\n)?"
)
VERDICT = re.compile(
    r'\[(PASS|FAIL)\] "(.+)"\n       Expected: (\w+) \| Actual: (\w+) \| Score: ([01]\.\d{3})\n'
)
SUMMARY = """\
==================================================
Validation Complete!
==================================================
  Total Tests:  5
  Passed:       5
  Failed:       0
  Accuracy:     100.0%
  Duration:     SECONDSs
==================================================
"""


def as_written(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of the document verbatim."""
    words = shlex.split(command)
    assert words[:3] == ["uv", "run", "python"]
    if not shutil.which("uv"):
        words[:3] = [sys.executable]
    more = {"UV_NO_SYNC": "1"}  # keeps the test environment unchanged
    return subprocess.run(
        words,
        cwd=ROOT,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def parsed(output: str, *, verbose: bool = False) -> list[dict[str, str]]:
    head = HEAD.match(output)
    assert head, output
    hits = [found.groupdict() for found in HIT.finditer(output, head.end())]
    assert head.group() + "".join(found.group() for found in HIT.finditer(output, head.end())) == output, (
        "the output has only what the document shows"
    )
    assert len(hits) == int(head["count"])
    assert [int(hit["rank"]) for hit in hits] == list(range(1, len(hits) + 1))
    scores = [float(hit["score"]) for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert all((hit["text"] is not None) == verbose for hit in hits)
    return hits


def test_basic_query(sample_home: Path) -> None:
    done = as_written('uv run python retrieve.py "What is ROS 2?"', sample_home)
    assert (done.returncode, done.stderr) == (0, "")
    hits = parsed(done.stdout)
    assert len(hits) == 5
    assert hits[0]["module"] == "ros2"
    assert hits[0]["title"] == "ROS 2 Fundamentals"
    assert hits[0]["url"] == "local://docs/docs/module-1-ros2/01-ros2-fundamentals"


def test_query_with_top_k(sample_home: Path) -> None:
    done = as_written('uv run python retrieve.py "robot navigation" --top-k 10', sample_home)
    assert done.returncode == 0
    assert len(parsed(done.stdout)) == 10


def test_query_filtered_by_module(sample_home: Path) -> None:
    done = as_written('uv run python retrieve.py "sensors" --module simulation', sample_home)
    assert done.returncode == 0
    assert {hit["module"] for hit in parsed(done.stdout)} == {"simulation"}


def test_query_with_multiple_filters(sample_home: Path) -> None:
    done = as_written('uv run python retrieve.py "URDF" --module ros2 --top-k 3', sample_home)
    hits = parsed(done.stdout)
    assert done.returncode == 0
    assert [hit["module"] for hit in hits] == ["ros2"] * 3
    assert hits[0]["title"] == "Humanoid URDF"


def test_verbose_output(sample_home: Path) -> None:
    done = as_written('uv run python retrieve.py "Isaac Sim" --verbose', sample_home)
    assert done.returncode == 0
    assert parsed(done.stdout, verbose=True)[0]["module"] == "isaac"
    assert max(map(len, done.stdout.split("\n"))) <= 120


def test_json_output(sample_home: Path) -> None:
    done = as_written('uv run python retrieve.py "digital twin" --json', sample_home)
    assert done.returncode == 0
    data = json.loads(done.stdout)
    assert list(data) == ["query", "total_found", "query_time_ms", "filters", "results"]
    assert (data["query"], data["total_found"], data["filters"]) == ("digital twin", 5, {})
    assert isinstance(data["query_time_ms"], int)
    for result in data["results"]:
        assert list(result) == ["score", "module_name", "page_title", "page_url", "chunk_index", "text"]
        assert 0 <= result["score"] <= 1
        assert result["text"].strip()
    assert data["results"][0]["page_title"] == "Digital Twins"


def test_validation(sample_home: Path) -> None:
    done = as_written("uv run python retrieve.py --validate", sample_home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Running Retrieval Validation Suite...\n\n")
    verdicts = VERDICT.findall(done.stdout)
    assert [(verdict[0], verdict[1], verdict[2], verdict[3]) for verdict in verdicts] == [
        ("PASS", "What is ROS 2 and how do nodes communicate?", "ros2", "ros2"),
        ("PASS", "How do I set up Gazebo for robot simulation?", "simulation", "simulation"),
        ("PASS", "What is NVIDIA Isaac Sim and Isaac ROS?", "isaac", "isaac"),
        ("PASS", "How do VLA models work for robot control?", "vla", "vla"),
        ("PASS", "What topics does this book cover?", "intro", "intro"),
    ]
    assert re.sub(r"\d+\.\d\ds", "SECONDSs", done.stdout).endswith(SUMMARY)


def test_verbose_validation(sample_home: Path) -> None:
    done = as_written("uv run python retrieve.py --validate --verbose", sample_home)
    assert done.returncode == 0
    assert done.stdout.count("       Text: ") == 5
    assert done.stdout.count("       Results: 5 | Time: ") == 5


def test_the_same_query_twice_gives_the_same_json(sample_home: Path) -> None:
    first, second = (
        json.loads(retrieve(sample_home, "robot", "--top-k", "50", "--json").stdout) for _ in range(2)
    )
    first.pop("query_time_ms"), second.pop("query_time_ms")
    assert first == second


@pytest.mark.parametrize("value", ["0", "-3", "101", "x", "", "5.0", "1e1", "1_0", "٣", "9" * 5000])
def test_top_k_out_of_range(home: Path, value: str) -> None:
    done = retrieve(home, "robot", "--top-k", value)
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.startswith("[ERROR] Invalid argument: --top-k must be between 1 and 100\n")
    assert not home.exists()


@pytest.mark.parametrize("arguments", [[], [""], ["   "], ["\n\t "], ["--json"]])
def test_empty_query(home: Path, arguments: list[str]) -> None:
    done = retrieve(home, *arguments)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("[ERROR] Query cannot be empty\n")


def test_long_query(home: Path) -> None:
    done = retrieve(home, "a" * 2001)
    assert done.returncode == 4
    assert done.stderr.startswith("[ERROR] Query is too long: 2001 characters")


@pytest.mark.parametrize(
    "query",
    [
        "🤖🦾 what?",
        "ما هو الروبوت؟",
        "\u202eresrever",
        "\x1b[31mred\x1b[0m",
        "\x01\x02",
        "a" * 2000,
        "'; DROP TABLE --",
        "%s %d {}",
    ],
)
def test_unusual_queries(sample_home: Path, query: str) -> None:
    done = retrieve(sample_home, query)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    data = json.loads(retrieve(sample_home, query, "--json").stdout)
    assert data["query"] == query.strip()


def test_a_query_that_is_not_text(sample_home: Path) -> None:
    done = subprocess.run(
        [os.fsencode(sys.executable), b"retrieve.py", b"\xff\xfe\x80 robot", b"--json"],
        cwd=ROOT,
        env=environment(sample_home),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total_found"] == 5


def test_unknown_module(sample_home: Path) -> None:
    done = retrieve(sample_home, "sensors", "--module", "simulaton")
    assert (done.returncode, done.stderr) == (1, "")
    assert "Found 0 results" in done.stdout
    assert "Did you mean 'simulation'?" in done.stdout
    data = json.loads(retrieve(sample_home, "sensors", "--module", "simulaton", "--json").stdout)
    assert (data["total_found"], data["results"], data["outcome"]) == (0, [], "filtered_out")
    assert data["filters"] == {"module": "simulaton"}
    assert "Modules: intro, isaac, ros2, simulation, vla" in data["message"]


def test_unknown_url(sample_home: Path) -> None:
    done = retrieve(sample_home, "sensors", "--url", "local://docs/docs/intr")
    assert done.returncode == 1
    assert "Did you mean 'local://docs/docs/intro'?" in done.stdout


def test_several_modules_and_a_page(sample_home: Path) -> None:
    done = retrieve(
        sample_home, "robot", "--module", "ros2,vla", "--module", "module-3-isaac", "--top-k", "60", "--json"
    )
    data = json.loads(done.stdout)
    assert data["filters"] == {"module": ["ros2", "vla", "module-3-isaac"]}
    assert {result["module_name"] for result in data["results"]} == {"ros2", "vla", "isaac"}
    url = "local://docs/docs/module-1-ros2/03-humanoid-urdf"
    data = json.loads(retrieve(sample_home, "robot", "--module", "ros2", "--url", url + "/", "--json").stdout)
    assert {result["page_url"] for result in data["results"]} == {url}


def test_no_result_reaches_the_score(sample_home: Path) -> None:
    done = retrieve(sample_home, "quantum entanglement", "--min-score", "0.99")
    assert done.returncode == 1
    assert "No chunk reaches the minimum score" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["robot", "--nonsense"], "--nonsense"),
        (["robot", "extra"], "extra"),
        (["robot", "--module", ""], "--module cannot be empty"),
        (["robot", "--url", " "], "--url cannot be empty"),
        (["robot", "--min-score", "7"], "--min-score"),
        (["robot", "--min-score", "nan"], "--min-score"),
        (["robot", "--collection", "../x"], "--collection is not"),
        (["robot", "--collection", ""], "--collection is not"),
        (["robot", "--suite", "x.json"], "--suite goes with --validate"),
        (["--validate", "--suite", "missing.json"], "cannot be read"),
        (["--validate", "--suite", "pyproject.toml"], "line 1"),
    ],
)
def test_other_invalid_arguments(home: Path, arguments: list[str], words: str) -> None:
    done = retrieve(home, *arguments)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert done.stderr.startswith("[ERROR] Invalid argument: ")
    assert words in done.stderr
    assert len(done.stderr.strip().split("\n")) == 2, "a message and a hint"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"QDRANT_URL": "https://x.cloud.qdrant.io:6333", "QDRANT_API_KEY": "secret-q"},
            "COHERE_API_KEY is required but not set",
        ),
        ({"COHERE_API_KEY": "secret-c"}, "QDRANT_URL is required but not set"),
        (
            {"COHERE_API_KEY": "secret-c", "QDRANT_URL": "https://x.cloud.qdrant.io:6333"},
            "QDRANT_API_KEY is required but not set",
        ),
        ({"RECTO_PROFILE": "cloud"}, "COHERE_API_KEY is required but not set"),
        ({"RECTO_PROFILE": "nowhere"}, "RECTO_PROFILE must be one of"),
        ({"COLLECTION_NAME": "a/b"}, "COLLECTION_NAME is not a usable collection name"),
        ({"RECTO_MODEL": "/no/such/model"}, "there is no directory /no/such/model"),
        ({"RECTO_HOME": "~nosuchuser/x"}, "RECTO_HOME is not a usable directory"),
        ({"QDRANT_URL": "http://["}, "QDRANT_URL is not an http(s) address"),
        ({"RECTO_THREADS": "9" * 5000}, "RECTO_THREADS must be a whole number"),
    ],
)
def test_configuration_errors(home: Path, more: dict[str, str], message: str) -> None:
    done = retrieve(home, "robot", **more)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("[ERROR] Configuration error: ")
    assert message in done.stderr
    assert "secret" not in done.stderr


def test_a_missing_collection_names_the_index_command(sample_home: Path, home: Path) -> None:
    done = retrieve(sample_home, "robot", COLLECTION_NAME="my-book")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("[ERROR] Configuration error: Collection 'my-book' does not exist\n")
    assert "recto index PATH --collection my-book" in done.stderr
    assert "physical-ai-book" in done.stderr
    assert retrieve(home, "robot", "--collection", "my-book").returncode == 2


def test_every_default_name_works(sample_home: Path) -> None:
    for name in ("physical-ai-book", "humanoid_robotics_book", "website_embeddings", "rag_embedding"):
        assert retrieve(sample_home, "robot", COLLECTION_NAME=name).returncode == 0


def test_help(home: Path) -> None:
    done = retrieve(home, "--help")
    assert done.returncode == 0
    for word in (
        "--top-k",
        "--module",
        "--url",
        "--validate",
        "--verbose",
        "--json",
        "--suite",
        "Exit codes",
        "Examples",
    ):
        assert word in done.stdout


def test_closed_pipe(sample_home: Path) -> None:
    command = f"{shlex.quote(sys.executable)} retrieve.py robot --top-k 100 --verbose | head -1"
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=environment(sample_home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == 'Query: "robot"\n'
    assert done.stderr == ""


def in_shell(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=False
    )


def test_closed_output(sample_home: Path) -> None:
    python = shlex.quote(sys.executable)
    assert in_shell(f"{python} retrieve.py robot >&-", sample_home).returncode == 0
    for arguments in ("robot", "robot --json", "--help"):
        done = in_shell(f"{python} retrieve.py {arguments} >/dev/full", sample_home)
        assert done.returncode == 3
        assert done.stderr.startswith("[ERROR] Storage error: The output cannot be written")
    assert in_shell(f"{python} retrieve.py '' 2>/dev/full", sample_home).returncode == 4


def test_a_deleted_working_directory(sample_home: Path) -> None:
    program = shlex.quote(str(Path(sys.executable).with_name("recto")))
    done = in_shell(
        "mkdir -p $RECTO_HOME/gone && cd $RECTO_HOME/gone && rmdir $RECTO_HOME/gone && "
        f"{program} search robot",
        sample_home,
    )
    assert done.returncode == 0, done.stderr


def test_recto_search_shows_the_section(sample_home: Path) -> None:
    done = recto(sample_home, "search", "What is DDS in ROS 2?", "--top-k", "1")
    assert (
        "    What is DDS in ROS 2?\n    local://docs/docs/module-1-ros2/04-dds-and-qos#what-is-dds\n"
        in done.stdout
    )
    data = json.loads(recto(sample_home, "search", "What is DDS in ROS 2?", "--top-k", "1", "--json").stdout)
    assert data["results"][0]["anchor"] == "what-is-dds"


def test_recto_without_arguments_shows_the_help(home: Path) -> None:
    done = recto(home)
    assert done.returncode == 0
    assert "Usage: recto" in done.stdout


def test_an_ascii_terminal(sample_home: Path) -> None:
    done = retrieve(sample_home, "robots 🤖", "--verbose", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert 'Query: "robots ' in done.stdout


def test_a_custom_suite(sample_home: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    entries = [
        {
            "query": "What is DDS in ROS 2?",
            "expect": {"module": ["ros2", "isaac"], "page": "module-1-ros2/04-dds-and-qos"},
        },
        {
            "query": "What is a digital twin?",
            "expect": {"page": "local://docs/docs/module-2-simulation/05-digital-twins"},
        },
        {"query": "What is a digital twin?", "expect": {"module": "vla"}},
    ]
    suite.write_text(json.dumps({"queries": entries}))
    done = retrieve(sample_home, "--validate", "--suite", str(suite))
    assert done.returncode == 5
    assert '[FAIL] "What is a digital twin?"\n       Expected: vla | Actual: simulation' in done.stdout
    assert "Accuracy:     66.7%" in done.stdout
    data = json.loads(retrieve(sample_home, "--validate", "--suite", str(suite), "--json").stdout)
    assert (data["passed"], data["failed"], data["accuracy"]) == (2, 1, 0.6667)
    assert [test["passed"] for test in data["tests"]] == [True, True, False]
    suite.write_text(json.dumps({"queries": entries[:2] * 2 + entries[2:]}))
    assert retrieve(sample_home, "--validate", "--suite", str(suite)).returncode == 0, "80 % is enough"
