"""`recto export`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from recto.search.pages import export_llms
from recto.stores.edge import EdgeStore
from recto.testing.parts import chunk, publish
from tests.running import recto

SITE = "https://example.org/book/"


def publish_pages(home: Path, *urls: str) -> EdgeStore:
    store = EdgeStore(home)
    chunks = (replace(chunk(number), page_url=url, chunk_index=0) for number, url in enumerate(urls))
    publish(store, "books", [replace(one, total_chunks=1) for one in chunks])
    return store


def test_a_book_is_exported(sample_home: Path, tmp_path: Path) -> None:
    done = recto(sample_home, "export", "--llms", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    files = {str(path.relative_to(out)) for path in out.rglob("*.md")} - {"skill.md"}
    assert f"{len(files)} pages of 'recto-sample'" in done.stdout
    listed = (tmp_path / "out" / "llms.txt").read_text("utf-8")
    assert set(re.findall(r"^- \[.*\]\((.*)\)$", listed, re.MULTILINE)) == files
    skill = (tmp_path / "out" / "skill.md").read_text("utf-8")
    assert skill.startswith("---\nname: physical-ai-and-humanoid-robotics\ndescription: ")
    assert "[list of all pages](llms.txt)" in skill
    full = (tmp_path / "out" / "llms-full.txt").read_text("utf-8")
    for name in files:
        text = (tmp_path / "out" / name).read_text("utf-8")
        assert text.startswith("# ")
        assert text in full


def test_pages_have_their_paths_below_the_site(home: Path, tmp_path: Path) -> None:
    below = ("", "docs/intro", "docs/end/", "a%20page.html")
    publish_pages(home, *(f"{SITE}{path}" for path in below), "https://other.org/x")
    export = ("export", "--llms", str(tmp_path), "--collection", "books", "--site-url")
    done = recto(home, *export, SITE.rstrip("/"), "--json")
    assert json.loads(done.stdout) == {"collection": "books", "directory": str(tmp_path), "pages": 5}
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}
    assert files == {"index.md", "docs/intro.md", "docs/end.md", "a page.html.md", "x.md", "skill.md"}
    listed = (tmp_path / "llms.txt").read_text("utf-8")
    names = ("index.md", "docs/intro.md", "docs/end.md", "a%20page.html.md")
    links = {*(f"{SITE}{name}" for name in names), "https://other.org/x.md"}
    assert set(re.findall(r"\]\((.*)\)", listed)) == links
    wrong = recto(home, *export, "https://nowhere.org")
    assert wrong.returncode == 4
    assert "No page is below https://nowhere.org/" in wrong.stderr


def test_hostile_urls_stay_in_the_directory(home: Path, tmp_path: Path) -> None:
    paths = ("../../a", "%2e%2e/%2e%2e/b", "..%2f..%2fc", "d%00e", "f?g=/../../h", "%ff", "C:%5Cj")
    urls = [f"https://x.org/{path}" for path in (*paths, "i" * 5000)]
    out = tmp_path / "some" / "where"
    assert export_llms(publish_pages(home, *urls).open("books"), "Books", out) == len(urls)
    written = {path.resolve() for path in tmp_path.rglob("*.md")}
    assert len(written) == len(urls) + 1, "skill.md"
    assert all(path.is_relative_to(out.resolve()) for path in written)


def test_a_directory_that_cannot_be_written(home: Path, tmp_path: Path) -> None:
    publish_pages(home, "https://x.org/a")
    (tmp_path / "file").write_text("")
    done = recto(home, "export", "--llms", str(tmp_path / "file" / "below"), "--collection", "books")
    assert done.returncode != 0
    assert "Cannot write to" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_static_search_is_exported(sample_home: Path, tmp_path: Path) -> None:
    target = tmp_path / "site" / "recto"
    done = recto(sample_home, "export", "--static", str(target))
    assert done.returncode == 0, done.stderr
    assert f"of 'recto-sample' to {target}: " in done.stdout
    assert "Search by words and by meaning." in done.stdout
    assert "28 pages of 'recto-sample' cannot be opened from the results" in done.stderr
    assert list((target / "data").glob("vectors-*.bin"))
    off = ("--static", str(target), "--semantic", "off", "--json")
    words = json.loads(recto(sample_home, "export", *off).stdout)
    assert (words["collection"], words["directory"]) == ("recto-sample", str(target))
    assert words["unpublished"] == words["pages"] == 28
    assert words["semantic"] is False
    assert list((target / "data").glob("words-*.bin"))
    assert not list((target / "data").glob("vectors-*.bin"))
    assert words["bytes"] == sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def test_a_published_book_is_exported_without_a_warning(home: Path, small_book: Path, tmp_path: Path) -> None:
    recto(home, "index", str(small_book), "--collection", "garden", "--site-url", "https://garden.example/")
    done = recto(home, "export", "--static", str(tmp_path / "out"), "--collection", "garden")
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_written_through_links(home: Path, tmp_path: Path) -> None:
    publish_pages(home, f"{SITE}intro", f"{SITE}guide/a")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "bashrc").write_text("mine")

    def refused(link: str, target: Path, directory: Path) -> None:
        (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / link).symlink_to(target)
        done = recto(home, "export", "--llms", str(directory), "--collection", "books", "--site-url", SITE)
        assert done.returncode == 4
        assert f"{tmp_path / link} is a link to {target}" in done.stderr
        assert [path.name for path in outside.iterdir()] == ["bashrc"]
        assert (outside / "bashrc").read_text() == "mine"
        assert [path for path in tmp_path.rglob("*.md") if not path.is_symlink()] == []
        (tmp_path / link).unlink()

    build = tmp_path / "build"
    refused("build/intro.md", outside / "bashrc", build)
    refused("build/llms.txt", outside / "bashrc", build)
    refused("build/llms-full.txt", outside / "new", build)
    refused("build/guide", outside, build)
    refused("linked", outside, tmp_path / "linked")


def test_pages_whose_urls_have_the_same_file(home: Path, tmp_path: Path) -> None:
    urls = (f"{SITE}dup", f"{SITE}dup/", f"{SITE}Dup", f"{SITE}skill")
    index = publish_pages(home, *urls).open("books")
    assert export_llms(index, "Books", tmp_path / "out", SITE) == 4
    files = {path.name for path in (tmp_path / "out").glob("*.md")} - {"skill.md"}
    assert len({name.casefold() for name in files}) == 4
    listed = (tmp_path / "out" / "llms.txt").read_text("utf-8")
    assert all(f"({SITE}{name})" in listed for name in files)
