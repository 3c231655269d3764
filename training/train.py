"""Fine-tune the built-in model on readers' questions: `python training/train.py DIRECTORY select|final`.

DIRECTORY has `books.json.gz` (written by `training/prepare.py`), `pack.hmsemb` (the installed model pack) and
`recto-1-int8.npz` (the calibration of Recto's int8 graph). If it also has `scifact.json.gz`
(`prepare.py --scifact`), some of its pairs are trained on, and SciFact's nDCG@10 is measured. The program
needs torch, numpy and tokenizers, and nothing of Recto.

- `select` trains the recipe on the training books except a fifth of them (`held`), and measures it on the
  evaluation books (`shared`) and on `held`.
- `final` trains it on all training books with several seeds, averages the weights, measures each seed and the
  average, and writes the trained part of the average to OUT/recto-en-1.npz.

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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from numpy.typing import NDArray
from tokenizers import Tokenizer

Tensor: TypeAlias = Any  # torch is not installed where types are checked
Weights: TypeAlias = dict[str, Tensor]
Floats: TypeAlias = NDArray[np.float32]
Vectors: TypeAlias = tuple[Tensor, Tensor]  # of a book's chunks, and of its questions

MAX_TOKENS = 512
TABLES = frozenset({"word_emb", "pos_emb", "type_emb"})
"""Frozen: the quality is the same, and only the body has to be shipped."""
LEXICAL_WEIGHTS = (0.0, 0.15, 0.2, 0.25, 0.3, 0.4)  # with 0, the ranking is dense
ROUNDINGS = ("none", "weights", "all")
"""The model as it was trained, as Recto's fp32 graph computes it, and as its int8 graph does."""
SCIFACT = "scifact"
FILE = "recto-en-1.npz"
_PADDING = 1
_WIDTH = 8  # batches are padded to a multiple of it, for the fast kernels of attention
_TRAIN_TOKENS = 1 << 15  # padded tokens per forward pass in training
_EMBED_TOKENS = 1 << 17  # and in embedding, which keeps no activations
_CPU_TOKENS = 1 << 12
_MINED = 200  # best chunks among which hard negatives are looked for
_BOOKS_PER_BATCH = 16
_WARM_UP = 10  # steps
_BEGAN = perf_counter()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train; the defaults trained recto-en-1.

    `drop_titles` is the share of chunks without their heading path. `sections` is the share of questions
    whose positive is a random chunk of the expected sections instead of the best one. `anchor` weighs the
    term that keeps vectors near the base model's. `dims` are the Matryoshka dimensions with their
    weights. `scifact` is the share of SciFact's claims. `quantized` rounds while training.
    """

    lr: float = 5e-5
    temperature: float = 0.03
    batch: int = 64
    epochs: int = 4
    negatives: int = 7
    pool: int = 30
    drop_titles: float = 0.1
    sections: float = 0.15
    anchor: float = 0.5
    dims: Sequence[tuple[int, float]] = ((384, 1.0), (256, 0.3), (128, 0.3))
    scifact: float = 0.05
    weight_decay: float = 0.01
    quantized: bool = True
    seed: int = 0


@dataclass(slots=True, eq=False)
class Book:
    """A book's chunks and questions, tokenized; numbers of chunks and questions are their places here."""

    name: str
    evaluation: bool
    passages: list[str]
    texts: list[str]
    questions: list[dict[str, Any]]
    page_of: list[int]  # the number of each chunk's page
    golds: list[list[int]]  # the numbers of each question's expected pages
    chunks: list[list[int]] = field(init=False)
    queries: list[list[int]] = field(init=False)
    lexical: Floats = field(init=False)
    base: Vectors = field(init=False)
    positives: dict[int, int] = field(init=False)
    negatives: dict[int, list[int]] = field(init=False)

    @property
    def asked(self) -> list[int]:
        """The questions with an answer in the chunks: on these a model is measured."""
        return [number for number, question in enumerate(self.questions) if question["pos"]]

    @property
    def trained(self) -> list[int]:
        """The questions to train on; SciFact's test claims are only for measuring."""
        return [number for number in self.asked if self.questions[number].get("split") != "test"]


Example: TypeAlias = tuple[Book, int]  # with the number of a question or of a chunk
Groups: TypeAlias = Mapping[str, Sequence[Book]]


