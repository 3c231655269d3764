"""Collect parallel text for the multilingual model from translated repositories.

Usage: `python -m training.parallel MIRRORS OUT [--only NAME]`. `MIRRORS` has a bare git repository
`OWNER+NAME/repo` for each entry of `parallel.json`; missing ones are reported and skipped. The pairs go to
`OUT/LANGUAGE.jsonl.gz`, a line `[English, translation]` each, and are not for this repository.
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

SOURCES = Path(__file__).with_name("parallel.json")
Pair = tuple[str, str]

_LANGUAGE = r"(?P<lang>[a-z]{2,3}(?:(?:_|-r?)[A-Za-z]{2,4})?(?:-\d+)?(?:@[a-z]+)?)"
_TAGS = {"in": "id", "iw": "he", "nb": "no", "nn": "no", "tl": "fil"}
"""Old codes of Android, and codes of two norms of one language."""
_SCRIPTS = (
    "ar fa ur:\u0600-\u06ff|he:\u0590-\u05ff|hi mr ne:\u0900-\u097f|bn:\u0980-\u09ff|pa:\u0a00-\u0a7f|"
    "gu:\u0a80-\u0aff|ta:\u0b80-\u0bff|te:\u0c00-\u0c7f|kn:\u0c80-\u0cff|ml:\u0d00-\u0d7f|"
    "th:\u0e00-\u0e7f|my:\u1000-\u109f|ja:\u3040-\u30ff\u4e00-\u9fff|zh:\u4e00-\u9fff|ko:\uac00-\ud7a3|"
    "ru uk bg:\u0400-\u04ff|el:\u0370-\u03ff"
)
_LETTERS = {
    language: letters
    for names, _, letters in (script.partition(":") for script in _SCRIPTS.split("|"))
    for language in names.split()
}
"""The letters of languages with a script of their own: a translation has to have some."""
_MIN_LETTERS = 0.25  # of the characters of a translation
_BATCH = 200  # files that are read at once
_MAX_SHARED = 0.5  # of the words of a translation that the English text has, too


@dataclass(frozen=True)
class Source:
    """An entry of `parallel.json`.

    `kind` says how files are paired. `translated` are patterns of paths with `{lang}` and `{path}`, and `*`;
    `english` is the pattern of the English file, in `english_repository` if it is another one.
    `language` is the one of all files, for repositories of one language.
    """

    repository: str
    commit: str
    licence: str
    kind: str
    translated: tuple[str, ...]
    english: str = ""
    english_repository: str = ""
    language: str = ""


def load_sources(path: Path = SOURCES) -> list[Source]:
    """Read the list of repositories."""
    entries = json.loads(path.read_text("utf-8"))
    return [Source(**{**entry, "translated": tuple(entry["translated"])}) for entry in entries]


class Mirror:
    """A bare git repository, read without a work tree."""

    def __init__(self, root: Path, repository: str, revision: str = "HEAD") -> None:
        """Open the copy of a repository at a revision."""
        self._revision = revision
        self._git = ["git", f"--git-dir={root / repository.replace('/', '+') / 'repo'}"]

    def paths(self) -> list[str]:
        """List all files."""
        command = [*self._git, "-c", "core.quotepath=off", "ls-tree", "-r", "--name-only", self._revision]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode().splitlines()

    def read(self, paths: Sequence[str]) -> Iterator[str]:
        """Yield the text of each file, "" for one that is missing."""
        for first in range(0, len(paths), _BATCH):
            some = paths[first : first + _BATCH]
            request = "".join(f"{self._revision}:{path}\n" for path in some).encode()
            output = subprocess.run(
                [*self._git, "cat-file", "--batch"], input=request, capture_output=True, check=True
            ).stdout
            start = 0
            for _ in some:
                end = output.index(b"\n", start) + 1
                size = output[start:end].split()[-1]
                start = end + int(size) + 1 if size.isdigit() else end
                yield output[end : start - 1].decode("utf-8", "replace") if size.isdigit() else ""


# Files and their pairs


def po_pairs(text: str) -> Iterator[Pair]:
    """Yield the messages of a gettext file with their translations, without those marked as fuzzy."""
    for block in re.split(r"\n\s*\n", text):
        if re.search(r"^#,.*\bfuzzy", block, re.MULTILINE):
            continue
        fields: defaultdict[str, str] = defaultdict(str)
        name = ""
        for line in block.splitlines():
            match = re.match(
                r'(?:(msgid|msgstr|msgstr\[0\]|msgctxt|msgid_plural|msgstr\[\d\])\s+)?"(.*)"\s*$', line
            )
            if match:
                name = match[1] or name
                fields[name] += match[2]
        if fields["msgid"] and (translation := fields["msgstr"] or fields["msgstr[0]"]):
            yield _unescape(fields["msgid"]), _unescape(translation)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": " "}.get(match[1], match[1]), text)


def key_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of a JSON file whose keys are the English texts."""
    content = _mapping(text)
    for english, translation in content.get("translations", content).items():
        yield english, translation[0] if isinstance(translation, list) and translation else translation


