"""Train the context prompt of recto-en-1: `python -m training.context_prompt DIRECTORY select|final`.

DIRECTORY is that of `training/train.py`, with `recto-en-1.npz` beside the pack. The prompt is 16 vectors of
tokens before a query. The model and the vectors of chunks stay as they are, so no index has to be made again.

The loss is contrastive: a chunk that holds the answer against the other chunks of its page and the best ones
of the book. A second term keeps the vector of a query near the one without a prompt.

- `select` trains on the training books except a fifth of them (`held`).
- `final` trains on all of them, and writes OUT/recto-en-1-context.npz.

Both measure queries with and without the prompt, on `shared` and `held`.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from training.train import FILE, SCIFACT, Book, Model, Tensor, add_lexical, load_books, load_model, say

OUT = "recto-en-1-context.npz"
START = "Find the passage that answers this question : "
TOKENS, GROUP = 16, 64
BATCH, EPOCHS, WARM_UP, RATE = 64, 6, 20, 1e-2
TEMPERATURE, ANCHOR = 0.05, 2.0
BEST, OF_PAGE, ANSWERS = 64, 120, 8  # the most chunks of each kind beside a question
MASKED = -1e4
LEXICAL_WEIGHT = 0.25  # as in Recto


@dataclass(frozen=True, slots=True)
class Examples:
    """Questions with their vectors, and their chunks: vectors, lexical scores, and which of them answer."""

    rows: list[list[int]]
    queries: Tensor
    chunks: Tensor
    lexical: Tensor
    answers: Tensor

    def loss(self, vectors: Tensor, numbers: Tensor) -> Tensor:
        """Return the loss of the vectors that a prompt gives to some of the questions."""
        scores = torch.einsum("qd,qcd->qc", vectors, self.chunks[numbers].float()) + self.lexical[numbers]
        scores = scores / TEMPERATURE
        right = scores.masked_fill(~self.answers[numbers], MASKED)
        distance = 1 - (vectors * self.queries[numbers]).sum(1)
        return (scores.logsumexp(1) - right.logsumexp(1)).mean() + ANCHOR * distance.mean()


def scores_of(book: Book, queries: Tensor) -> Tensor:
    """Return the hybrid score of each chunk for each question."""
    lexical = torch.tensor(book.lexical, device=queries.device)
    return queries @ book.base[0].T + LEXICAL_WEIGHT * lexical


def chunks_of_pages(book: Book) -> dict[int, list[int]]:
    """Return the chunks of each page."""
    pages: dict[int, list[int]] = defaultdict(list)
    for chunk, page in enumerate(book.page_of):
        pages[page].append(chunk)
    return pages


def candidates(book: Book) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield each question with chunks that answer it and chunks that do not."""
    pages = chunks_of_pages(book)
    best = scores_of(book, book.base[1]).topk(min(BEST, len(book.chunks)), dim=1).indices.tolist()
    for number in book.asked:
        answers = book.questions[number]["pos"]
        near = [chunk for page in set(book.golds[number]) for chunk in pages[page] if chunk not in answers]
        near = near if len(near) <= OF_PAGE else random.Random(number).sample(near, OF_PAGE)
        others = dict.fromkeys((*near, *(chunk for chunk in best[number] if chunk not in answers)))
        yield number, answers[:ANSWERS], list(others)


def examples(books: Sequence[Book], device: str) -> Examples:
    """Return the questions of books, padded to the same number of chunks."""
    found = [(book, *row) for book in books for row in candidates(book)]
    count, width = len(found), max(len(right) + len(wrong) for _, _, right, wrong in found)
    dim = found[0][0].base[0].shape[1]
    chunks = torch.zeros(count, width, dim, dtype=torch.float16, device=device)
    lexical = torch.full((count, width), MASKED, device=device)
    answers = torch.zeros(count, width, dtype=torch.bool, device=device)
    for row, (book, number, right, wrong) in enumerate(found):
        places = right + wrong
        chunks[row, : len(places)] = book.base[0][places].half()
        lexical[row, : len(places)] = torch.tensor(
            LEXICAL_WEIGHT * book.lexical[number, places], device=device
        )
        answers[row, : len(right)] = True
    queries = torch.stack([book.base[1][number] for book, number, _, _ in found])
    return Examples([book.queries[number] for book, number, _, _ in found], queries, chunks, lexical, answers)


def with_prompt(rows: Sequence[Sequence[int]], first: int) -> list[list[int]]:
    """Put the tokens of the prompt after the start token."""
    return [[row[0], *range(first, first + TOKENS), *row[1:]] for row in rows]


