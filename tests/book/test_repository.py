"""Test books in git repositories, with git and local repositories."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recto import index
from recto.book.questions import question_file
from recto.book.sources import SourceOptions, open_source, repository
from recto.book.sources.repository import RepositorySource, repository_url
from recto.errors import ConfigurationError, InvalidArgument, Unreachable
from tests.book.files import write
from tests.server.http.service import served

MISSING = shutil.which("git") is None
pytestmark = pytest.mark.skipif(MISSING, reason="git is not installed")


def git(*words: str, directory: Path) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a bare repository with two commits, a link out of it, and a site below its root."""
    files = {
        "docs/index.md": "# Bees\n\nBees make honey.\n",
        "mkdocs.yml": "site_name: About bees\nsite_url: https://bees.example/\n",
        "recto-questions.jsonl": "",
    }
    work = write(tmp_path / "work", files)
    (tmp_path / "secret.md").write_text("# Secret\n\nA secret text.\n")
    git("init", directory=work)
    git("add", ".", directory=work)
    git("commit", "-m", "First", directory=work)
    (work / "docs" / "link.md").symlink_to(tmp_path / "secret.md")
    git("add", ".", directory=work)
    git("commit", "-m", "Second", directory=work)
    git("clone", "--bare", str(work), str(tmp_path / "bees.git"), directory=tmp_path)
    return f"file://{tmp_path}/bees.git"


def opened(url: str, **more: Any) -> RepositorySource:
    return RepositorySource(url, protocol="file", **more)


def test_a_repository_is_cloned_and_read_as_a_directory(url: str) -> None:
    said: list[str] = []
    source = opened(url, notify=said.append)
    assert (source.location, said) == (url, [])
    pages = {page.path: page for page in source.pages()}
    assert pages["index.md"].url == "https://bees.example/"
    assert "A secret text" not in str(pages)
    assert source.info.title == "About bees"
    assert question_file(source) == source.root / "recto-questions.jsonl"
    assert said == [f"Cloning {url}"]  # once
    shallow = source.root / ".git" / "shallow"
    assert shallow.is_file()
    directory = source.root.parent
    del source
    assert not directory.exists()


def test_the_index_names_the_address(url: str, tmp_path: Path) -> None:
    report = index(opened(url), settings=served(tmp_path / "home"))
    fingerprint = report.info.fingerprint
    assert fingerprint is not None
    assert report.info.collection.endswith("-bees")
    assert (fingerprint.source, fingerprint.title) == (url, "About bees")


def test_limits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_MAX_SIZE", 1000)
    with pytest.raises(InvalidArgument, match="is larger than"):
        list(opened(url).pages())
    monkeypatch.setattr(repository, "_TIMEOUT", -1.0)
    with pytest.raises(InvalidArgument, match="takes more than"):
        list(opened(url).pages())


def test_other_protocols_and_missing_repositories_are_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreachable, match="cannot be cloned: .*not allowed"):
        list(RepositorySource("http://127.0.0.1/bees.git", allow_private=True).pages())
    with pytest.raises(Unreachable, match="cannot be cloned"):
        list(opened(url.replace("bees", "wasps")).pages())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="without git"):
        list(opened(url).pages())


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "[::1]", "localhost"])
def test_private_addresses_are_refused(host: str) -> None:
    source = open_source(f"https://{host}/book.git", SourceOptions(), None, print)
    with pytest.raises(InvalidArgument, match="not a public address"):
        list(source.pages())
    allowed = open_source(f"https://{host}:1/book.git", SourceOptions(allow_private=True), None, print)
    with pytest.raises(Unreachable, match="cannot be cloned"):
        list(allowed.pages())


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("https://example.org/a/book.git", "https://example.org/a/book.git"),
        ("https://github.com/owner/book", "https://github.com/owner/book.git"),
        ("https://gitlab.com/owner/book/", "https://gitlab.com/owner/book.git"),
        ("https://github.com/owner/book.git", "https://github.com/owner/book.git"),
        ("https://github.com/owner/book/wiki", ""),
        ("https://github.com/owner", ""),
        ("https://owner.github.io/book", ""),
        ("https://example.org/owner/book", ""),
        ("http://example.org/book.git", ""),
        ("file:///srv/book.git", ""),
        ("git@github.com:owner/book.git", ""),
        ("path/to/book.git", ""),
    ],
)
def test_addresses_of_repositories(location: str, expected: str) -> None:
    assert repository_url(location) == expected


def test_books_of_the_same_name_are_different_books() -> None:
    urls = ("https://github.com/ann/book", "https://github.com/ben/book.git")
    books = {open_source(url, SourceOptions(), None, print).book for url in urls}
    assert books == {"github.com/ann/book", "github.com/ben/book"}


def test_an_address_with_a_user_name_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is not the address of a git repository"):
        open_source("https://user:key@example.org/book.git", SourceOptions(), None, print)
