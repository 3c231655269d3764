"""The GitHub Action: its steps run in order on a small book, with a double in place of the API of GitHub."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from recto import __version__
from tests.conftest import SHARED
from tests.doubles.server import Answer, Double, Request, answer_json, status
from tests.running import ROOT, Done, run

ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
COMMENTS = "/repos/owner/book/issues/7/comments"
needs_tools = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("bash", "curl", "jq")), reason="needs bash, curl and jq"
)


class GitHubDouble(Double):
    """The comments of a pull request; `may_write` is false for the token of a fork."""

    def __init__(self, *comments: dict[str, Any], may_write: bool = True) -> None:
        super().__init__()
        self.comments = list(comments)
        self.may_write = may_write

    def answer(self, request: Request) -> Answer:
        if request.method == "GET" and request.path == COMMENTS:
            size, page = int(request.query["per_page"]), int(request.query["page"])
            return answer_json(self.comments[size * (page - 1) : size * page])
        if not self.may_write:
            return self.error(403, "Resource not accessible by integration")
        if request.method == "POST" and request.path == COMMENTS:
            self.comments.append(comment(len(self.comments) + 1, request.body["body"]))
            return answer_json(self.comments[-1], 201)
        id = int(request.path.removeprefix("/repos/owner/book/issues/comments/"))
        (existing,) = (one for one in self.comments if one["id"] == id)
        assert request.method == "PATCH"
        existing["body"] = request.body["body"]
        return answer_json(existing)

    @property
    def written(self) -> list[str]:
        return [request.method for request in self.requests if request.method != "GET"]


def comment(id: int, body: str, kind: str = "Bot") -> dict[str, Any]:
    return {"id": id, "body": body, "user": {"type": kind, "login": "somebody"}}


@dataclass
class Job:
    """A job of a workflow: its directory, the inputs of the action, and the outputs of earlier steps."""

    directory: Path
    inputs: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    def value(self, text: str) -> str:
        """Replace the expressions of a workflow."""
        inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | self.inputs
        values = {f"inputs.{name}": value for name, value in inputs.items()}
        values |= {"github.event.pull_request.number": "7", "github.token": "job-token"}
        for step, outputs in self.outputs.items():
            values |= {f"steps.{step}.outputs.{name}": value for name, value in outputs.items()}
        for _ in range(2):  # the default of an input is an expression, too
            text = re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: values[match[1]], text)
        return text

    def run(self, name: str) -> Done:
        """Run a step by its name, as a runner does."""
        (step,) = (one for one in STEPS if one.get("name") == name)
        assert step["shell"] == "bash"
        output = self.directory / "output"
        output.write_text("")
        given = {name: self.value(value) for name, value in step.get("env", {}).items()}
        github = {
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_REPOSITORY": "owner/book",
            "GITHUB_STEP_SUMMARY": str(self.directory / "summary"),
            "RUNNER_TEMP": str(self.directory),
        }
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = run(bash, self.directory / "unused", self.directory, **{**github, **self.variables, **given})
        pairs = (line.partition("=") for line in output.read_text().splitlines())
        self.outputs[step.get("id", name)] = {key: value for key, _, value in pairs}
        return done

    @property
    def summary(self) -> str:
        path = self.directory / "summary"
        return path.read_text("utf-8") if path.exists() else ""


def programs(directory: Path, **scripts: str) -> str:
    """Write programs, and return a PATH in which they come first."""
    (directory / "bin").mkdir(exist_ok=True)
    for name, script in scripts.items():
        path = directory / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)
    return os.pathsep.join((str(directory / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))


def test_no_expression_is_part_of_a_script() -> None:
    """A branch or a path with quotes would otherwise be run as a command."""
    for step in STEPS:
        assert "${{" not in step.get("run", ""), step
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text("utf-8")))
    assert used == set(ACTION["inputs"])


def test_the_cache_depends_on_the_book_and_the_version() -> None:
    (cache,) = (step for step in STEPS if step.get("uses", "").startswith("actions/cache@"))
    assert cache["with"]["path"] == "${{ steps.install.outputs.home }}"
    assert "hashFiles(format('{0}/**', inputs.book))" in cache["with"]["key"]
    assert "steps.install.outputs.version" in cache["with"]["restore-keys"]
    assert cache["with"]["key"].startswith(cache["with"]["restore-keys"])


@needs_tools
def test_options_are_passed_as_they_are(tmp_path: Path) -> None:
    path = programs(
        tmp_path,
        recto='printf "%s\\n" "$@" > arguments; while [[ $# -gt 0 ]]; do [[ $1 != --markdown ]] || echo report > "$2"; shift; done',
    )
    inputs = {
        "book": "my docs",
        "suite": "a suite.json",
        "baseline": "missing.json",
        "index-options": "--site-url=https://example.org/$(id)/\n\n--verbose\n",
        "validate-options": "--gate=Hit@5>=0.9",
    }
    job = Job(tmp_path, inputs, {"PATH": path}, {"install": {"home": str(tmp_path / "home")}})
    assert job.run("Index the book").returncode == 0
    assert (tmp_path / "arguments").read_text().splitlines() == [
        *("index", "my docs", "--collection", "book", "--site-url=https://example.org/$(id)/", "--verbose")
    ]
    done = job.run("Validate retrieval")
    assert done.returncode == 0
    assert "::warning::There is no baseline missing.json" in done.stdout
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:3] == ["validate", "--suite", "a suite.json"]
    assert arguments[-1] == "--gate=Hit@5>=0.9"
    assert "--baseline" not in arguments
    assert job.outputs["validate"]["passed"] == "true"


@needs_tools
def test_a_validation_that_cannot_run_fails_at_once(tmp_path: Path) -> None:
    variables = {"PATH": programs(tmp_path, recto="exit 2")}
    job = Job(tmp_path, {"book": "docs", "suite": "x"}, variables, {"install": {"home": "home"}})
    assert job.run("Validate retrieval").returncode == 2
    assert job.outputs["validate"] == {}


MARK = "<!-- recto-report: my-book -->"


def comment_job(directory: Path, github: Double, report: str = "### Retrieval: passed\n") -> Job:
    (directory / "report.md").write_text(report, "utf-8")
    outputs = {"validate": {"report": str(directory / "report.md")}}
    return Job(directory, {"collection": "my-book"}, {"GITHUB_API_URL": github.url}, outputs)


@needs_tools
def test_the_comment_is_written_once_and_then_updated(tmp_path: Path) -> None:
    """Comments of people and of other books are not changed."""
    others = [comment(1, MARK, "User"), comment(2, "<!-- recto-report: other -->")]
    with GitHubDouble(*others) as github:
        for report in ('one "report"\n', "another $report `x` é\n"):
            assert comment_job(tmp_path, github, report).run("Comment on the pull request").returncode == 0
            assert github.comments[2]["body"] == f"{MARK}\n{report}"
        assert github.written == ["POST", "PATCH"]
        assert github.comments[:2] == others
        assert {request.headers["authorization"] for request in github.requests} == {"Bearer job-token"}


@needs_tools
def test_the_comment_is_found_on_a_later_page(tmp_path: Path) -> None:
    others = [comment(number, "x") for number in range(1, 131)]
    others[120]["body"] = f"{MARK}\nold"
    with GitHubDouble(*others) as github:
        assert comment_job(tmp_path, github).run("Comment on the pull request").returncode == 0
        assert github.written == ["PATCH"]
        assert github.comments[120]["body"].endswith("### Retrieval: passed\n")


@needs_tools
def test_a_fork_gets_the_report_in_the_summary_only(tmp_path: Path) -> None:
    with GitHubDouble(may_write=False) as github:
        job = comment_job(tmp_path, github)
        done = job.run("Comment on the pull request")
        assert (done.returncode, github.comments) == (0, [])
    assert "::notice::The token cannot write comments" in done.stdout
    assert "cannot write comments" in job.summary
    assert "job-token" not in done.stdout + done.stderr + job.summary


@needs_tools
def test_an_error_of_the_api_does_not_fail_the_job(tmp_path: Path) -> None:
    with GitHubDouble() as github:
        github.always(status(502))
        job = comment_job(tmp_path, github)
        failed = job.run("Comment on the pull request")
        assert github.written == []
    unreachable = job.run("Comment on the pull request")
    assert (failed.returncode, unreachable.returncode) == (0, 0)
    assert "::warning::The comment was not written (status 502)" in failed.stdout
    assert "(status 000)" in unreachable.stdout


@pytest.mark.slow
@needs_tools
def test_all_steps_on_a_small_book(tmp_path: Path, small_book: Path) -> None:
    """The first run has no baseline. The second one finds the index in the cache, and a page is gone."""
    pip = f'if [[ $1 == -m ]]; then echo "$@" >> pip; else exec "{sys.executable}" "$@"; fi'
    recto = f'exec "{sys.executable}" -m recto "$@"'
    questions = {
        "When do I sow beans?": "module-1-garden/02-seeds",
        "How long do I knead `dough` | @someone?": "module-2-kitchen/01-bread",
        "What feeds the soil?": "module-1-garden/01-soil",
    }
    queries = [{"query": query, "expect": {"page": page}} for query, page in questions.items()]
    (tmp_path / "questions.json").write_text(json.dumps({"name": "garden", "queries": queries}), "utf-8")
    inputs = {"book": str(small_book), "suite": "questions.json", "baseline": "expected.json"}
    inputs["extras"] = "crawl"
    (tmp_path / "recto").mkdir()
    (tmp_path / "recto" / "cache").symlink_to(SHARED / "cache")  # the weights of the model
    with GitHubDouble() as github:
        variables = {"GITHUB_API_URL": github.url, "PATH": programs(tmp_path, python=pip, recto=recto)}
        job = Job(tmp_path, inputs, variables)
        assert job.run("Install Recto").returncode == 0
        assert (tmp_path / "pip").read_text().split()[-1] == f"{ROOT}[crawl]"
        assert job.outputs["install"] == {"version": __version__, "home": str(tmp_path / "recto")}

        def succeed(*steps: str) -> None:
            for step in steps:
                done = job.run(step)
                assert done.returncode == 0, done.stderr

        succeed("Index the book")
        job.inputs["validate-options"] = "--baseline=expected.json\n--update-baseline"
        succeed("Validate retrieval")
        assert job.outputs["validate"]["passed"] == "true"
        assert job.summary.startswith("### Retrieval: passed")
        assert Path(job.outputs["validate"]["junit"]).read_text().startswith("<?xml")
        succeed("Comment on the pull request")

        bread = small_book / "module-2-kitchen" / "01-bread.md"
        bread.write_text("# Bread\n\nButter goes on it.\n", "utf-8")
        soil = small_book / "module-1-garden" / "01-soil.md"
        soil.write_text(soil.read_text() + "\nDough for garden ovens: knead the dough well.\n", "utf-8")
        job.inputs["validate-options"] = "--gate=Hit@1>=1"
        succeed("Index the book", "Validate retrieval", "Comment on the pull request")
        assert job.outputs["validate"]["passed"] == "false"
        assert github.written == ["POST", "PATCH"]
        (written,) = github.comments
        assert "### Retrieval: **failed**" in written["body"]
        assert "- `How long do I knead 'dough' | @someone?`: rank 1 → " in written["body"]
        assert job.run("Fail if the validation failed").returncode == 5
