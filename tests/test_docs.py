"""Run every command and every piece of Python that the documentation shows, and check its links."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import recto
from tests.cli.test_index import HEARS_CTRL_C
from tests.doubles.site import SiteDouble
from tests.doubles.site import page as page_of_a_site
from tests.running import ROOT, SAMPLE_DOCS, environment

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
OTHER = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "backend/README.md")
LINKED = [*PAGES, *(ROOT / name for name in OTHER)]
SUITE_PAGE = "docs/how-to/validate.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
THIS_RUN = {"uv run pytest"}
"""Shown, but not run from within a test: it would run this test again."""
LASTING = {" recto watch ": "Watching ", " recto mcp --http": "Serving "}
"""Commands that run until Ctrl-C, and the first words that they print."""
FRAMEWORKS = {f"docs/how-to/{name}.md" for name in ("haystack", "langchain", "llamaindex")}
"""Pages whose Python needs a framework: tests/integrations/test_guides.py runs it."""
PUBLIC_API = re.compile(r"\brecto\.(?:a?(?:connect|index|evaluate)\(|testing|plugins|load_settings)")


def fences(language: str) -> list[tuple[str, str]]:
    return [
        (page.relative_to(ROOT).as_posix(), body)
        for page in PAGES
        for kind, body in FENCE.findall(page.read_text("utf-8"))
        if kind == language
    ]


def shown_commands() -> list[tuple[str, str]]:
    return [(name, line) for name, body in fences("bash") for line in body.strip().split("\n")]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, sample_home: Path) -> Path:
    """Make what a reader has: a checkout, a book, a suite, and a home with the book indexed twice."""
    desk = tmp_path_factory.mktemp("desk")
    for name in ("retrieve.py", "bench", "src", "pyproject.toml", "README.md"):
        (desk / name).symlink_to(ROOT / name)
    shutil.copytree(sample_home, desk / "home")
    book = desk / "path" / "to" / "docs"
    book.mkdir(parents=True)
    for page in ("intro.md", "lab-setup.md"):
        shutil.copy(SAMPLE_DOCS / "docs" / page, book / page)
    ((_, suite),) = [shown for shown in fences("json") if shown[0] == SUITE_PAGE]
    (desk / "questions.json").write_text(suite)
    for _ in range(2):
        done = in_a_shell(desk, "uv run recto index path/to/docs --collection my-book --rebuild")
        assert done.returncode == 0, done.stderr
    return desk


def in_a_shell(desk: Path, command: str) -> subprocess.CompletedProcess[str]:
    command = command.removeprefix("pip install uv && ")  # where the tests run, it is installed
    words = shlex.split(command)
    assert words[:2] == ["uv", "run"], command
    program = {"python": [sys.executable], "recto": [sys.executable, "-m", "recto"]}[words[2]]
    return subprocess.run(
        [*program, *words[3:]],
        cwd=desk,
        env=environment(desk / "home"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def for_a_moment(desk: Path, command: str, beginning: str) -> None:
    """Let a command that goes on for ever begin, then interrupt it."""
    arguments = shlex.split(command)[3:]
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, *arguments],
        cwd=desk,
        env=environment(desk / "home"),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith(beginning)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


def serve_for_a_moment(desk: Path, command: str) -> None:
    """Let the service begin to listen, then end it."""
    arguments = [*shlex.split(command)[3:], "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "recto", *arguments],
        cwd=desk,
        env=environment(desk / "home"),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while not (line := process.stderr.readline()).endswith('startup complete."}\n'):
        assert line, "it ended by itself"
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.parametrize(("page", "command"), shown_commands(), ids=lambda value: value[:60])
def test_every_command_shown_works(desk: Path, page: str, command: str) -> None:
    if command in THIS_RUN:
        return
    if " recto serve" in command:
        serve_for_a_moment(desk, command)
        return
    for words, beginning in LASTING.items():
        if words in command:
            for_a_moment(desk, command + (" --port 0" if "--http" in command else ""), beginning)
            return
    if "https://example.org" in command:
        with SiteDouble() as site:
            site.put("/book/", page_of_a_site("Welcome", "A book on a website."))
            command = command.replace("https://example.org", site.url) + " --allow-private --delay 0"
            done = in_a_shell(desk, command)
        assert done.returncode == 0, f"{page}: {command}\n{done.stderr}"
        return
    done = in_a_shell(
        desk,
        command
        + (
            " --rounds 1 --book path/to/docs"
            if "bench" in command and "bench.selections" not in command
            else ""
        ),
    )
    unmet = (
        "validate" in command and "my-book" in command
    )  # the small book at hand does not answer all of the suite
    assert done.returncode == (5 if unmet else 0), f"{page}: {command}\n{done.stderr}"


@pytest.mark.parametrize(
    ("page", "code"), [shown for shown in fences("python") if shown[0] not in FRAMEWORKS]
)
def test_every_piece_of_python_runs(desk: Path, page: str, code: str) -> None:
    if PUBLIC_API.search(code) and not hasattr(recto, "connect"):
        pytest.skip("needs recto.connect, recto.index and recto.evaluate")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=desk,
        env=environment(desk / "home"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"
    assert done.stdout.strip()


def test_the_readme_shows_real_output(desk: Path) -> None:
    ((_, shown),) = [(name, body) for name, body in fences("text") if name == "README.md"]
    done = in_a_shell(desk, 'uv run python retrieve.py "What is ROS 2?"')

    def stable(text: str) -> str:
        return re.sub(r"in \d+ms|0\.\d{3}", "NUMBER", text)

    assert stable(done.stdout).startswith(stable(shown))


def test_nothing_installs_the_other_recto() -> None:
    """The name `recto` on the package index belongs to another program."""
    for page in LINKED:
        assert not re.search(r"pip install '?recto\b(?!-search)", page.read_text("utf-8")), page.name


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_are_valid(page: Path) -> None:
    text = FENCE.sub("", page.read_text("utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", text):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
