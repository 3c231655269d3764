"""Turn question sets with quotes into ours: `python -m training.import_sets BOOKS SET.jsonl…`.

The result goes to `training/questions/`. BOOKS has one docs root per set, under the set's name. A quote is
text of the book, so only the number of its line is kept. A question whose expected page is not in the book
is dropped.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

QUESTIONS = Path(__file__).with_name("questions")
_BEGINNING = 40  # characters of a quote that are looked for if the whole is not found


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one file per set, and print what was dropped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("books", type=Path)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=QUESTIONS)
    options = parser.parse_args(arguments)
    options.out.mkdir(exist_ok=True)
    for path in options.sets:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        kept = [found for row in rows if (found := imported(row, options.books / path.stem))]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
        (options.out / path.name).write_text(text, "utf-8")
        unknown = sum(row["line"] is None and row["match"] != "none" for row in kept)
        dropped = len(rows) - len(kept)
        print(f"{path.stem}: {len(kept)} questions, {dropped} dropped, {unknown} without a line")


def imported(row: dict[str, Any], root: Path) -> dict[str, Any] | None:
    """Return a question without its quote, or None if a page is missing.

    The page that has the quote comes first, so that `line` belongs to the first expected page.
    """
    expected = [{"page": place["page"], "section": place["section"]} for place in row["expected"]]
    if not all((root / place["page"]).is_file() for place in expected):
        return None
    quote, line = next(iter(row["evidence"]), ""), None
    for page in dict.fromkeys(place["page"] for place in expected):
        line = quote_line((root / page).read_text("utf-8", errors="replace"), quote)
        if line is not None:
            expected.sort(key=lambda place: place["page"] != page)
            break
    kept = {key: row[key] for key in ("id", "question", "type", "match")}
    return {**kept, "expected": expected, "line": line}


def quote_line(text: str, quote: str) -> int | None:
    """Return the number of the line where a quote begins, counted from one; white space does not matter."""
    words = quote.split()
    for wanted in (words, quote[:_BEGINNING].split()):
        if wanted and (found := re.search(r"\s+".join(map(re.escape, wanted)), text)):
            return text.count("\n", 0, found.start()) + 1
    return None


if __name__ == "__main__":
    main()
