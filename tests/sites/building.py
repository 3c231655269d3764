"""Build the sites as their authors do: with npm and Docusaurus, and with MkDocs and the plugin."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recto._util.files import WriterLock
from tests.book.files import write
from tests.browser.hostile import ATTACKS
from tests.conftest import index_key
from tests.library import write_library
from tests.running import ROOT, environment
from tests.sites.serving import PublishedSite

HERE = Path(__file__).parent
PLUGIN = ROOT / "integrations" / "docusaurus"
_OWN = ("src/recto/integrations", "src/recto/server", "tests/library.txt", "scripts/site_links.py")
_SOURCES = [HERE / name for name in ("docusaurus", "mkdocs", "building.py")]
_SOURCES += [PLUGIN, *(ROOT / name for name in (*_OWN, "docs", "mkdocs.yml"))]
_MODEL_CACHE = "cache"


def build_sites(place: Path, home: Path) -> Path:
    """Build all sites and their indexes, unless they are there already; return their directory."""
    place.mkdir(parents=True, exist_ok=True)
    with WriterLock(place / "sites.lock", "The sites of the tests", wait=print):
        modules = _install(place)
        root = place / _digest()
        if not (root / "done").exists():
            shutil.rmtree(root, ignore_errors=True)
            (root / "home").mkdir(parents=True)
            (root / "home" / _MODEL_CACHE).symlink_to((home / _MODEL_CACHE).resolve())
            with ThreadPoolExecutor(2) as pool:
                builds = [
                    pool.submit(_build_docusaurus, root, modules),
                    pool.submit(_build_mkdocs, root),
                    pool.submit(_build_documentation, root),
                ]
            for build in builds:
                build.result()
            (root / "done").touch()
    return root


def _digest() -> str:
    """Return a digest of all that the sites and their indexes depend on."""
    digest = hashlib.sha256(index_key().encode())
    for source in _SOURCES:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file() and file.suffix != ".pyc":
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _install(place: Path) -> Path:
    """Install the packages of npm, and return their directory."""
    listed = HERE / "docusaurus" / "package.json"
    folder = place / f"npm-{hashlib.sha256(listed.read_bytes()).hexdigest()[:16]}"
    if not (folder / "done").exists():
        folder.mkdir(exist_ok=True)
        shutil.copy(listed, folder)
        run(["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"], folder)
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
    write_book(site / "docs", "welcome.md", "---\nslug: /\n---\n\n")
    build = ["node", str(modules / "@docusaurus" / "core" / "bin" / "docusaurus.mjs"), "build"]
    run(build, site)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the plugin calls `recto`
    run([*build, "--locale", "en", "--out-dir", "static"], site, PATH=path, STATIC="1", **_settings(root))
    index = ["index", str(site), "--collection", "docusaurus-house"]
    run([sys.executable, "-m", "recto", *index], ROOT, **_settings(root))


def _build_mkdocs(root: Path) -> None:
    site = root / "mkdocs"
    shutil.copytree(HERE / "mkdocs", site)
    write_book(site / "docs", "index.md")
    done = run([sys.executable, "-m", "mkdocs", "build", "--strict"], site, **_settings(root))
    (site / "build.log").write_text(done, "utf-8")


def _build_documentation(root: Path) -> None:
    """Build Recto's own documentation; it must not have a broken link."""
    address = PublishedSite("recto", root).url
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(root / "recto")]
    run(command, ROOT, **{**_settings(root), "RECTO_PRECISION": "int8"}, RECTO_SITE_URL=address)


def _settings(root: Path) -> dict[str, str]:
    return {name: value for name, value in environment(root / "home").items() if name.startswith("RECTO_")}


def run(command: list[str], folder: Path, **more: str) -> str:
    """Run a command in a directory, and return its output."""
    variables = {**os.environ, "CI": "true", "NO_MKDOCS_2_WARNING": "1", "NO_UPDATE_NOTIFIER": "1", **more}
    done = subprocess.run(
        command, cwd=folder, env=variables, input="", capture_output=True, text=True, check=False, timeout=600
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
    sections = [f"# Poison `{ATTACKS[1]}`\n\nA page about poison in titles and text, and the harm it does.\n"]
    sections += [
        f"## Antidote {number} `{attack}`\n\nThe antidote to poison {number} is to show `{attack}` as text, and never to run it.\n"
        for number, attack in enumerate(ATTACKS)
    ]
    write(docs, {"module-4-danger/poison.md": "\n".join(sections)})