def string_pairs(path: str, english: str, translated: str) -> Iterator[Pair]:
    """Yield the values of two files of messages that have the same key."""
    others = dict(_messages(path, translated))
    for key, text in _messages(path, english):
        if key in others:
            yield text, others[key]


def _messages(path: str, text: str) -> Iterator[Pair]:
    """Yield the keys and texts of a file: Android XML, JSON, YAML, Fluent or properties."""
    if path.endswith(".xml"):
        pattern = r'<(?:string|item) [^>]*?(?:name|quantity)="([^"]+)"[^>]*>(.*?)</(?:string|item)>'
        for key, value in re.findall(pattern, text, re.DOTALL):
            plain = re.sub(r"\\[nt]", " ", html.unescape(value))
            yield key, re.sub(r"\\(.)", r"\1", plain).strip().strip('"')
    elif path.endswith((".yml", ".yaml")):
        yield from _leaves("", _only(_mapping(text, yaml.safe_load)))
    elif path.endswith(".json"):
        yield from _leaves("", _only(_mapping(text)))
    else:
        yield from _fluent(text)


def _fluent(text: str) -> Iterator[Pair]:
    key = ""
    for line in text.splitlines():
        if match := re.match(r"(\s*\.?[\w.-]+)\s*=\s*(.*)", line):
            name, value = match[1].strip(), match[2].strip()
            key = f"{key.partition('|')[0]}|{name}" if name.startswith(".") else name
            if value and not value.startswith("{ $"):
                yield key, value


def _only(content: dict[str, Any]) -> Any:
    """Return the messages below the tag of the language, if the file has it."""
    value: Any = next(iter(content.values()), {})
    return value if len(content) == 1 and isinstance(value, dict) else content


def _leaves(key: str, value: Any) -> Iterator[Pair]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _leaves(f"{key}.{name}", child)
    elif isinstance(value, list):
        for number, child in enumerate(value):
            yield from _leaves(f"{key}.{number}", child)
    elif isinstance(value, str):
        yield key, value


