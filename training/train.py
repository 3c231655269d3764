"""Fine-tune the built-in model on readers' questions: `python training/train.py DIRECTORY select|final`.

DIRECTORY has `books.json.gz` (written by `training/prepare.py`) and `pack.hmsemb` (the installed model pack).
If it also has `scifact.json.gz` (`prepare.py --scifact`), a recipe can train on some of its pairs, and
SciFact's nDCG@10 is measured. The program needs torch, numpy and tokenizers, and nothing of Recto.

- `select` trains each recipe on the training books except a fifth of them (`held`), and measures it on the
  evaluation books (`shared`) and on `held`.
- `final` trains one recipe on all training books with several seeds, averages the weights, measures each
  seed and the average, and writes the trained part of the average to OUT/body-1.npz, body-2.npz, ….

The loss is contrastive: a question's own chunk against the other chunks of the batch, some of which are hard
negatives: chunks of the same book that the model ranks high but that are on none of the expected pages.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import multiprocessing
import random
import re
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from numpy.typing import NDArray
from tokenizers import Tokenizer

Tensor: TypeAlias = Any  # torch is not installed where types are checked
Weights: TypeAlias = dict[str, Tensor]
Floats: TypeAlias = NDArray[np.float32]

MAX_TOKENS = 512
TABLES = frozenset({"word_emb", "pos_emb", "type_emb"})
"""Frozen: the quality is the same, and only the body has to be shipped."""
LEXICAL_WEIGHTS = (0.15, 0.2, 0.25, 0.3, 0.4)
SCIFACT = "scifact"
_PADDING = 1
_WIDTH = 8  # batches are padded to a multiple of it, for the fast kernels of attention
_TRAIN_TOKENS = 1 << 15  # padded tokens per forward pass in training
_EMBED_TOKENS = 1 << 17  # and in embedding, which keeps no activations
_CPU_TOKENS = 1 << 12
_MINED = 200  # best chunks among which hard negatives are looked for
_WARM_UP = 10  # steps
_MAX_FILE = 14_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train.

    `drop_titles` is the share of chunks without their heading path. `sections` is the share of questions
    whose positive is a random chunk of the expected sections instead of the best one. `ceiling` drops hard
    negatives whose cosine is above this share of the positive's (0: none): they may be unlisted answers.
    `anchor` weighs the term that keeps vectors near those of the base model. `dims` are the Matryoshka
    dimensions with their weights. `blend` is how far the weights move from the base to the trained ones.
    """

    name: str = "default"
    lr: float = 5e-5
    temperature: float = 0.03
    batch: int = 64
    epochs: int = 4
    negatives: int = 7
    pool: int = 30
    ceiling: float = 0.0
    remine: bool = True
    books_per_batch: int = 16
    drop_titles: float = 0.0
    sections: float = 0.0
    anchor: float = 0.0
    dims: tuple[tuple[int, float], ...] = ((384, 1.0),)
    scifact: float = 0.0
    blend: float = 1.0
    weight_decay: float = 0.01
    quantized: bool = True
    seed: int = 0


_MATRYOSHKA = ((384, 1.0), (256, 0.3), (128, 0.3))
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(),
        Recipe("once", remine=False),
        Recipe("titles", drop_titles=0.2),
        Recipe("anchor", anchor=1.0),
        Recipe("matryoshka", dims=_MATRYOSHKA),
        Recipe("long", epochs=8),
        Recipe("hot", lr=1e-4),
        Recipe("soft", temperature=0.05, lr=3e-5),
        Recipe("many", batch=128, negatives=15, lr=7e-5),
        Recipe("ceiling", ceiling=0.98),
        Recipe("sections", sections=0.3),
        Recipe("scifact", scifact=0.1),
        Recipe("all", drop_titles=0.1, anchor=0.5, dims=_MATRYOSHKA, scifact=0.05, sections=0.15),
    )
}


@dataclass(slots=True)
class Book:
    """A book's chunks and questions, tokenized; numbers of chunks and questions are their places here."""

    name: str
    evaluation: bool
    paths: list[str]
    texts: list[str]
    questions: list[dict[str, Any]]
    page_of: NDArray[np.int64]
    golds: list[list[int]]
    chunks: list[list[int]] = field(default_factory=list)
    queries: list[list[int]] = field(default_factory=list)
    lexical: Floats | None = None
    known: list[float] = field(default_factory=list)

    @property
    def asked(self) -> list[int]:
        """The questions with an answer in the chunks: on these a model is measured."""
        return [number for number, question in enumerate(self.questions) if question["pos"]]

    @property
    def trained(self) -> list[int]:
        """The questions to train on; SciFact's test claims are only for measuring."""
        return [number for number in self.asked if self.questions[number].get("split") != "test"]


@dataclass(slots=True)
class Mined:
    """A book's vectors by one model, and for each question its best positive and its hard negatives."""

    chunks: Tensor
    queries: Tensor
    positives: dict[int, int]
    negatives: dict[int, list[int]]