def say(line: str) -> None:
    """Print a line at once; a line that is not a result has the time since the start."""
    print(f"# {perf_counter() - _BEGAN:.0f} s: {line[2:]}" if line.startswith("# ") else line, flush=True)


# The lexical part of the evaluation: its analysis is close to Recto's.
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


@cache
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


def lexical_scores(texts: Sequence[str], queries: Sequence[str]) -> Floats:
    """Return BM25 as a share of the most that a query could reach.

    Words that the book does not have count in the divisor, so a query about something else scores low.
    """
    asked = [query_terms(query) for query in queries]
    vocabulary = set().union(*asked)
    postings: dict[str, list[tuple[int, float]]] = {term: [] for term in vocabulary}
    for number, text in enumerate(texts):
        counts = Counter(term for word in words(text) for term in word_terms(word))
        length = _K1 * (1 - _B + _B * counts.total() / _AVERAGE)
        for term in counts.keys() & vocabulary:
            postings[term].append((number, counts[term] * (_K1 + 1) / (counts[term] + length)))
    sizes = {term: len(entries) for term, entries in postings.items()}
    idf = {term: math.log(1 + (len(texts) - size + 0.5) / (size + 0.5)) for term, size in sizes.items()}
    scores = np.zeros((len(queries), len(texts)), np.float32)
    for row, terms in enumerate(asked):
        for term in sorted(term for term in terms if postings[term]):
            numbers, values = zip(*postings[term], strict=True)
            scores[row, list(numbers)] += idf[term] * np.array(values, np.float32)
        scores[row] /= max((_K1 + 1) * sum(idf[term] for term in terms), 1e-9)
    return scores


def load_books(directory: Path, limit_books: int, limit: int) -> list[Book]:
    """Read the books; the limits are for a quick trial: books of each kind, and questions per book."""
    data = json.loads(gzip.decompress((directory / "books.json.gz").read_bytes()))
    if (extra := directory / "scifact.json.gz").is_file() and not limit_books:
        data[SCIFACT] = json.loads(gzip.decompress(extra.read_bytes()))
    books = [make_book(name, value, limit) for name, value in data.items()]
    if not limit_books:
        return books
    books.sort(key=lambda book: len(book.texts))
    ours, shared = ([book for book in books if book.evaluation is kind] for kind in (False, True))
    return ours[:limit_books] + shared[:1]


def make_book(name: str, data: Mapping[str, Any], limit: int) -> Book:
    """Return a book; with a limit, only so many questions and the chunks around their answers."""
    questions = data["qs"][: limit or None]
    kept = list(range(len(data["text"])))
    if limit:
        needed = {number for question in questions for number in question["pos"] + question["sections"]}
        kept = [number for number in kept if number in needed or number % 8 == 0][: 20 * limit]
        moved = {old: new for new, old in enumerate(kept)}
        questions = [
            {**one, **{key: [moved[old] for old in one[key] if old in moved] for key in ("pos", "sections")}}
            for one in questions
        ]
    paths, texts, sources = ([data[key][number] for number in kept] for key in ("hp", "text", "src"))
    pages = {page: number for number, page in enumerate(dict.fromkeys(sources))}
    page_of = [pages[source] for source in sources]
    # A page without chunks is never found: it has the number of no page.
    golds = [[pages.get(page, -1) for page in question["gold"]] for question in questions]
    passages = [f"{path}\n\n{text}" for path, text in zip(paths, texts, strict=True)]
    return Book(name, bool(data.get("eval")), passages, texts, questions, page_of, golds)


def add_lexical(books: Sequence[Book], processes: int) -> None:
    """Compute the lexical scores of books, in processes that are started before CUDA is."""
    work = [(book.passages, [question["q"] for question in book.questions]) for book in books]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for book, scores in zip(books, pool.starmap(lexical_scores, work, chunksize=1), strict=True):
            book.lexical = scores


