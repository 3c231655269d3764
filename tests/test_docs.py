"""Run every command and every piece of Python that the documentation shows, and check its links."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import sys
import tomllib
from pathlib import Path

import pytest

from tests.doubles.site import SiteDouble
from tests.doubles.site import page as page_of_a_site
from tests.running import ROOT, SAMPLE_DOCS, Done, copy_home, in_process, python_in_process, run, start

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
OTHER = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "backend/README.md")
LINKED = [*PAGES, *(ROOT / name for name in OTHER)]
SUITES = {
    "docs/how-to/validate.md": "questions.json",
    "docs/tutorial/first-ten-minutes.md": "first-suite.json",
}
"""Pages that show a suite, and the name under which a reader saves it."""
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
THIS_RUN = {"uv run --group test pytest"}
"""Shown, but not run from within a test: it would run this test again."""
LASTING = {" recto watch ": "Watching ", " recto mcp --http": "Serving "}
"""Commands that run until Ctrl-C, and the first words that they print."""
CHOSEN = {"COLLECTION_NAME": "recto-sample"}
"""The book that commands without a name use: the pages assume one book, and the workspace has several."""
FRAMEWORKS = {"docs/how-to/frameworks.md"}
"""Pages whose Python needs a framework: tests/integrations/test_adapters.py runs it."""


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
def workspace(tmp_path_factory: pytest.TempPathFactory, sample_home: Path) -> Path:
    """Make what a reader has: a checkout, a book, a suite, a backup, and a home with the book indexed twice."""
    workspace = tmp_path_factory.mktemp("workspace")
    for name in ("retrieve.py", "bench", "src", "pyproject.toml", "README.md"):
        (workspace / name).symlink_to(ROOT / name)
    copy_home(sample_home, workspace / "home")
    book = workspace / "path" / "to" / "docs"
    book.mkdir(parents=True)
    for page in ("intro.md", "lab-setup.md"):
        shutil.copy(SAMPLE_DOCS / "docs" / page, book / page)
    for page, name in SUITES.items():
        ((_, suite),) = [shown for shown in fences("json") if shown[0] == page]
        (workspace / name).write_text(suite)
    ((_, queries),) = [shown for shown in fences("text") if shown[0] == "docs/how-to/query-log.md"]
    (workspace / "queries.txt").write_text(queries)
    index = "uv run recto index path/to/docs --collection my-book --rebuild"
    baseline = "uv run recto validate --suite questions.json --baseline expected_results.json"
    backup = "uv run recto backup my-book --output my-book.recto"
    for command in (index, index, f"{baseline} --update-baseline", backup):
        done = run_shown(workspace, command)
        assert done.returncode == 0, done.stderr
    return workspace


def run_shown(workspace: Path, command: str) -> Done:
    program, *words = program_shown(command)
    if program == "recto":
        return in_process("recto", workspace / "home", words, workspace, **CHOSEN)
    if words[0] == "retrieve.py":
        return in_process("retrieve.py", workspace / "home", words[1:], workspace, **CHOSEN)
    return run([sys.executable, *words], workspace / "home", workspace, **CHOSEN)


def program_shown(command: str) -> list[str]:
    """Return the words of a command without `uv run` and the groups and extras that the tests have installed."""
    words = shlex.split(command.removeprefix("pip install uv && "))
    assert words[:2] == ["uv", "run"], command
    words = words[2:]
    while words[0] in ("--extra", "--group"):
        words = words[2:]
    return words


def start_and_interrupt(workspace: Path, command: str, beginning: str) -> None:
    """Start a command that runs until Ctrl-C, wait for its first line, and interrupt it."""
    process = start(workspace / "home", *program_shown(command)[1:], directory=workspace, **CHOSEN)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(beginning)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


def serve_and_terminate(workspace: Path, command: str) -> None:
    """Start the service, wait until it listens, and terminate it."""
    words = (*program_shown(command)[1:], "--port", "0")
    process = start(workspace / "home", *words, directory=workspace, **CHOSEN)
    assert process.stdout is not None
    while not (line := process.stdout.readline()).endswith('startup complete."}\n'):
        assert line, "it ended by itself"
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("page", "command"),
    [
        pytest.param(*shown, marks=[pytest.mark.long] if "bench." in shown[1] else [])
        for shown in shown_commands()
    ],
    ids=lambda value: value[:60],
)
def test_every_command_shown_works(workspace: Path, page: str, command: str) -> None:
    if command in THIS_RUN:
        return
    if " recto serve" in command:
        serve_and_terminate(workspace, command)
        return
    for words, beginning in LASTING.items():
        if words in command:
            start_and_interrupt(workspace, command + (" --port 0" if "--http" in command else ""), beginning)
            return
    if "https://example.org" in command:
        with SiteDouble() as site:
            site.put("/book/", page_of_a_site("Welcome", "A book on a website."))
            command = command.replace("https://example.org", site.url) + " --allow-private --delay 0"
            done = run_shown(workspace, command)
    elif "bench.scale" in command:
        done = run_shown(workspace, f"{command} --sizes 1000")
    else:
        done = run_shown(workspace, command)
    # The small book does not answer all questions of the suite.
    expected = 5 if "validate" in command and "my-book" in command else 0
    assert done.returncode == expected, f"{page}: {command}\n{done.stderr}"


@pytest.mark.parametrize(
    ("page", "code"), [shown for shown in fences("python") if shown[0] not in FRAMEWORKS]
)
def test_every_piece_of_python_runs(workspace: Path, page: str, code: str) -> None:
    if "sys.executable" in code:  # what it starts needs real streams
        done = run([sys.executable, "-c", code], workspace / "home", workspace, **CHOSEN)
    else:
        done = python_in_process(code, workspace / "home", workspace, **CHOSEN)
    assert done.returncode == 0, f"{page}: {done.stderr}"
    assert done.stdout.strip()


def test_the_guide_shows_the_files_of_the_example_plugin() -> None:
    """Every file of the example is shown, or shown in part and linked; tests/installed installs and uses them."""
    guide = (DOCS / "how-to" / "write-a-plugin.md").read_text("utf-8")
    example = DOCS / "how-to" / "examples" / "recto-demo-plugin"
    found = re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    linked = set(re.findall(r"\(examples/recto-demo-plugin/([\w./-]+)\)", guide))
    for name, body in found:
        written = (example / name).read_text("utf-8")
        assert body in written if name in linked else body == written, name
    files = {path.relative_to(example).as_posix() for path in example.rglob("*.*") if path.stat().st_size}
    assert linked | {name for name, _ in found} >= {name for name in files if "__" not in name}


def test_the_readme_shows_real_output(workspace: Path) -> None:
    ((_, shown),) = [(name, body) for name, body in fences("text") if name == "README.md"]
    done = run_shown(workspace, 'uv run python retrieve.py "What is ROS 2?"')

    def stable(text: str) -> str:
        return re.sub(r"in \d+ms|0\.\d{3}", "NUMBER", text)

    def scores(text: str) -> list[float]:
        return [float(score) for score in re.findall(r"Score: (0\.\d{3})", text)]

    assert stable(done.stdout).startswith(stable(shown))
    # int8, the default, and fp32, the precision of the tests, differ in the third digit.
    assert scores(shown) == pytest.approx(scores(done.stdout)[: len(scores(shown))], abs=0.005)


def test_the_readme_says_what_the_first_command_installs() -> None:
    if not (ROOT / "uv.lock").exists():
        pytest.skip("needs uv.lock, which uv makes")
    packages: dict[str, list[dict[str, str]]] = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]:
        packages.setdefault(package["name"], []).extend(package.get("dependencies", ()))
    installed, queue = set(), ["recto-search"]
    while queue:
        name = queue.pop()
        if name not in installed:
            installed.add(name)
            queue += [part["name"] for part in packages[name] if "win32" not in part.get("marker", "")]
    assert f"installs {len(installed)} packages" in (ROOT / "README.md").read_text("utf-8")
    assert len(installed) <= 30


def test_ci_runs_the_test_command_of_the_readme() -> None:
    lines = (ROOT / ".ci" / "run").read_text("utf-8").split("\n")
    assert {command for page, command in shown_commands() if page == "README.md"} >= THIS_RUN
    assert set(lines) >= THIS_RUN


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


def test_each_promise_about_security_names_what_holds_it() -> None:
    table = (ROOT / "SECURITY.md").read_text("utf-8").partition("| threat | defence | held by |")[2]
    rows = [line for line in table.partition("\n\n")[0].splitlines() if line.startswith("| ")]
    assert len(rows) >= 20
    for row in rows:
        files = re.findall(r"`((?:tests|bench)/[\w/]+\.py)`", row.rpartition(" | ")[2])
        assert files, row
        assert all((ROOT / file).is_file() for file in files), row


def test_pages_that_the_code_names_exist() -> None:
    files = [ROOT / ".env.example", *(ROOT / "src").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    for path in files:
        for page in re.findall(r"docs/[\w/-]+\.(?:md|yml)", path.read_text("utf-8")):
            assert "docs/docs/" in page or (ROOT / page).exists(), f"{path.name}: {page}"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