class Clock:
    """Prints the time of each phase, and says when the time is over."""

    def __init__(self, minutes: float) -> None:
        """Start to count."""
        self._began = perf_counter()
        self._end = self._began + 60 * minutes

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Print how long a phase took."""
        began = perf_counter()
        yield
        now = perf_counter()
        say(f"# {name}: {now - began:.1f} s (at {now - self._began:.0f} s)")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


# The lexical part of the evaluation


_COMPOUND = re.compile(r"--?[A-Za-z][\w-]*|\w+(?:[.\-]\w+)*")
_SUBWORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_NUMBER = re.compile(r"v?\d+(?:\.\d+)*")
_VOWEL = re.compile("[aeiouy]")
_LONGEST = 64  # characters; a longer token is encoded data, not a word
_K1, _B, _AVERAGE = 1.2, 0.75, 100
_STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both
    but by can could did do does doing don down during each few for from further get had has have having he
    her here hers him his how i if in into is it its itself just let me more most my no nor not of off on once
    only or other our out over own same she should so some such than that the their them then there these
    they this those through to too under until up us very was we were what when where which while who whom
    why will with would you your
    """.split()  # noqa: SIM905
)


def stem(word: str) -> str:
    """Remove the plural, -ing and -ed of an English word."""
    if len(word) <= 3 or not (word.isascii() and word.isalpha()):
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word:
            if len(rest) < 3 or not _VOWEL.search(rest):
                break
            return rest[:-1] if rest[-1] == rest[-2] and rest[-1] not in "lsz" else rest
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


@lru_cache(maxsize=1 << 17)
def word_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a word: its stem, and the parts of an identifier."""
    terms = [stem(word.lower())]
    if not _NUMBER.fullmatch(word.lower()):
        for subword in _SUBWORD.findall(word):
            parts = [part.lower() for piece in _PART.findall(subword) for part in _CAMEL.split(piece)]
            terms += [stem(subword.lower()), *(stem(part) for part in parts if len(part) > 1)]
    return tuple(dict.fromkeys(terms))


def words(text: str) -> list[str]:
    """Return the words of a text as written."""
    return [word for word in _COMPOUND.findall(text) if len(word) <= _LONGEST]


def query_terms(text: str) -> set[str]:
    """Return the terms of a query without stop words, unless it has no other words."""
    found = words(text)
    content = [word for word in found if word.lower() not in _STOP_WORDS]
    return {term for word in content or found for term in word_terms(word)}


def lexical_scores(texts: Sequence[str], queries: Sequence[str]) -> tuple[Floats, list[float]]:
    """Return BM25 as a share of the most that a query could reach, and each query's share of known IDF mass.

    Words that the book does not have count in the divisor, so a query about something else scores low.
    """
    asked = [query_terms(query) for query in queries]
    wanted = set().union(*asked)
    found: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for number, text in enumerate(texts):
        counts: Counter[str] = Counter()
        for word, count in Counter(words(text)).items():
            for term in word_terms(word):
                counts[term] += count
        length = _K1 * (1 - _B + _B * counts.total() / _AVERAGE)
        for term in counts.keys() & wanted:
            found[term].append((number, counts[term] * (_K1 + 1) / (counts[term] + length)))
    total = len(texts)
    idf = {
        term: math.log(1 + (total - len(found.get(term, ())) + 0.5) / (len(found.get(term, ())) + 0.5))
        for term in wanted
    }
    scores, known = np.zeros((len(queries), total), np.float32), []
    for row, terms in enumerate(asked):
        mass = sum(idf[term] for term in terms)
        for term in sorted(terms & found.keys()):
            places, values = zip(*found[term], strict=True)
            scores[row, list(places)] += idf[term] * np.array(values, np.float32)
        scores[row] /= max((_K1 + 1) * mass, 1e-9)
        known.append(sum(idf[term] for term in terms if term in found) / max(mass, 1e-9))
    return scores, known


def _lexical_of(book: tuple[list[str], list[str]]) -> tuple[Floats, list[float]]:
    return lexical_scores(*book)


# The books


def load_books(directory: Path, limit_books: int, limit: int) -> list[Book]:
    """Read the books; the limits are for a quick trial: books of each kind, and questions per book."""
    with gzip.open(directory / "books.json.gz", "rt", encoding="utf-8") as file:
        data: dict[str, Any] = json.load(file)
    if (extra := directory / "scifact.json.gz").is_file():
        with gzip.open(extra, "rt", encoding="utf-8") as file:
            data[SCIFACT] = json.load(file)
    books = [make_book(name, value, limit) for name, value in data.items()]
    if not limit_books:
        return books
    ours = [book for book in books if not book.evaluation and book.name != SCIFACT]
    shared = [book for book in books if book.evaluation]
    small = sorted(ours, key=lambda book: len(book.texts))[:limit_books]
    return small + sorted(shared, key=lambda book: len(book.texts))[:1]


def make_book(name: str, data: Mapping[str, Any], limit: int = 0) -> Book:
    """Return a book; with a limit, only so many questions and the chunks around their answers."""
    questions = data["qs"][: limit or None]
    keep = list(range(len(data["text"])))
    if limit:
        wanted = {place for question in questions for place in question["pos"] + question["sections"]}
        keep = [place for place in keep if place in wanted or place % 8 == 0][: 20 * limit]
        moved = {old: new for new, old in enumerate(keep)}
        questions = [
            {**one, **{key: [moved[old] for old in one[key] if old in moved] for key in ("pos", "sections")}}
            for one in questions
        ]
    sources = [data["src"][place] for place in keep]
    pages = {page: number for number, page in enumerate(dict.fromkeys(sources))}
    return Book(
        name,
        bool(data.get("eval")),
        [data["hp"][place] for place in keep],
        [data["text"][place] for place in keep],
        questions,
        np.array([pages[source] for source in sources]),
        # A page without chunks is never found: its number is that of no page.
        [[pages.get(page, -1) for page in question["gold"]] for question in questions],
    )


def passage(path: str, text: str) -> str:
    """Return the text that is embedded for a chunk."""
    return f"{path}\n\n{text}"


def add_lexical(books: Sequence[Book], processes: int) -> None:
    """Compute the lexical scores of books, in processes that are started before CUDA is."""
    work = [
        (
            [passage(path, text) for path, text in zip(book.paths, book.texts, strict=True)],
            [question["q"] for question in book.questions],
        )
        for book in books
    ]
    if processes > 1:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            found = pool.map(_lexical_of, work, chunksize=1)
    else:
        found = [_lexical_of(book) for book in work]
    for book, (scores, known) in zip(books, found, strict=True):
        book.lexical, book.known = scores, known


def held_out(books: Sequence[Book], seed: int) -> set[str]:
    """Return the names of a fifth of the training books."""
    names = sorted(book.name for book in books if not book.evaluation and book.name != SCIFACT)
    return set(random.Random(seed).sample(names, max(1, len(names) // 5)))


# The model


@dataclass(frozen=True, slots=True)
class Architecture:
    """The sizes of the model, and the place of the first token's position in the table."""

    hidden: int
    layers: int
    heads: int
    offset: int


