"""A hook of MkDocs: links of the documentation to files outside of `docs/` become plain text on its site."""

from __future__ import annotations

import re
from posixpath import dirname, join, normpath
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the Markdown of a page without links that the site cannot have."""

    def unlink(match: re.Match[str]) -> str:
        target = normpath(join(dirname(page.file.src_uri), match[2]))
        return match[1] if target.startswith("../") else match[0]

    return _LINK.sub(unlink, markdown)
