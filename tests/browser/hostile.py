"""A book with scripts and hostile links in every place where an author can write."""

from __future__ import annotations

from pathlib import Path

ATTACKS = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 2'>",
    "<svg onload='window.ran = 3'><animate onbegin='window.ran = 4'>",
    "<iframe src='javascript:parent.ran = 5'></iframe>",
    "<style>body { display: none }</style>",
    "<a href='javascript:window.ran = 6'>here</a>",
    "<base href='https://elsewhere.invalid/'>",
    "<link rel=stylesheet href='https://elsewhere.invalid/x.css'>",
    "<meta http-equiv=refresh content='0;url=https://elsewhere.invalid/'>",
    "<form action='https://elsewhere.invalid/'><input name=q></form>",
)
LINKS = (
    "[one](javascript:window.ran=7)",
    "[two](JaVaScRiPt:window.ran=8)",
    "[three](data:text/html,<script>window.ran=9</script>)",
    "[four](vbscript:window.ran=10)",
    "[five](<javascript:window.ran=11>)",
    "[six](//elsewhere.invalid/\"onmouseover='window.ran=12')",
    "[seven](https://elsewhere.invalid/\"onclick='window.ran=13')",
    "<javascript:window.ran=14>",
    "![eight](https://elsewhere.invalid/pixel.png)",
    "![nine](javascript:window.ran=15)",
    '[ten](local://docs/x"onclick=window.ran=16)',
)


def write_hostile_book(root: Path) -> Path:
    """Write three pages in one module; HTML is in code too, which keeps it as it is written."""
    escaped = [attack.replace("<", "\\<") for attack in ATTACKS]
    sections = (
        f"## Heading {number} `{attack}`\n\nThe poison of heading {number}: {escaped[number]}."
        for number, attack in enumerate(ATTACKS)
    )
    links = "\n".join(f"- {link}" for link in LINKS)
    table = f"| {escaped[1]} | b |\n| --- | --- |\n| {escaped[2]} | {LINKS[0]} |"
    code = "\n".join(ATTACKS)
    pages = {
        "module-1-danger/01-titles.md": [
            f'---\ntitle: "Poison {ATTACKS[0]}"\n---\n\nA page about poisoned titles and the harm that they do.',
            *sections,
        ],
        "module-1-danger/02-links.md": [
            "# Poisoned links\n\nLinks that a careful reader must not be able to follow.",
            *(links, f"> quoted {escaped[0]}", table),
        ],
        "module-1-danger/03-code.md": [
            f"# Poisoned code\n\nCode that must stay code: `{ATTACKS[1]}`.",
            f'```html title="{ATTACKS[0]}"\n{code}\n```',
            *(f":::note {escaped[0]}", f"A note with {escaped[1]}.", ":::"),
        ],
    }
    for name, blocks in pages.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n\n".join(blocks) + "\n", "utf-8")
    return root
