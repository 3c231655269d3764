"""Extend the tokenizer by merge rules for other languages, and pack the pairs for training.

Usage: `python -m training.vocabulary PAIRS TABLES OUT [--questions DIR] [--english DIR]`. `PAIRS` is what
`training.parallel` wrote, `TABLES` the model pack of the English model. All tokens and rules of that model
stay as they are, so English text has the tokens that it had. `OUT` gets `merges.json` and `corpus-N.json.xz`.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import lzma
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models

Words = Mapping[str, float]
Rule = tuple[int, int]

FIRST = 50_281
"""The first new token: the words of the English model and the context prompt are before it."""
SIZE = 1 << 16
"""Of the vocabulary: a token has 16 bits in the tables of merge rules."""
MEASURED = ("ar", "de", "es", "fa", "fr", "hi", "ja", "ko", "pt", "ru", "tr", "ur", "zh")
COMMON = ("bn", "cs", "he", "id", "it", "nl", "pl", "sv", "th", "uk", "vi")
OTHERS = (
    *("bg", "ca", "da", "el", "et", "eu", "fi", "fil", "gl", "gu", "hr", "hu", "hy", "ka", "kk", "kn"),
    *("lt", "lv", "ml", "mr", "ms", "my", "ne", "no", "pa", "ro", "sk", "sl", "sr", "sw", "ta", "te"),
)
_WEIGHTS = {**dict.fromkeys(OTHERS, 0.1), **dict.fromkeys(COMMON, 0.35), **dict.fromkeys(MEASURED, 1.0)}
_SAMPLE = 2_000_000  # characters of a language, times its weight, on which rules are learned
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u4e00-\u9fff]{6}")  # text without spaces is cut
_LONGEST = 24  # bytes of a token
_CAP = 100_000  # pairs of a language, times its weight, but at least `_LEAST`
_LEAST = 12_000
_RUN = 16  # neighbouring pairs that are kept or left out together
_PART = 26_000_000  # bytes of a packed part: it is sent to the machine that trains


def read_pairs(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs of each language in the order of their sources, a sample of the larger ones."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for language, weight in _WEIGHTS.items():
        path, cap = folder / f"{language}.jsonl.gz", max(_LEAST, round(_CAP * weight))
        if not path.is_file():
            continue
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found = [(one, other) for one, other in map(json.loads, file)]
        if len(found) > cap:
            runs = [found[start : start + _RUN] for start in range(0, len(found), _RUN)]
            kept = sorted(random.Random(1).sample(range(len(runs)), cap // _RUN))
            found = [pair for number in kept for pair in runs[number]]
        pairs[language] = found
    return pairs


def count_words(tokenizer: Tokenizer, pairs: Mapping[str, Sequence[tuple[str, str]]]) -> Words:
    """Count the words of a sample; every language has its weight, however much text there is."""
    counts: defaultdict[str, float] = defaultdict(float)
    for language, found in pairs.items():
        weight = _WEIGHTS[language]
        texts = [translation for _, translation in found]
        random.Random(2).shuffle(texts)
        words: Counter[str] = Counter()
        size = 0
        for text in texts:
            cut = _UNSPACED.sub(r"\g<0>\n", text)
            words.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(cut))
            size += len(text)
            if size > _SAMPLE * weight:
                break
        share = weight / max(1, words.total())
        for word, count in words.items():
            counts[word] += count * share
    return counts


class Learner:
    """Learns merge rules that follow the rules of a vocabulary."""

    def __init__(self, rows: Sequence[list[int]], weights: Sequence[float], names: dict[int, str]) -> None:
        self._rows, self._weights, self.names = list(rows), weights, names
        self._ids = {name: token for token, name in names.items()}
        self._sums: defaultdict[Rule, float] = defaultdict(float)
        self._places: defaultdict[Rule, set[int]] = defaultdict(set)
        for number, row in enumerate(self._rows):
            self._add(number, row, weights[number])
        self._heap = [(-value, rule) for rule, value in self._sums.items()]
        heapq.heapify(self._heap)

    def learn(self, first: int, end: int) -> list[Rule]:
        """Return rules until the tokens from `first` to `end` are used."""
        rules: list[Rule] = []
        known: set[Rule] = set()
        while first < end and self._heap:
            value, rule = heapq.heappop(self._heap)
            now = self._sums[rule]
            if rule in known or now <= 0:
                continue
            if abs(now + value) > 1e-12:
                heapq.heappush(self._heap, (-now, rule))
                continue
            name = self.names[rule[0]] + self.names[rule[1]]
            known.add(rule)
            if len(name) > _LONGEST:
                continue
            if name not in self._ids:
                self._ids[name], self.names[first] = first, name
                first += 1
            rules.append(rule)
            self._merge(rule, self._ids[name])
        return rules

    def _merge(self, rule: Rule, token: int) -> None:
        changed: set[Rule] = set()
        for number in self._places.pop(rule):
            row, weight = self._rows[number], self._weights[number]
            changed |= self._add(number, row, -weight)
            merged: list[int] = []
            for right in row:
                if merged and (merged[-1], right) == rule:
                    merged[-1] = token
                else:
                    merged.append(right)
            self._rows[number] = merged
            changed |= self._add(number, merged, weight)
        for pair in changed:
            if self._sums[pair] > 0:
                heapq.heappush(self._heap, (-self._sums[pair], pair))

    def _add(self, number: int, row: Sequence[int], weight: float) -> set[Rule]:
        pairs = set()
        for pair in pairwise(row):
            self._sums[pair] += weight
            pairs.add(pair)
        if weight > 0:
            for pair in pairs:
                self._places[pair].add(number)
        return pairs


def read_tokenizer(pack: Path) -> dict[str, Any]:
    """Return the description of a model pack's tokenizer."""
    with pack.open("rb") as file:
        file.seek(8)
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        description: dict[str, Any] = json.loads(file.read(header["tokenizer_len"]))
    return description