def train(model: Model, data: Examples, epochs: int, seed: int = 0) -> Tensor:
    """Return the prompt."""
    table, rnd = model.weights["word_emb"], random.Random(seed)
    rows = with_prompt(data.rows, len(table))
    ids = model.tokenizer.encode(START * TOKENS, add_special_tokens=False).ids[:TOKENS]
    prompt = table[ids].clone().requires_grad_()
    optimizer = torch.optim.AdamW([prompt], lr=RATE, weight_decay=0.0)
    size = min(BATCH, len(rows))
    starts = range(0, len(rows) - size + 1, size)
    step, steps = 0, epochs * len(starts)
    for _ in range(epochs):
        order = rnd.sample(range(len(rows)), len(rows))
        for start in starts:
            numbers = order[start : start + size]
            rate = RATE * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            model.weights["word_emb"] = torch.cat([table, prompt])
            vectors = model.encode([rows[number] for number in numbers], 1 << 15)
            loss = data.loss(vectors, torch.tensor(numbers, device=table.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    model.weights["word_emb"] = table
    return prompt.detach()


def report(label: str, model: Model, groups: dict[str, list[Book]], prompt: Tensor | None) -> None:
    """Print how often the first chunk is on an expected page, and how well the answer itself is ranked."""
    table = model.weights["word_emb"]
    if prompt is not None:
        model.weights["word_emb"] = torch.cat([table, prompt])
    for name, books in groups.items():
        means = []
        for book in books:
            rows = book.queries if prompt is None else with_prompt(book.queries, len(table))
            scores, pages, found = scores_of(book, model.embed(rows)), chunks_of_pages(book), []
            for number in book.asked:
                row = scores[number]
                best = row[book.questions[number]["pos"]].max()
                rank = int((row > best).sum()) + 1
                own = [chunk for page in set(book.golds[number]) for chunk in pages[page]]
                on_page = int((row[own] > best).sum()) + 1
                hit = book.page_of[int(row.argmax())] in book.golds[number]
                found.append((hit, 1 / rank, rank <= 10, 1 / on_page))
            means.append(np.mean(found, axis=0))
        values = " ".join(f"{value:.4f}" for value in np.mean(means, axis=0))
        say(f"{label} {name}: page of the first chunk, answer MRR, answer@10, MRR on its page: {values}")
    model.weights["word_emb"] = table


def load_body(model: Model, path: Path) -> None:
    """Replace the body of a model by the one in a file: the inverse of `save_body` in `train.py`."""
    with np.load(path) as data:
        body = {name: torch.tensor(data[name]) for name in data}
    factors = {name: value.cpu() for name, (value, _, _) in model.calibration.items()}
    for name, factor in factors.items():
        body[f"{name}.w"] = body.pop(f"{name}.w8") * body.pop(f"{name}.scales")[:, None] / factor
    size, last = model.arch.hidden, f"l{model.arch.layers - 1}"
    for part in "wb":
        body[f"{last}.qkv.{part}"] = torch.cat([body.pop(f"{last}.{one}.{part}") for one in ("q", "kv")])
    for layer in range(model.arch.layers):
        factor = factors[f"l{layer}.ao"]
        for part, own in (("w", factor[:, None]), ("b", factor)):
            values = body[f"l{layer}.qkv.{part}"]
            body[f"l{layer}.qkv.{part}"] = torch.cat([values[:-size], values[-size:] * own])
    model.weights |= {name: value.to(model.device) for name, value in body.items()}


def save(prompt: Tensor, path: Path) -> None:
    """Write the rows as the pack has those of words: int8, with a scale for each group of 64 numbers."""
    groups = prompt.float().cpu().numpy().reshape(TOKENS, -1, GROUP)
    scales = (np.abs(groups).max(2) / 127).astype(np.float32)
    rows = np.rint(groups / scales[:, :, None]).astype(np.int8).reshape(TOKENS, -1)
    np.savez_compressed(path, **{"word.q": rows, "word.s": scales})
    say(f"# {path}: {path.stat().st_size} bytes")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("mode", choices=("select", "final"))
    parser.add_argument("--held-seed", type=int, default=27, help="chooses the held-out books")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="default %(default)s")
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory for results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=12, help="for lexical scores; default %(default)s")
    parser.add_argument("--books", type=int, default=0, help="only so many small books, for a trial")
    parser.add_argument("--limit", type=int, default=0, help="only so many questions a book, for a trial")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    books = [book for book in load_books(options.directory, options.books, options.limit) if book.asked]
    books = [book for book in books if book.name != SCIFACT]
    names = sorted(book.name for book in books if not book.evaluation)
    drawn = random.Random(options.held_seed).sample(names, max(1, len(names) // 5))
    groups = {
        "shared": [book for book in books if book.evaluation],
        "held": [book for book in books if book.name in drawn],
    }
    add_lexical(books, options.processes)
    model = load_model(options.directory / "pack.hmsemb", options.device)
    load_body(model, options.directory / FILE)
    model.rounding = "all"
    for book in books:
        book.chunks = model.tokens(book.passages)
        book.queries = model.tokens([question["q"] for question in book.questions])
        book.base = model.embed_book(book)
    say(f"# {len(books)} books; held: {' '.join(sorted(drawn))}")
    report("without", model, groups, None)
    trained = [book for book in books if not book.evaluation]
    if options.mode == "select":
        trained = [book for book in trained if book.name not in drawn]
    prompt = train(model, examples(trained, options.device), options.epochs)
    report("with", model, groups, prompt)
    if options.mode == "final":
        save(prompt, options.out / OUT)


if __name__ == "__main__":
    main()
