"""Build the MkDocs site of the tests with MkDocs, and write its addresses and anchors to a file.

Run it after a change of the site: ``uv run --no-project --with mkdocs python scripts/mkdocs_addresses.py``.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

SITE = Path(__file__).parent.parent / "tests" / "book" / "sites" / "mkdocs"
_HEADING = re.compile(r"<h[1-6]\b[^>]*?\sid=\"([^\"]*)\"")
_HOOK = """
import json

PAGES = []


def on_post_page(output, page, config):
    url, title = page.canonical_url, page.title
    PAGES.append({"source": page.file.src_uri, "url": url, "title": title, "content": page.content})
    return output


def on_post_build(config):
    with open("pages.json", "w", encoding="utf-8") as file:
        json.dump(PAGES, file)
"""


def main() -> None:
    """Build every variant of the site and write the result."""
    variants: dict[str, dict[str, str]] = json.loads((SITE / "variants.json").read_text("utf-8"))
    made_by = json.dumps(
        f"MkDocs {importlib.metadata.version('mkdocs')}, "
        f"Python-Markdown {importlib.metadata.version('markdown')}"
    )
    for name, changes in variants.items():
        with tempfile.TemporaryDirectory() as folder:
            pages = sorted(
                map(_page, _built(Path(folder, "site"), changes)), key=lambda page: str(page["source"])
            )
        lines = ",\n".join(f"  {json.dumps(page, ensure_ascii=False)}" for page in pages)
        (SITE / "expected").mkdir(exist_ok=True)
        (SITE / "expected" / f"{name}.json").write_text(
            f'{{"made_by": {made_by}, "pages": [\n{lines}\n]}}\n', "utf-8"
        )


def _built(site: Path, changes: dict[str, str]) -> list[dict[str, Any]]:
    shutil.copytree(SITE, site, ignore=shutil.ignore_patterns("expected", "variants.json"))
    config = (site / "mkdocs.yml").read_text("utf-8") + "\nhooks: [hook.py]\n"
    for old, new in changes.items():
        config = config.replace(old, new)
    (site / "mkdocs.yml").write_text(config, "utf-8")
    (site / "hook.py").write_text(_HOOK, "utf-8")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q"], cwd=site, check=True)
    pages: list[dict[str, Any]] = json.loads((site / "pages.json").read_text("utf-8"))
    return pages


def _page(page: dict[str, Any]) -> dict[str, Any]:
    anchors = [unescape(found) for found in _HEADING.findall(page.pop("content"))]
    return {**page, "anchors": anchors}


if __name__ == "__main__":
    main()
