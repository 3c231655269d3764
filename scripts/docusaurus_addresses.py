"""Build the Docusaurus site of the tests with Docusaurus, and write its addresses and anchors to a file.

Run it after a change of the site, with a directory in which Docusaurus is installed
(`npm install @docusaurus/core@3 @docusaurus/preset-classic@3 react@18 react-dom@18`):
``python scripts/docusaurus_addresses.py DIRECTORY [VARIANT ...]``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

SITE = Path(__file__).parent.parent / "tests" / "book" / "sites" / "docusaurus"
_NOT_ENCODED = ";/?:@&=+$,#-_.!~*'()"  # characters that encodeURI does not escape
_NOT_COPIED = ("expected", "variants.json")
_VALUE = r"(?:\"([^\"]*)\"|([^\s\">]+))"
_HEADING = re.compile(rf"<h[1-6]\b[^>]*?\sid={_VALUE}")
_ID = re.compile(rf"<[a-zA-Z][^<>]*?\sid={_VALUE}")
_CANONICAL = re.compile(rf"<link[^>]*?rel=\"?canonical\"?[^>]*?href={_VALUE}")
_ARTICLE = re.compile(r"<div class=\"?theme-doc-markdown markdown\"?>(.*?)(?:</article>)", re.DOTALL)
_DUMP = """
const fs = require('fs');
module.exports = (context) => ({
  name: 'dump',
  allContentLoaded({allContent}) {
    const pages = [];
    for (const [id, content] of Object.entries(allContent['docusaurus-plugin-content-docs'])) {
      for (const version of content.loadedVersions) {
        for (const doc of version.docs) {
          pages.push({instance: id, version: version.versionName, last: version.isLast, source: doc.source,
                      permalink: doc.permalink, title: doc.title, unlisted: doc.unlisted});
        }
      }
    }
    fs.writeFileSync(`dump-${context.i18n.currentLocale}.json`, JSON.stringify(pages));
  },
});
"""


def main(workshop: Path, names: list[str]) -> None:
    """Build every variant of the site and write the result."""
    variants: dict[str, dict[str, str]] = json.loads((SITE / "variants.json").read_text("utf-8"))
    tool = json.loads((workshop / "node_modules/@docusaurus/core/package.json").read_text("utf-8"))["version"]
    for name in names or list(variants):
        print(f"Building {name} ...", flush=True)
        site = workshop / "sites" / name
        _prepare(site, variants[name])
        shutil.rmtree(
            workshop / "node_modules/.cache", ignore_errors=True
        )  # it confuses sites that have files of the same name
        subprocess.run(["npx", "docusaurus", "build"], cwd=site, check=True)  # noqa: S607
        pages = [page for dump in sorted(site.glob("dump-*.json")) for page in _pages(site, dump)]
        pages.sort(key=lambda page: (page["locale"], page["instance"], page["version"], page["source"]))
        lines = ",\n".join(f"  {json.dumps(page, ensure_ascii=False)}" for page in pages)
        made_by = json.dumps(f"Docusaurus {tool}")
        (SITE / "expected").mkdir(exist_ok=True)
        (SITE / "expected" / f"{name}.json").write_text(
            f'{{"made_by": {made_by}, "pages": [\n{lines}\n]}}\n', "utf-8"
        )


def _prepare(site: Path, changes: dict[str, str]) -> None:
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(SITE, site, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    config = (site / "docusaurus.config.js").read_text("utf-8")
    for old, new in {**changes, "plugins: [": "plugins: ['./dump.cjs', "}.items():
        if config.count(old) != 1:
            raise SystemExit(f"The configuration must contain exactly once: {old}")
        config = config.replace(old, new)
    (site / "docusaurus.config.js").write_text(config, "utf-8")
    (site / "dump.cjs").write_text(_DUMP, "utf-8")


def _pages(site: Path, dump: Path) -> list[dict[str, Any]]:
    """Join what the docs plugin reports about each page with the ids in the built page."""
    locale = dump.stem.removeprefix("dump-")
    said = json.loads(dump.read_text("utf-8"))
    pages = []
    for page in said:
        path = unquote(page["permalink"].removeprefix("/torture/").strip("/"))
        files = [site / "build" / path / "index.html", site / "build" / f"{path}.html"]
        built = next((file.read_text("utf-8") for file in files if file.is_file()), "")
        canonical, article = _CANONICAL.search(built), _ARTICLE.search(built)
        if canonical is None or article is None:
            raise SystemExit(f"There is no built page for {page['permalink']}")
        pages.append(
            {
                "source": page["source"].removeprefix("@site/"),
                "url": quote(unescape(canonical[1] or canonical[2]), safe=_NOT_ENCODED),
                "instance": page["instance"],
                "version": page["version"],
                "last": page["last"],
                "locale": locale,
                "title": page["title"],
                "unlisted": page["unlisted"],
                "anchors": _values(_HEADING, article[1]),
                "other_ids": sorted(set(_values(_ID, article[1])) - set(_values(_HEADING, article[1]))),
            }
        )
    return pages


def _values(pattern: re.Pattern[str], text: str) -> list[str]:
    return [unescape(quoted or bare) for quoted, bare in pattern.findall(text)]


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