@dataclass(slots=True)
class Model:
    """The transformer: its weights are replaced while it is trained."""

    arch: SimpleNamespace
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
        lengths = np.array([len(row) for row in rows])
        count, width = len(rows), int(-(-lengths.max() // _WIDTH) * _WIDTH)
        padded = np.array([[*row, *[_PADDING] * (width - len(row))] for row in rows])
        ids = torch.from_numpy(padded).to(self.device)
        mask = torch.from_numpy((np.arange(width) < lengths[:, None])[:, None, None]).to(self.device)
        weights, start = self.weights, self.arch.position_offset
        x = F.embedding(ids, weights["word_emb"]) + weights["pos_emb"][start : start + width]
        x = self._norm(x + weights["type_emb"][0], "emb_ln")
        shape = (count, width, 3, self.arch.heads, self.arch.hidden // self.arch.heads)
        for layer in (f"l{number}" for number in range(self.arch.layers)):
            parts = self._linear(x, f"{layer}.qkv").view(shape).permute(2, 0, 3, 1, 4).unbind()
            mixed = F.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(1, 2).reshape(x.shape)
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
        return torch.cat(parts)[torch.tensor(order).argsort().to(self.device)]

    def embed(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of rows, without gradients."""
        with torch.no_grad():
            return self.encode(rows, _EMBED_TOKENS)

    def embed_book(self, book: Book) -> Vectors:
        """Return the vectors of a book."""
        return self.embed(book.chunks), self.embed(book.queries)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        weight, bias, size = self.weights[f"{name}.w"], self.weights[f"{name}.b"], self.arch.hidden
        if self.rounding == "none":
            return F.linear(x, weight, bias)
        last = f"l{self.arch.layers - 1}"
        if name == f"{last}.qkv":  # in Recto, the query has its own product
            query = self._rounded(x, f"{last}.q", weight[:size], bias[:size])
            return torch.cat([query, self._rounded(x, f"{last}.kv", weight[size:], bias[size:])], dim=-1)
        return self._rounded(x, name, weight, bias)

    def _rounded(self, x: Tensor, name: str, weight: Tensor, bias: Tensor) -> Tensor:
        """Multiply as Recto's int8 graph does; gradients pass through the rounding."""
        factors, scale, zero = self.calibration[name]
        smooth = weight * factors
        scales = (smooth.detach().abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
        values = straight_through(smooth / scales)
        if self.rounding == "weights":
            return F.linear(x.float() / factors, values * scales, bias)
        inputs = straight_through((x.float() / (factors * scale)).clamp(-zero, 255 - zero))
        return F.linear(inputs, values).float() * (scales[:, 0] * scale) + bias

    def _norm(self, x: Tensor, name: str) -> Tensor:
        parts = self.weights[f"{name}.w"], self.weights[f"{name}.b"]
        return F.layer_norm(x.float(), (self.arch.hidden,), *parts, eps=1e-12)


def load_model(path: Path, device: str) -> Model:
    """Read a model pack (a header in JSON, the tokenizer, then the tensors), and the int8 calibration."""
    weights, calibration = {}, {}
    with path.open("rb") as file:
        if file.read(8) != b"HMSEMB01":
            raise SystemExit(f"{path} is not a model pack.")
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
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
    with np.load(path.with_name("recto-1-int8.npz")) as data:
        for name in (key.removesuffix(".scale") for key in data if key.endswith(".scale")):
            factors = torch.tensor(data[f"{name}.factors"].astype(np.float32), device=device)
            calibration[name] = factors, float(data[f"{name}.scale"]), int(data[f"{name}.zero"])
    return Model(SimpleNamespace(**header["arch"]), tokenizer, weights, calibration, device)


def straight_through(values: Tensor) -> Tensor:
    """Round, with the gradient of the unrounded values."""
    return values + (values.round() - values).detach()


def mine(book: Book, vectors: Vectors, pool: int) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return the best positive of each question, and its hard negatives."""
    scores = vectors[1] @ vectors[0].T
    best = scores.topk(min(_MINED, len(book.chunks)), dim=1).indices.tolist()
    scores, positives, negatives = scores.cpu().numpy(), {}, {}
    for row in book.trained:
        positives[row] = max(book.questions[row]["pos"], key=lambda chunk: float(scores[row, chunk]))
        negatives[row] = [n for n in best[row] if book.page_of[n] not in book.golds[row]][:pool]
    return positives, negatives


def batches(groups: Sequence[Sequence[Example]], size: int, rnd: random.Random) -> list[list[Example]]:
    """Shuffle the questions into batches of several books, with a few questions of each.

    Questions of one book are hard negatives of each other; questions of other books are easy ones.
    """
    few = max(1, size // _BOOKS_PER_BATCH)
    blocks = []
    for group in groups:
        shuffled = rnd.sample(group, len(group))
        blocks += [shuffled[start : start + few] for start in range(0, len(shuffled), few)]
    rnd.shuffle(blocks)
    order = [example for block in blocks for example in block]
    cut = [order[start : start + size] for start in range(0, len(order), size)]
    return [batch for batch in cut if len(batch) > size // 2] or cut


class Trainer:
    """Trains a recipe on some books, each time from the base model."""

    def __init__(self, model: Model, books: Sequence[Book], recipe: Recipe, deadline: float) -> None:
        self.model, self.deadline = model, deadline
        self._base, self._books, self._recipe = model.weights, books, recipe
        for book in books:
            book.base = model.embed_book(book)
        say(f"# embedded {len(books)} books")

    def run(self, seed: int) -> Weights:
        """Return the trained weights; training stops early when the time is over."""
        recipe, model, self._rnd = self._recipe, self.model, random.Random(seed)
        model.weights = {
            key: part.clone().requires_grad_(key not in TABLES) for key, part in self._base.items()
        }
        model.rounding = "all" if recipe.quantized else "none"
        moving = [value for value in model.weights.values() if value.requires_grad]
        optimizer = torch.optim.AdamW(moving, lr=recipe.lr, weight_decay=recipe.weight_decay)
        epochs = [self._epoch() for _ in range(recipe.epochs)]
        steps = [batch for epoch in epochs for batch in epoch]
        middle = sum(map(len, epochs[: recipe.epochs // 2]))
        losses: list[Tensor] = []
        for book in self._books:
            book.positives, book.negatives = mine(book, book.base, recipe.pool)
        for step, batch in enumerate(steps):
            if step and perf_counter() > self.deadline:
                say(f"# seed {seed}: stopped at step {step} of {len(steps)}, because the time is over")
                break
            if step and step == middle:  # other negatives are hard now; the positives stay
                for book in self._books:
                    book.negatives = mine(book, model.embed_book(book), recipe.pool)[1]
            rate = min(1.0, (step + 1) / _WARM_UP) * (1 - (step + 1) / (len(steps) + 1))
            optimizer.param_groups[0]["lr"] = recipe.lr * rate
            loss = self._loss(batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(moving, 1.0)
            optimizer.step()
            losses.append(loss.detach())
        last = torch.stack(losses[-len(epochs[-1]) :]).mean()
        say(f"# seed {seed}: {len(losses)} steps, loss {losses[0]:.3f} -> {last:.3f} (last epoch)")
        model.rounding = "none"
        model.weights = {name: value.detach() for name, value in model.weights.items()}
        return model.weights

    def _epoch(self) -> list[list[Example]]:
        """Return one epoch's batches; SciFact's claims are drawn up to their share."""
        groups = [[(book, row) for row in book.trained] for book in self._books]
        if self._books[-1].name == SCIFACT:
            claims, share = groups.pop(), self._recipe.scifact
            count = round(sum(map(len, groups)) * share / (1 - share))
            groups.append(self._rnd.sample(claims, min(count, len(claims))))
        return batches(groups, self._recipe.batch, self._rnd)

    def _loss(self, batch: Sequence[Example]) -> Tensor:
        """Return the cross entropy of each question's own chunk, and the distance from the base model."""
        recipe, model = self._recipe, self.model
        chosen = [(book, self._positive(book, row)) for book, row in batch]
        for book, row in batch:
            pool = book.negatives[row]
            chosen += [(book, n) for n in self._rnd.sample(pool, min(recipe.negatives, len(pool)))]
        rows = [self._tokens(book, number) for book, number in chosen]
        queries = model.encode([book.queries[row] for book, row in batch], _TRAIN_TOKENS)
        chunks = model.encode(rows, _TRAIN_TOKENS)
        masked = other_answers(batch, chosen).to(model.device)
        labels = torch.arange(len(batch), device=model.device)
        loss = 0.0
        for dim, weight in recipe.dims:
            left, right = (F.normalize(part[:, :dim], dim=-1) for part in (queries, chunks))
            logits = (left @ right.T / recipe.temperature).masked_fill(masked, -math.inf)
            loss = loss + weight * F.cross_entropy(logits, labels)
        base_chunks = torch.stack([book.base[0][number] for book, number in chosen])
        base_queries = torch.stack([book.base[1][row] for book, row in batch])
        away = 2 - (queries * base_queries).sum(1).mean() - (chunks * base_chunks).sum(1).mean()
        return loss / sum(weight for _, weight in recipe.dims) + recipe.anchor * away

    def _positive(self, book: Book, row: int) -> int:
        sections = book.questions[row]["sections"]
        if sections and self._rnd.random() < self._recipe.sections:
            return int(self._rnd.choice(sections))
        return book.positives[row]

    def _tokens(self, book: Book, number: int) -> list[int]:
        """Return a chunk's tokens, for some chunks without the heading path."""
        dropped = self._rnd.random() < self._recipe.drop_titles
        return self.model.tokens([book.texts[number]])[0] if dropped else book.chunks[number]


def other_answers(batch: Sequence[Example], chosen: Sequence[Example]) -> Tensor:
    """Return for each question which chunks, besides its own, are of its expected pages."""
    masked = torch.zeros((len(batch), len(chosen)), dtype=torch.bool)
    for line, (book, row) in enumerate(batch):
        for column, (other, number) in enumerate(chosen):
            if other is book and column != line and book.page_of[number] in book.golds[row]:
                masked[line, column] = True
    return masked


def page_ranks(scores: Tensor, book: Book, rows: Sequence[int]) -> list[list[int]]:
    """Return the ranks of each question's expected pages, from zero; the best chunk ranks its page."""
    page_of = torch.tensor(book.page_of, device=scores.device)
    count = int(page_of.max()) + 1
    best = torch.full((len(rows), count), -math.inf, device=scores.device)
    best = best.scatter_reduce(1, page_of.expand(len(rows), -1), scores, "amax").cpu().numpy()
    return [
        [int((pages > pages[gold]).sum()) if gold >= 0 else count for gold in book.golds[row]]
        for pages, row in zip(best, rows, strict=True)
    ]


def evaluate_book(model: Model, book: Book) -> list[NDArray[np.float64]]:
    """Return hit@1, hit@5 and MRR for each weight; `all` needs every page for a hit, MRR the best one."""
    asked, means = book.asked, []
    cosine = model.embed([book.queries[row] for row in asked]) @ model.embed(book.chunks).T
    lexical = torch.from_numpy(book.lexical[asked]).to(model.device)
    for weight in LEXICAL_WEIGHTS:
        values = []
        for row, ranks in zip(asked, page_ranks(cosine + weight * lexical, book, asked), strict=True):
            decisive = max(ranks) if book.questions[row]["match"] == "all" else min(ranks)
            values.append((decisive < 1, decisive < 5, 1 / (min(ranks) + 1)))
        means.append(np.array(values, np.float64).mean(axis=0))
    return means


def scifact_ndcg(model: Model, book: Book) -> float:
    """Return nDCG@10 on SciFact's test claims, dense."""
    tested = [row for row in book.asked if book.questions[row]["split"] == "test"]
    scores = model.embed([book.queries[row] for row in tested]) @ model.embed(book.chunks).T
    values = []
    for ranks in page_ranks(scores, book, tested):
        gain = sum(1 / math.log2(rank + 2) for rank in ranks if rank < 10)
        values.append(gain / sum(1 / math.log2(rank + 2) for rank in range(min(10, len(ranks)))))
    return float(np.mean(values))


def report(label: str, model: Model, groups: Groups, roundings: Sequence[str] = ROUNDINGS) -> None:
    """Print the means over each group of books, then hit@1 of each book, dense and with weight .25."""
    weighted = LEXICAL_WEIGHTS.index(0.25)
    for rounding in roundings:
        model.rounding = rounding
        for group, books in groups.items():
            title = f"{f'{label} {rounding}':<18} {group:<7}"
            if group == SCIFACT:
                say(f"{title} nDCG@10 {scifact_ndcg(model, books[0]):.4f}")
                continue
            measured = {book.name: evaluate_book(model, book) for book in books}
            means = np.mean(list(measured.values()), axis=0)
            columns = ["/".join(f"{value:.3f}" for value in row).replace("0.", ".") for row in means]
            say(f"{title} {'  '.join(columns)}")
            say("    " + " ".join(f"{n}:{v[0][0]:.2f}/{v[weighted][0]:.2f}" for n, v in measured.items()))
    model.rounding = "none"
    say(f"# measured {label}")


def save_body(model: Model, weights: Weights, out: Path) -> None:
    """Write the trained part as Recto ships it: int8 rows with a scale each, other tensors in float32.

    The factors of the calibration are in the rows, and the factors of attention's output also in its values.
    """
    body = {name: value.detach().float().cpu() for name, value in weights.items() if name not in TABLES}
    size, last = model.arch.hidden, f"l{model.arch.layers - 1}"
    factors = {name: value.cpu() for name, (value, _, _) in model.calibration.items()}
    for layer in range(model.arch.layers):
        for part, divisor in (("w", factors[f"l{layer}.ao"][:, None]), ("b", factors[f"l{layer}.ao"])):
            values = body[f"l{layer}.qkv.{part}"]
            body[f"l{layer}.qkv.{part}"] = torch.cat([values[:-size], values[-size:] / divisor])
    for part in "wb":
        mixed = body.pop(f"{last}.qkv.{part}")
        body[f"{last}.q.{part}"], body[f"{last}.kv.{part}"] = mixed[:size], mixed[size:]
    for name, factor in factors.items():
        smooth = body.pop(f"{name}.w") * factor
        scales = smooth.abs().amax(1) / 127
        body[f"{name}.w8"], body[f"{name}.scales"] = (smooth / scales[:, None]).round().to(torch.int8), scales
    np.savez_compressed(out / FILE, **{name: value.numpy() for name, value in sorted(body.items())})
    say(f"# {out / FILE}: {(out / FILE).stat().st_size / 1e6:.1f} MB")


def finish(trainer: Trainer, groups: Groups, seeds: int, out: Path) -> None:
    """Train with several seeds, and write the average of their weights."""
    several: list[Weights] = []
    for seed in range(seeds):
        began = perf_counter()
        several.append(trainer.run(seed))
        report(f"seed {seed}", trainer.model, groups)
        average = {name: torch.stack([one[name] for one in several]).mean(0) for name in several[0]}
        save_body(trainer.model, average, out)  # after each seed, in case the machine's time ends
        now = perf_counter()
        if seed + 1 < seeds and trainer.deadline - now < 1.1 * (now - began) + 60:
            say(f"# seeds after {seed}: skipped, because the time is over")
            break
    trainer.model.weights = average
    report(f"mean of {len(several)}", trainer.model, groups)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("mode", choices=("select", "final"))
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=JSON", help="change the recipe")
    parser.add_argument("--seeds", type=int, default=3, help="for final; default %(default)s")
    parser.add_argument("--held-seed", type=int, default=27, help="chooses the held-out books")
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory for results")
    parser.add_argument("--minutes", type=float, default=9, help="stop in time; default %(default)s")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=12, help="for lexical scores; default %(default)s")
    parser.add_argument("--books", type=int, default=0, help="only so many small books, for a trial")
    parser.add_argument("--limit", type=int, default=0, help="only so many questions a book, for a trial")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a mode."""
    options = parse(arguments)
    changes = (change.partition("=") for change in options.set)
    recipe = Recipe(**{name: json.loads(value) for name, _, value in changes})
    options.out.mkdir(parents=True, exist_ok=True)
    books = load_books(options.directory, options.books, options.limit)
    ours = [book for book in books if not book.evaluation and book.name != SCIFACT]
    names = sorted(book.name for book in ours)
    drawn = random.Random(options.held_seed).sample(names, max(1, len(names) // 5))
    held, shared = [b for b in ours if b.name in drawn], [b for b in books if b.evaluation]
    add_lexical(shared + held, options.processes)
    model = load_model(options.directory / "pack.hmsemb", options.device)
    for book in books:
        book.chunks = model.tokens(book.passages)
        book.queries = model.tokens([question["q"] for question in book.questions])
    asked, chunks = sum(len(book.asked) for book in books), sum(len(book.chunks) for book in books)
    say(f"# {len(books)} books, {asked} answered questions, {chunks} chunks; held: {' '.join(sorted(drawn))}")
    say(f"# {recipe}")
    say(f"columns: hit@1/hit@5/MRR with lexical weight {', '.join(map(str, LEXICAL_WEIGHTS))}")
    scifact = [book for book in books if book.name == SCIFACT]
    groups = {"shared": shared, "held": held, SCIFACT: scifact}
    groups = {name: group for name, group in groups.items() if group}
    report("base", model, groups, ["none"])
    trained = [book for book in ours if options.mode == "final" or book not in held]
    trained += scifact if recipe.scifact else []
    trainer = Trainer(model, trained, recipe, _BEGAN + 60 * options.minutes)
    if options.mode == "select":
        trainer.run(recipe.seed)
        report("recipe", model, groups)
    else:
        say("# final: the held books are trained on")
        finish(trainer, groups, options.seeds, options.out)


if __name__ == "__main__":
    main()
