"""Build the two sites as their authors do: with npm and Docusaurus, and with MkDocs and the plugin."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from recto._util.files import WriterLock
from tests.browser.hostile import ATTACKS
from tests.conftest import index_key
from tests.library import write_library
from tests.running import ROOT, environment

HERE = Path(__file__).parent
PLUGIN = ROOT / "integrations" / "docusaurus"
_SOURCES = (HERE, PLUGIN, ROOT / "src" / "recto" / "integrations", ROOT / "tests" / "library.py")
_MODEL_CACHE = "cache"


@dataclass(frozen=True)
class Book:
    """What the tests ask of a site: a query and the section that answers it, and a page with text to select."""

    query: str
    page: str
    anchor: str
    reading: str


@dataclass(frozen=True)
class Built:
    """A built site, where it is published, and its collection."""

    name: str
    files: Path
    url: str
    collection: str
    book: Book

    @property
    def origin(self) -> str:
        return "/".join(self.url.split("/")[:3])


def corpora() -> Path | None:
    """Return the directory of real books, if RECTO_CORPORA names one."""
    folder = os.environ.get("RECTO_CORPORA", "")
    return Path(folder) / "books" if folder else None


def build_sites(place: Path, home: Path) -> tuple[Built, Built]:
    """Build both sites and their indexes below a directory, unless they are there already."""
    place.mkdir(parents=True, exist_ok=True)
    with WriterLock(place / "sites.lock", "The sites of the tests", wait=print):
        modules = _install(place)
        root = place / _digest()
        if not (root / "done").exists():
            shutil.rmtree(root, ignore_errors=True)
            (root / "home").mkdir(parents=True)
            (root / "home" / _MODEL_CACHE).symlink_to(home / _MODEL_CACHE)
            with ThreadPoolExecutor(2) as pool:
                builds = [pool.submit(_build_docusaurus, root, modules), pool.submit(_build_mkdocs, root)]
            for build in builds:
                build.result()
            (root / "done").touch()
    real = corpora() is not None
    house = "When are beans sown?"
    return (
        Built(
            "docusaurus",
            root / "docusaurus" / "build",
            "http://docusaurus.localhost/",
            "docusaurus-house",
            Book("How do I deploy to GitHub Pages?", "deployment/", "deploying-to-github-pages", "swizzling/")
            if real
            else Book(house, "module-1-garden/seeds/", "sowing-beans", "module-2-kitchen/bread/"),
        ),
        Built(
            "mkdocs",
            root / "mkdocs" / "site",
            "http://mkdocs.localhost/book/",
            "mkdocs-house",
            Book("How do I forbid extra fields?", "concepts/models/", "extra-data", "concepts/unions/")
            if real
            else Book(house, "module-1-garden/02-seeds/", "sowing-beans", "module-2-kitchen/01-bread/"),
        ),
    )


def _digest() -> str:
    """Return a digest of all that the sites and their indexes depend on."""
    digest = hashlib.sha256(f"{index_key()} {corpora()}".encode())
    for source in _SOURCES:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file() and file.suffix != ".pyc" and not file.name.startswith("test_"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _install(place: Path) -> Path:
    """Install the packages of npm, and return their directory."""
    listed = HERE / "docusaurus" / "package.json"
    folder = place / f"npm-{hashlib.sha256(listed.read_bytes()).hexdigest()[:16]}"
    if not (folder / "done").exists():
        folder.mkdir(exist_ok=True)
        shutil.copy(listed, folder)
        _run(["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"], folder)
        (folder / "done").touch()
    return folder / "node_modules"


def _build_docusaurus(root: Path, modules: Path) -> None:
    site = root / "docusaurus"
    shutil.copytree(HERE / "docusaurus", site)
    (site / "node_modules").mkdir()
    for package in modules.iterdir():
        (site / "node_modules" / package.name).symlink_to(package)
    # A copy, as npm installs it: packages are compiled in another way than the files of the site.
    shutil.copytree(PLUGIN, site / "node_modules" / "recto-docusaurus")
    books = corpora()
    if books:
        shutil.copytree(books / "docusaurus" / "website" / "docs", site / "docs")
    else:
        write_book(site / "docs", "welcome.md", "---\nslug: /\n---\n\n")
    command = ["node", str(modules / "@docusaurus" / "core" / "bin" / "docusaurus.mjs"), "build"]
    _run(command, site, RECTO_CORPORA=str(books or ""))
    index = ["index", str(site), "--collection", "docusaurus-house"]
    _run([sys.executable, "-m", "recto", *index], ROOT, **_settings(root))


def _build_mkdocs(root: Path) -> None:
    site = root / "mkdocs"
    shutil.copytree(HERE / "mkdocs", site)
    books = corpora()
    if books:
        shutil.copytree(books / "pydantic" / "docs", site / "docs")
    else:
        write_book(site / "docs", "index.md")
    done = _run([sys.executable, "-m", "mkdocs", "build", "--strict"], site, **_settings(root))
    (site / "build.log").write_text(done, "utf-8")


def _settings(root: Path) -> dict[str, str]:
    return {name: value for name, value in environment(root / "home").items() if name.startswith("RECTO_")}


def _run(command: list[str], folder: Path, **more: str) -> str:
    variables = {**os.environ, "CI": "true", "NO_MKDOCS_2_WARNING": "1", "NO_UPDATE_NOTIFIER": "1", **more}
    done = subprocess.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def write_book(docs: Path, home_page: str, front_matter: str = "") -> None:
    """Write the book of the tests with a page of attacks; `home_page` is the file of the site's first page.

    The attacks are code, because the generators pass on other HTML: authors may run scripts on their own site.
    """
    write_library(docs)
    welcome = docs / "welcome.md"
    text = welcome.read_text("utf-8")
    welcome.unlink()
    (docs / home_page).write_text(front_matter + text, "utf-8")
    sections = [f"# Poison `{ATTACKS[1]}`\n\nA page about poison in titles and in text, and the harm it does.\n"]
    sections += [
        f"## Antidote {number} `{attack}`\n\nThe antidote to poison {number} is to show `{attack}` as text, and never to run it.\n"
        for number, attack in enumerate(ATTACKS)
    ]
    folder = docs / "module-4-danger"
    folder.mkdir()
    (folder / "poison.md").write_text("\n".join(sections), "utf-8")