def merge_rules(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rules of a tokenizer's description, which has one of two formats."""
    rules = description["model"]["merges"]
    return [
        (left, right) for left, right in (one.split(" ") if isinstance(one, str) else one for one in rules)
    ]


def extend(description: Mapping[str, Any], counts: Words) -> list[tuple[str, str]]:
    """Return the new merge rules, by the names of their tokens."""
    vocabulary: dict[str, int] = description["model"]["vocab"]
    whole = Tokenizer(models.BPE(vocabulary, merge_rules(description)))  # without splitting into words
    words = [word for word, count in counts.items() if len(word) > 1]
    rows = [encoding.ids for encoding in whole.encode_batch(words, add_special_tokens=False)]
    kept = [number for number, row in enumerate(rows) if len(row) > 1]
    learner = Learner(
        [rows[number] for number in kept],
        [counts[words[number]] for number in kept],
        {token: name for name, token in vocabulary.items()},
    )
    return [(learner.names[left], learner.names[right]) for left, right in learner.learn(FIRST, SIZE)]


def passages(folder: Path, most: int) -> Iterator[str]:
    """Yield passages of English pages, as long as a chunk: the model has to stay as it is on them."""
    pages = [page for page in sorted(folder.rglob("*.md")) if page.is_file()]
    random.Random(3).shuffle(pages)
    for page in pages:
        parts, size = list[str](), 0
        for block in page.read_text("utf-8", "replace").split("\n\n"):
            parts.append(block)
            size += len(block)
            if size > random.Random(size).choice((300, 700, 1200)):
                yield "\n\n".join(parts)[:2000]
                parts, size, most = [], 0, most - 1
            if most <= 0:
                return


def pack(pairs: Mapping[str, Sequence[tuple[str, str]]], english: Iterable[str], out: Path) -> None:
    """Write the pairs in parts, each with its own list of English texts."""
    order = sorted(pairs, key=lambda language: (language not in MEASURED, language))
    content: dict[str, Any] = {"english": [], "pairs": {}, "passages": list(english)}
    place: dict[str, int] = {}
    number, size = 1, sum(map(len, content["passages"])) / 4

    def write() -> None:
        data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 27}]
        path = out / f"corpus-{number}.json.xz"
        path.write_bytes(lzma.compress(data, lzma.FORMAT_XZ, filters=filters))
        counts = {language: len(rows) for language, rows in content["pairs"].items()}
        size = path.stat().st_size / 1e6
        print(f"{path}: {size:.1f} MB, {sum(counts.values())} pairs {counts}", flush=True)

    for language in order:
        if size > _PART:
            write()
            content, place = {"english": [], "pairs": {}, "passages": []}, {}
            number, size = number + 1, 0
        rows = content["pairs"][language] = []
        for one, other in pairs[language]:
            if one not in place:
                place[one] = len(place)
                content["english"].append(one)
                size += len(one.encode()) / 4
            rows.append([place[one], other])
            size += len(other.encode()) / 5
    write()


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn the rules and pack the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--questions",
        type=Path,
        nargs="*",
        default=[],
        help="LANGUAGE.txt with the lines of en.txt translated",
    )
    parser.add_argument("--english", type=Path, help="pages of English documentation")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = read_pairs(options.pairs)
    print(sum(map(len, pairs.values())), "pairs in", len(pairs), "languages", flush=True)
    description = read_tokenizer(options.tables)
    tokenizer = Tokenizer.from_str(json.dumps(description))
    rules = extend(description, count_words(tokenizer, pairs))
    (options.out / "merges.json").write_text(json.dumps(rules, ensure_ascii=False))
    print(len(rules), "rules", flush=True)
    for folder in options.questions:
        english = (folder / "en.txt").read_text("utf-8").splitlines()
        for path in sorted(folder.glob("??.txt")):
            if path.stem != "en":
                lines = path.read_text("utf-8").splitlines()
                pairs.setdefault(f"q-{path.stem}", []).extend(zip(english, lines, strict=True))
    pack(pairs, passages(options.english, 25_000) if options.english else (), options.out)


if __name__ == "__main__":
    main()