@dataclass(slots=True)
class Model:
    """The transformer: its weights are replaced while it is trained."""

    arch: Architecture
    tokenizer: Tokenizer
    weights: Weights
    calibration: dict[str, tuple[Tensor, float, int]]
    device: str
    rounding: str = "none"

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids, cut to the model's limit with the last special token kept."""
        rows = (encoding.ids for encoding in self.tokenizer.encode_batch(list(texts)))
        return [ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]] for ids in rows]

    def forward(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the normalised vectors of tokenized texts."""
        ids, mask = self._padded(rows)
        weights, (count, width) = self.weights, ids.shape
        start = self.arch.offset
        x = F.embedding(ids, weights["word_emb"]) + weights["pos_emb"][start : start + width]
        x = self._norm(x + weights["type_emb"][0], "emb_ln")
        shape = (count, width, 3, self.arch.heads, self.arch.hidden // self.arch.heads)
        for layer in (f"l{number}" for number in range(self.arch.layers)):
            parts = self._linear(x, f"{layer}.qkv").view(shape).permute(2, 0, 3, 1, 4).unbind()
            mixed = F.scaled_dot_product_attention(*parts, attn_mask=mask)
            mixed = mixed.transpose(1, 2).reshape(x.shape)
            x = self._norm(x + self._linear(mixed, f"{layer}.ao"), f"{layer}.aln")
            inner = F.gelu(self._linear(x, f"{layer}.f1"))
            x = self._norm(x + self._linear(inner, f"{layer}.f2"), f"{layer}.fln")
        return F.normalize(x[:, 0].float(), dim=-1)

    def encode(self, rows: Sequence[Sequence[int]], max_tokens: int) -> Tensor:
        """Return the vectors of rows in their order; rows of similar length are computed together."""
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        parts, start = [], 0
        max_tokens = min(max_tokens, _CPU_TOKENS) if self.device == "cpu" else max_tokens
        while start < len(order):
            end = start + 1
            while end < len(order) and (end + 1 - start) * len(rows[order[end]]) <= max_tokens:
                end += 1
            # Without the instructions for it, a CPU computes bf16 many times slower than fp32.
            with torch.autocast(self.device, torch.bfloat16, enabled=self.device != "cpu"):
                parts.append(self.forward([rows[place] for place in order[start:end]]))
            start = end
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(parts)[back.to(self.device)]

    def embed(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of rows, without gradients."""
        with torch.no_grad():
            return self.encode(rows, _EMBED_TOKENS)

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        lengths = np.array([len(row) for row in rows])
        width = int(-(-lengths.max() // _WIDTH) * _WIDTH)
        kept = np.arange(width) < lengths[:, None]
        ids = np.full(kept.shape, _PADDING, np.int64)
        ids[kept] = np.concatenate([np.asarray(row, np.int64) for row in rows])
        mask = torch.from_numpy(kept[:, None, None, :]).to(self.device)
        return torch.from_numpy(ids).to(self.device), mask

    def _linear(self, x: Tensor, name: str) -> Tensor:
        if self.rounding == "none":
            return F.linear(x, self.weights[f"{name}.w"], self.weights[f"{name}.b"])
        if name == f"l{self.arch.layers - 1}.qkv":  # in Recto, the query has its own product
            parts = zip(("q", "kv"), self._split(name), strict=True)
            return torch.cat([self._rounded(x, f"{name[:-3]}{part}", *two) for part, two in parts], dim=-1)
        return self._rounded(x, name, self.weights[f"{name}.w"], self.weights[f"{name}.b"])

    def _split(self, name: str) -> list[tuple[Tensor, Tensor]]:
        weight, bias, size = self.weights[f"{name}.w"], self.weights[f"{name}.b"], self.arch.hidden
        return [(weight[:size], bias[:size]), (weight[size:], bias[size:])]

    def _rounded(self, x: Tensor, name: str, weight: Tensor, bias: Tensor) -> Tensor:
        """Multiply as Recto's int8 graph does; gradients pass through the rounding."""
        factors, scale, zero = self.calibration[name]
        smooth = weight * factors
        scales = (smooth.detach().abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
        values = straight_through(smooth / scales)
        if self.rounding == "weights":
            return F.linear(x.float() / factors, values * scales, bias)
        inputs = x.float() / (factors * scale)
        inputs = straight_through(inputs.clamp(-zero, 255 - zero))
        return F.linear(inputs, values).float() * (scales[:, 0] * scale) + bias

    def _norm(self, x: Tensor, name: str) -> Tensor:
        parts = self.weights[f"{name}.w"], self.weights[f"{name}.b"]
        return F.layer_norm(x.float(), (self.arch.hidden,), *parts, eps=1e-12)


def load_model(path: Path, device: str) -> Model:
    """Read a model pack: a header in JSON, the tokenizer, then the tensors in grouped int8 or float32."""
    weights = {}
    with path.open("rb") as file:
        if file.read(8) != b"HMSEMB01":
            raise SystemExit(f"{path} is not a model pack.")
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        tokenizer = Tokenizer.from_str(file.read(header["tokenizer_len"]).decode())
        for tensor in header["tensors"]:
            raw, shape, name = file.read(tensor["len"]), tensor["shape"], tensor["name"]
            if tensor["dtype"] == "f32":
                value = np.frombuffer(raw, np.float32).reshape(shape)
            else:
                count = shape[0] * shape[1]
                scales = np.frombuffer(raw, np.float32, offset=count).reshape(shape[0], -1)
                grouped = np.frombuffer(raw, np.int8, count).reshape(*scales.shape, -1)
                value = (grouped * scales[:, :, None]).reshape(shape)
            weights[name] = torch.tensor(np.ascontiguousarray(value), device=device)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    arch = header["arch"]
    sizes = Architecture(arch["hidden"], arch["layers"], arch["heads"], arch["position_offset"])
    with np.load(path.with_name("granite-int8.npz")) as data:
        calibration = {
            name.removesuffix(".scale"): (
                torch.tensor(data[name.replace(".scale", ".factors")].astype(np.float32), device=device),
                float(data[name]),
                int(data[name.replace(".scale", ".zero")]),
            )
            for name in data
            if name.endswith(".scale")
        }
    return Model(sizes, tokenizer, weights, calibration, device)


def straight_through(values: Tensor) -> Tensor:
    """Round, with the gradient of the unrounded values."""
    return values + (values.round() - values).detach()


# Training


def mine(model: Model, book: Book, recipe: Recipe) -> Mined:
    """Embed a book, and find the best positive and the hard negatives of each question."""
    chunks, queries = model.embed(book.chunks), model.embed(book.queries)
    scores = queries @ chunks.T
    best = scores.topk(min(_MINED, len(book.chunks)), dim=1)
    order, values, scores = best.indices.tolist(), best.values.tolist(), scores.cpu().numpy()
    mined = Mined(chunks, queries, {}, {})
    for row in book.trained:
        positive = max(book.questions[row]["pos"], key=lambda place: float(scores[row, place]))
        top = recipe.ceiling * float(scores[row, positive]) if recipe.ceiling else math.inf
        golds = set(book.golds[row])
        mined.positives[row] = positive
        mined.negatives[row] = [
            place
            for place, value in zip(order[row], values[row], strict=True)
            if value <= top and int(book.page_of[place]) not in golds
        ][: recipe.pool]
    return mined


Example: TypeAlias = tuple[str, int]  # a book's name and the number of a question


def batches(examples: Mapping[str, list[int]], recipe: Recipe, rnd: random.Random) -> list[list[Example]]:
    """Shuffle the questions into batches of several books, with a few questions of each.

    Questions of one book are hard negatives of each other; those of other books are easy ones.
    """
    size = max(1, recipe.batch // recipe.books_per_batch) if recipe.books_per_batch else 1
    blocks = []
    for name, numbers in examples.items():
        shuffled = rnd.sample(numbers, len(numbers))
        blocks += [
            [(name, number) for number in shuffled[start : start + size]]
            for start in range(0, len(shuffled), size)
        ]
    rnd.shuffle(blocks)
    order = [example for block in blocks for example in block]
    made = [order[start : start + recipe.batch] for start in range(0, len(order), recipe.batch)]
    return [batch for batch in made if len(batch) > recipe.batch // 2] or made


def contrastive_loss(queries: Tensor, chunks: Tensor, masked: Tensor, recipe: Recipe) -> Tensor:
    """Return the cross entropy of each question's own chunk, for every Matryoshka dimension.

    The first chunks belong to the questions, in their order; `masked` are other answers of a question.
    """
    labels = torch.arange(len(queries), device=queries.device)
    loss = 0.0
    for dim, weight in recipe.dims:
        left, right = (F.normalize(part[:, :dim], dim=-1) for part in (queries, chunks))
        logits = (left @ right.T / recipe.temperature).masked_fill(masked, -math.inf)
        loss = loss + weight * F.cross_entropy(logits, labels)
    return loss / sum(weight for _, weight in recipe.dims)


class Trainer:
    """Trains one recipe on some books, from the base weights."""

    def __init__(
        self, model: Model, base: Weights, books: Sequence[Book], mined: Mapping[str, Mined], recipe: Recipe
    ) -> None:
        """Take what the base model mined; it also gives the vectors to stay near to."""
        self._model, self._base, self._recipe = model, base, recipe
        self._books = {book.name: book for book in books}
        self._first, self._mined = mined, dict(mined)
        self._rnd = random.Random(recipe.seed)
        self._bare: dict[Example, list[int]] = {}

    def run(self, clock: Clock) -> Weights:
        """Return the trained weights; training stops early when the time is over."""
        recipe, model = self._recipe, self._model
        torch.manual_seed(recipe.seed)
        model.weights = {
            name: value.clone().requires_grad_(name not in TABLES) for name, value in self._base.items()
        }
        model.rounding = "all" if recipe.quantized else "none"
        moving = [value for value in model.weights.values() if value.requires_grad]
        optimizer = torch.optim.AdamW(moving, lr=recipe.lr, weight_decay=recipe.weight_decay)
        epochs = [self._epoch() for _ in range(recipe.epochs)]
        steps, step, losses, stopped = sum(map(len, epochs)), 0, [], False
        for number, epoch in enumerate(epochs):
            if recipe.remine and recipe.epochs > 1 and number == recipe.epochs // 2:
                self._mine_again()
            for batch in epoch:
                if clock.left < 0:
                    stopped = True
                    break
                step += 1
                rate = min(1.0, step / _WARM_UP) * max(0.0, 1 - step / (steps + 1))
                optimizer.param_groups[0]["lr"] = recipe.lr * rate
                loss = self._loss(batch)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(moving, 1.0)
                optimizer.step()
                losses.append(loss.detach())
        if stopped:
            say(f"# {recipe.name}: stopped at step {step} of {steps}, because the time is over")
        if losses:
            tail = torch.stack(losses[-len(epochs[-1]) :]).mean().item()
            say(f"# {recipe.name}: {step} steps, loss {losses[0].item():.3f} -> {tail:.3f} (last epoch)")
        model.rounding = "none"
        model.weights = blended(
            self._base, {name: value.detach() for name, value in model.weights.items()}, recipe.blend
        )
        return model.weights

    def _epoch(self) -> list[list[Example]]:
        """Return one epoch's batches; SciFact's claims are drawn up to their share."""
        examples = {name: book.trained for name, book in self._books.items() if name != SCIFACT}
        extra = self._books.get(SCIFACT)
        if extra and self._recipe.scifact:
            total = sum(map(len, examples.values()))
            wanted = round(total * self._recipe.scifact / (1 - self._recipe.scifact))
            examples[SCIFACT] = self._rnd.sample(extra.trained, min(wanted, len(extra.trained)))
        return batches(examples, self._recipe, self._rnd)

    def _mine_again(self) -> None:
        """Look for hard negatives with the model as it is now; the positives stay those of the base model."""
        for name, book in self._books.items():
            found = mine(self._model, book, self._recipe)
            first = self._first[name]
            self._mined[name] = Mined(first.chunks, first.queries, first.positives, found.negatives)

    def _loss(self, batch: Sequence[Example]) -> Tensor:
        recipe, model, rnd = self._recipe, self._model, self._rnd
        own = [(name, self._positive(name, row)) for name, row in batch]
        others = []
        for name, row in batch:
            pool = self._mined[name].negatives[row]
            others += [(name, place) for place in rnd.sample(pool, min(recipe.negatives, len(pool)))]
        places = own + others
        rows = [self._tokens(place) for place in places]
        queries = model.encode([self._books[name].queries[row] for name, row in batch], _TRAIN_TOKENS)
        chunks = model.encode(rows, _TRAIN_TOKENS)
        loss = contrastive_loss(queries, chunks, self._masked(batch, places), recipe)
        if recipe.anchor:
            targets = torch.stack([self._first[name].chunks[place] for name, place in places])
            asked = torch.stack([self._first[name].queries[row] for name, row in batch])
            away = 2 - (queries * asked).sum(1).mean() - (chunks * targets).sum(1).mean()
            loss = loss + recipe.anchor * away
        return loss

    def _positive(self, name: str, row: int) -> int:
        sections = self._books[name].questions[row].get("sections")
        if sections and self._rnd.random() < self._recipe.sections:
            return int(self._rnd.choice(sections))
        return self._mined[name].positives[row]

    def _tokens(self, place: Example) -> list[int]:
        """Return a chunk's tokens, for some chunks without the heading path."""
        name, number = place
        book = self._books[name]
        if not self._recipe.drop_titles or self._rnd.random() >= self._recipe.drop_titles:
            return book.chunks[number]
        if place not in self._bare:
            self._bare[place] = self._model.tokens([book.texts[number]])[0]
        return self._bare[place]

    def _masked(self, batch: Sequence[Example], places: Sequence[Example]) -> Tensor:
        """Return which chunks are other chunks of a question's expected pages."""
        masked = np.zeros((len(batch), len(places)), bool)
        here: defaultdict[str, list[int]] = defaultdict(list)
        for column, (name, _) in enumerate(places):
            here[name].append(column)
        for line, (name, row) in enumerate(batch):
            book, golds = self._books[name], set(self._books[name].golds[row])
            for column in here[name]:
                masked[line, column] = column != line and int(book.page_of[places[column][1]]) in golds
        return torch.from_numpy(masked).to(self._model.device)


def blended(base: Weights, trained: Weights, share: float) -> Weights:
    """Return the weights on the way from the base to the trained ones."""
    return {name: torch.lerp(base[name], value, share) for name, value in trained.items()}


def averaged(several: Sequence[Weights]) -> Weights:
    """Return the mean of the weights of several seeds."""
    return {name: torch.stack([one[name] for one in several]).mean(0) for name in several[0]}


# Evaluation


@dataclass(frozen=True, slots=True)
class Ranking:
    """The scores of a model on one book: hit@1, hit@5 and MRR of pages, by lexical weight (0: dense)."""

    values: dict[float, NDArray[np.float64]]


def page_ranks(scores: Tensor, page_of: Tensor, golds: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the ranks of each query's expected pages, from zero; the best chunk ranks its page."""
    count = int(page_of.max()) + 1
    best = torch.full((len(scores), count), -math.inf, device=scores.device)
    best = best.scatter_reduce(1, page_of.expand(len(scores), -1), scores, "amax").cpu().numpy()
    return [
        [int((row > row[gold]).sum()) if gold >= 0 else count for gold in expected]
        for row, expected in zip(best, golds, strict=True)
    ]


def page_measures(ranks: Sequence[Sequence[int]], matches: Sequence[str]) -> NDArray[np.float64]:
    """Return hit@1, hit@5 and MRR; `all` needs every page for a hit, and MRR counts the best page."""
    rows = []
    for found, match in zip(ranks, matches, strict=True):
        decisive = max(found) if match == "all" else min(found)
        rows.append((decisive < 1, decisive < 5, 1 / (min(found) + 1)))
    means: NDArray[np.float64] = np.array(rows, np.float64).mean(axis=0)
    return means


def evaluate_book(model: Model, book: Book) -> Ranking:
    """Measure the model on the questions that the book answers."""
    asked = book.asked
    cosine = model.embed([book.queries[row] for row in asked]) @ model.embed(book.chunks).T
    page_of = torch.from_numpy(book.page_of).to(model.device)
    golds, matches = [book.golds[row] for row in asked], [book.questions[row]["match"] for row in asked]
    values = {0.0: page_measures(page_ranks(cosine, page_of, golds), matches)}
    if book.lexical is not None:
        lexical = torch.from_numpy(book.lexical[asked]).to(model.device)
        for weight in LEXICAL_WEIGHTS:
            ranks = page_ranks(cosine + weight * lexical, page_of, golds)
            values[weight] = page_measures(ranks, matches)
    return Ranking(values)


def scifact_ndcg(model: Model, book: Book) -> float:
    """Return nDCG@10 on SciFact's test claims, dense."""
    rows = [row for row in book.asked if book.questions[row].get("split") == "test"]
    scores = model.embed([book.queries[row] for row in rows]) @ model.embed(book.chunks).T
    ranks = page_ranks(scores, torch.from_numpy(book.page_of).to(model.device), [book.golds[r] for r in rows])
    values = []
    for found in ranks:
        gain = sum(1 / math.log2(rank + 2) for rank in found if rank < 10)
        values.append(gain / sum(1 / math.log2(rank + 2) for rank in range(min(10, len(found)))))
    return float(np.mean(values))


def report(label: str, model: Model, groups: Mapping[str, Sequence[Book]], scifact: Book | None) -> None:
    """Print the means over each group of books, then hit@1 per book: dense, and with the middle weight."""
    middle = LEXICAL_WEIGHTS[len(LEXICAL_WEIGHTS) // 2]
    details = []
    for group, books in groups.items():
        found = {book.name: evaluate_book(model, book).values for book in books}
        if not found:
            continue
        columns = []
        for weight in (0.0, *LEXICAL_WEIGHTS):
            mean = np.mean([values[weight] for values in found.values()], axis=0)
            columns.append("/".join(f"{value:.3f}" for value in mean).replace("0.", "."))
        say(f"{label:<18} {group:<7} " + "  ".join(columns))
        hits = (f"{name}:{value[0.0][0]:.2f}/{value[middle][0]:.2f}" for name, value in found.items())
        details.append(f"    {group}: " + " ".join(hits))
    if scifact:
        say(f"{label:<18} scifact nDCG@10 {scifact_ndcg(model, scifact):.4f}")
    for line in details:
        say(line)


def answerability(model: Model, books: Sequence[Book], path: Path) -> None:
    """Write what tells whether a book answers a query, for every question of every book."""
    found = []
    for book in books:
        cosine = (model.embed(book.queries) @ model.embed(book.chunks).T).cpu().numpy()
        lexical = book.lexical if book.lexical is not None else np.zeros_like(cosine)
        for row, question in enumerate(book.questions):
            hybrid = {
                f"{w}": round(float((cosine[row] + w * lexical[row]).max()), 5) for w in LEXICAL_WEIGHTS
            }
            first = int(cosine[row].argmax())
            found.append(
                {
                    "book": book.name,
                    "id": question["id"],
                    "type": question["type"],
                    "match": question["match"],
                    "cosine": round(float(cosine[row, first]), 5),
                    "lexical": round(float(lexical[row].max()), 5),
                    "lexical_of_first": round(float(lexical[row, first]), 5),
                    "hybrid": hybrid,
                    "known": round(book.known[row], 5),
                }
            )
    path.write_text(json.dumps(found), "utf-8")
    say(f"# {path}: {len(found)} questions")


def save_body(weights: Weights, out: Path) -> None:
    """Write the trained tensors in float16, in files that are small enough to be copied."""
    files: list[dict[str, Any]] = [{}]
    size = 0
    for name, value in weights.items():
        if name in TABLES:
            continue
        array = value.detach().cpu().numpy().astype(np.float16)
        if files[-1] and size + array.nbytes > _MAX_FILE:
            files.append({})
            size = 0
        files[-1][name] = array
        size += array.nbytes
    for number, arrays in enumerate(files, 1):
        path = out / f"body-{number}.npz"
        np.savez(path, **arrays)
        say(f"# {path}: {len(arrays)} tensors, {path.stat().st_size / 1e6:.1f} MB")


# The program


@dataclass(slots=True)
class Run:
    """What both modes need."""

    model: Model
    base: Weights
    books: list[Book]
    clock: Clock
    mined: dict[str, Mined]
    scifact: Book | None

    def train(self, names: Iterable[str], recipe: Recipe) -> Weights:
        """Train a recipe on the named books."""
        wanted = set(names)
        books = [book for book in self.books if book.name in wanted]
        if self.scifact and recipe.scifact:
            books.append(self.scifact)
        with self.clock.phase(f"mining for {recipe.name}"):
            self.model.weights = dict(self.base)
            mined = {book.name: self._mined(book, recipe) for book in books}
        with self.clock.phase(f"training {recipe.name}"):
            return Trainer(self.model, self.base, books, mined, recipe).run(self.clock)

    def _mined(self, book: Book, recipe: Recipe) -> Mined:
        """Mine each book once with the base model, for all recipes that mine alike."""
        key = f"{book.name} {recipe.ceiling} {recipe.pool}"
        if key not in self.mined:
            self.mined[key] = mine(self.model, book, recipe)
        return self.mined[key]


def select(
    run: Run, groups: Mapping[str, Sequence[Book]], names: Iterable[str], recipes: list[Recipe]
) -> None:
    """Train and measure each recipe, as long as there is time for another one."""
    names = sorted(names)
    longest = 0.0
    for recipe in recipes:
        if run.clock.left < longest * 1.1:
            say(f"# {recipe.name} and later ones: skipped, because the time is over")
            return
        began = perf_counter()
        run.train(names, recipe)
        with run.clock.phase(f"evaluation of {recipe.name}"):
            report_roundings(recipe.name, run, groups)
        longest = max(longest, perf_counter() - began)


def finish(
    run: Run,
    groups: Mapping[str, Sequence[Book]],
    names: Iterable[str],
    recipe: Recipe,
    seeds: int,
    out: Path,
) -> None:
    """Train with several seeds, and write the average of their weights."""
    names = sorted(names)
    several: list[Weights] = []
    longest = 0.0
    for seed in range(seeds):
        if several and run.clock.left < longest * 1.1 + 60:
            say(f"# seed {seed} and later ones: skipped, because the time is over")
            break
        began = perf_counter()
        several.append(run.train(names, replace(recipe, seed=seed)))
        with run.clock.phase(f"evaluation of seed {seed}"):
            report_roundings(f"seed {seed}", run, groups)
        longest = max(longest, perf_counter() - began)
        save_body(averaged(several), out)  # early, in case that the machine's time ends
    run.model.weights = averaged(several)
    save_body(run.model.weights, out)
    report_roundings(f"mean of {len(several)}", run, groups)


def report_roundings(label: str, run: Run, groups: Mapping[str, Sequence[Book]]) -> None:
    """Report the model as it was trained, with the weights rounded (fp32), and with all rounded (int8)."""
    for rounding in ("none", "weights", "all"):
        run.model.rounding = rounding
        report(f"{label} {rounding}", run.model, groups, run.scifact)
    run.model.rounding = "none"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("mode", choices=("select", "final"))
    parser.add_argument("--recipes", nargs="*", default=[], help=f"of {', '.join(RECIPES)}; default: all")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=JSON", help="change all recipes")
    parser.add_argument("--with-eval", action="store_true", help="also train on the evaluation books")
    parser.add_argument("--seeds", type=int, default=3, help="for final; default %(default)s")
    parser.add_argument("--held-seed", type=int, default=27, help="chooses the held-out books")
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory for results")
    parser.add_argument("--answerability", action="store_true", help="write OUT/answerability.json")
    parser.add_argument("--minutes", type=float, default=9, help="stop in time; default %(default)s")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=12, help="for lexical scores; default %(default)s")
    parser.add_argument("--books", type=int, default=0, help="only so many small books, for a trial")
    parser.add_argument("--limit", type=int, default=0, help="only so many questions a book, for a trial")
    return parser.parse_args(arguments)


def chosen_recipes(names: Sequence[str], changes: Sequence[str]) -> list[Recipe]:
    """Return the named recipes with changed fields."""
    if unknown := [name for name in names if name not in RECIPES]:
        raise SystemExit(f"There is no recipe {', '.join(unknown)}. Recipes: {', '.join(RECIPES)}.")
    changed: dict[str, Any] = {}
    for change in changes:
        key, _, value = change.partition("=")
        parsed = json.loads(value)
        changed[key] = tuple(map(tuple, parsed)) if key == "dims" else parsed
    return [replace(RECIPES[name], **changed) for name in names or RECIPES]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a mode."""
    options = parse(arguments)
    clock = Clock(options.minutes)
    recipes = chosen_recipes(options.recipes, options.set)
    options.out.mkdir(parents=True, exist_ok=True)
    with clock.phase("reading"):
        books = load_books(options.directory, options.books, options.limit)
    held = held_out(books, options.held_seed)
    scifact = next((book for book in books if book.name == SCIFACT), None)
    books = [book for book in books if book.name != SCIFACT]
    groups = {
        "shared": [book for book in books if book.evaluation],
        "held": [book for book in books if book.name in held],
    }
    measured = books if options.answerability else [book for group in groups.values() for book in group]
    with clock.phase("lexical scores"):
        add_lexical(measured, options.processes)
    with clock.phase("model and tokens"):
        model = load_model(options.directory / "pack.hmsemb", options.device)
        for book in [*books, *([scifact] if scifact else [])]:
            pairs = zip(book.paths, book.texts, strict=True)
            book.chunks = model.tokens([passage(path, text) for path, text in pairs])
            book.queries = model.tokens([question["q"] for question in book.questions])
    asked = sum(len(book.asked) for book in books)
    say(f"# {len(books)} books, {asked} answered questions, {sum(len(b.chunks) for b in books)} chunks")
    say(f"# held: {' '.join(sorted(held))}")
    for recipe in recipes:
        say(f"# recipe {json.dumps(asdict(recipe))}")
    run = Run(model, dict(model.weights), books, clock, {}, scifact)
    say(f"columns: hit@1/hit@5/MRR dense, then with lexical weight {', '.join(map(str, LEXICAL_WEIGHTS))}")
    with clock.phase("evaluation of the base model"):
        report("base", model, groups, scifact)
    names = {book.name for book in books if options.with_eval or not book.evaluation}
    if options.mode == "select":
        select(run, groups, names - held, recipes)
    else:
        say("# final: the held books are trained on" + (", the shared ones as well" * options.with_eval))
        finish(run, groups, names, recipes[0], options.seeds, options.out)
    if options.answerability:
        with clock.phase("answerability"):
            answerability(run.model, books, options.out / "answerability.json")


if __name__ == "__main__":
    main(sys.argv[1:])
