"""backend/README.md: every command and example runs, every JSON is valid, and the results are current."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from recto.cli.retrieval_test import command
from recto.contracts.retrieval_test.suites import parse_cases
from tests.contracts.retrieval_test.conftest import BACKEND
from tests.running import environment

README = BACKEND / "README.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def fences(language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(README.read_text("utf-8")) if kind == language]


COMMANDS = sorted({line for body in fences("bash") for line in body.strip().split("\n")} - {"cd backend"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "backend"
    shutil.copytree(BACKEND, folder, ignore=shutil.ignore_patterns("*.log*", "__pycache__"))
    return folder


def in_folder(folder: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(home),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(folder: Path, sample_home: Path, schema: Draft202012Validator, line: str) -> None:
    words = shlex.split(line.removeprefix("uv run "))
    assert words[0] == "python"
    done = in_folder(folder, sample_home, *words[1:])
    assert done.returncode == 0, done.stderr
    schema.validate(json.loads(done.stdout))


def test_the_python_example(folder: Path, sample_home: Path) -> None:
    (code,) = fences("python")
    done = in_folder(folder, sample_home, "-c", code)
    assert done.stdout == "ROS 2 Fundamentals\n", done.stderr


def test_the_json_examples(schema: Draft202012Validator) -> None:
    response, error, suite = (json.loads(body) for body in fences("json"))
    schema.validate(error)
    schema.validate({**response, "results": []})
    assert len(parse_cases(suite, "README.md").cases) == 3


def test_every_flag_is_documented() -> None:
    text = README.read_text("utf-8")
    assert all(f"`{flag}" in text for option in command.params for flag in option.opts)


def test_the_table_of_results(folder: Path, sample_home: Path) -> None:
    queries = json.loads(
        in_folder(folder, sample_home, "test_retrieval.py", "--test-suite", "test_queries.json").stdout
    )["queries"]
    asked = Counter(entry["category"] for entry in queries)
    passed = Counter(entry["category"] for entry in queries if entry["passed"])
    rows = [f"| {category} | {count} | {passed[category]} |" for category, count in asked.items()]
    rows.append(f"| all | {len(queries)} | {passed.total()} |")
    table = "\n".join(["| category | queries | passed |", "|---|---|---|", *rows])
    text = README.read_text("utf-8")
    shown = re.search(r"<!-- results -->\n(.*?)\n?<!-- /results -->", text, re.DOTALL)
    assert shown
    if os.environ.get("WRITE_TABLES"):
        README.write_text(
            text[: shown.start()] + f"<!-- results -->\n{table}\n<!-- /results -->" + text[shown.end() :],
            "utf-8",
        )
    else:
        assert shown[1] == table, "run the test with WRITE_TABLES=1 to update the page"