def _mapping(text: str, parse: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """Return the content of a file, or nothing if it is no mapping."""
    try:
        content = parse(text)
    except (ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def page_pairs(path: str, english: str, translated: str) -> Iterator[Pair]:
    """Yield the blocks of two pages, section by section, where both have the same number and kinds."""
    one, other = (
        _sections(_notebook(text) if path.endswith(".ipynb") else text) for text in (english, translated)
    )
    if [level for level, _ in one] != [level for level, _ in other]:
        return
    for (_, blocks), (_, others) in zip(one, other, strict=True):
        if len(blocks) == len(others):
            yield from zip(blocks, others, strict=True)


def _notebook(text: str) -> str:
    cells = _mapping(text).get("cells", [])
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell.get("cell_type") == "markdown")


def _sections(text: str) -> list[tuple[int, list[str]]]:
    """Return the blocks of each section with the level of its heading, which is its first block."""
    text = re.sub(r"\A---\n.*?\n---\n|<!--.*?-->", "", text.lstrip("\ufeff"), flags=re.DOTALL)
    text = re.sub(r"^([ >]*)(```+|~~~+).*?^[ >]*\2`*\s*?$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    sections: list[tuple[int, list[str]]] = [(0, [])]
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.)\s)|\n(?=#)|(?<=\n)(?=\|)", text):
        if match := re.match(r"\s*(#+)\s(.*)", block, re.DOTALL):
            heading, _, rest = match[2].partition("\n")
            sections.append((len(match[1]), [heading, *filter(None, [rest.strip()])]))
        elif block.strip() and not block.lstrip().startswith(("|", "{{%", "{%", "import ", "![", ":::")):
            sections[-1][1].append(block)
    return sections


# Cleaning

_MARKUP: tuple[tuple[str, str], ...] = (
    (r"\[!\w+\]|\{#[^}]*\}|\{:[^}]*\}", " "),
    (r"\{\{[<%].*?[%>]\}\}|<https?://[^>]+>", " "),
    (r"!?\[([^\]]*)\]\([^)]*\)", r"\1"),
    (r":[\w:+-]+:`([^`<]*?)(?:\s*<[^`>]*>)?`", r"\1"),
    (r"`([^`<]+?)\s*<[^`>]+>`_*", r"\1"),
    (r"\{\{\s*(?:\w+\(\")?([^}(\"]*)[^}]*\}\}", r" \1 "),
    (r"</?[A-Za-z][^>]*>", " "),
    (r"%\d*\$?[sd]|\$\d|\[\[(?:[^\]|]*\|)?([^\]]*)\]\]", r"\1"),
    (r"^[\s#>*+|-]+|`__?(?!\w)|[`*|]+|(?<![\w_])_(?=\w)|(?<!\w)&(?=\w)|\(_\w\)|\(&\w\)|_+$", ""),
)
_PATTERNS = [(re.compile(pattern, re.DOTALL), by) for pattern, by in _MARKUP]


def clean(text: str) -> str:
    """Return a text without markup, placeholders and accelerators."""
    for pattern, by in _PATTERNS:
        text = pattern.sub(by, text)
    return " ".join(html.unescape(text).split())


def accepted(english: str, translation: str, language: str) -> bool:
    """Return whether a cleaned pair is prose, in the language, and of a plausible length."""
    one, other = len(english), len(translation)
    if not (6 <= one <= 700 and 2 <= other <= 900):
        return False
    if english.casefold() == translation.casefold() or sum(map(str.isalpha, english)) < 0.6 * one:
        return False
    if letters := _LETTERS.get(language):
        least = 0.12 if language in ("zh", "ja", "ko") else 0.35
        found = len(re.findall(f"[{letters}]", translation))
        return found >= _MIN_LETTERS * other and least * one <= other <= 3 * one + 20
    words, known = translation.casefold().split(), set(english.casefold().split())
    shared = sum(word in known for word in words) / max(1, len(words))
    return shared <= _MAX_SHARED and 0.4 * one - 10 <= other <= 2.5 * one + 20


# Repositories

_READERS: dict[str, Callable[[str, str, str], Iterable[Pair]]] = {
    "po": lambda _path, _english, text: po_pairs(text),
    "keys": lambda _path, _english, text: key_pairs(text),
    "strings": string_pairs,
    "pages": page_pairs,
}


def _matched(source: Source, paths: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the language, the path and the English path of each translated file."""
    for pattern in source.translated:
        expression = (
            re.escape(pattern).replace(r"\{lang\}", _LANGUAGE, 1).replace(r"\{path\}", "(?P<path>.*)")
        )
        expression = expression.replace(r"\*", "[^/]*")
        for path in paths:
            if match := re.fullmatch(expression, path):
                groups = match.groupdict()
                tag = source.language or re.split("[-_@]", groups["lang"])[0]
                if tag != "en":
                    yield _TAGS.get(tag, tag), path, source.english.format(path=groups.get("path", ""))


def collect(source: Source, mirrors: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the language, the English text and the translation of all pairs of a repository."""
    mirror = Mirror(mirrors, source.repository, source.commit)
    english = Mirror(mirrors, source.english_repository) if source.english_repository else mirror
    files = list(_matched(source, mirror.paths()))
    needs_english = source.kind in ("strings", "pages")
    texts = english.read([path for _, _, path in files]) if needs_english else iter([""] * len(files))
    others = mirror.read([path for _, path, _ in files])
    for (language, path, _), original, translated in zip(files, texts, others, strict=True):
        for one, other in _READERS[source.kind](path, original, translated):
            if isinstance(one, str) and isinstance(other, str):
                pair = clean(one[:2000]), clean(other[:2000])
                if accepted(*pair, language):
                    yield language, *pair


def main(arguments: list[str] | None = None) -> None:
    """Collect the pairs of all repositories, without duplicates, and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mirrors", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="repositories whose name has this text")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    seen: defaultdict[str, set[int]] = defaultdict(set)
    with ExitStack() as stack:
        files: dict[str, TextIO] = {}
        for source in load_sources():
            if options.only not in source.repository:
                continue
            if not (options.mirrors / source.repository.replace("/", "+")).is_dir():
                print(f"{source.repository}: no copy", flush=True)
                continue
            found: Counter[str] = Counter()
            for language, english, translation in collect(source, options.mirrors):
                if (key := hash((english, translation[:40]))) in seen[language]:
                    continue
                seen[language].add(key)
                found[language] += 1
                if language not in files:
                    path = options.out / f"{language}.jsonl.gz"
                    files[language] = stack.enter_context(gzip.open(path, "wt", 4, "utf-8"))
                files[language].write(json.dumps([english, translation], ensure_ascii=False) + "\n")
            best = ", ".join(f"{language} {count}" for language, count in found.most_common(6))
            print(
                f"{source.repository}: {found.total()} pairs in {len(found)} languages ({best})", flush=True
            )
    counts = sorted(((len(keys), language) for language, keys in seen.items()), reverse=True)
    print(f"{sum(count for count, _ in counts)} pairs in {len(counts)} languages")
    print("\n".join(f"{language}\t{count}" for count, language in counts))


if __name__ == "__main__":
    main()
