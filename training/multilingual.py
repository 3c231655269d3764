"""Train the multilingual model: `python -m training.multilingual DIRECTORY --out OUT`.

DIRECTORY has what `training.vocabulary` wrote (`merges.json`, `corpus-*.json.xz`), `pack.hmsemb` and
`recto-1-int8.npz` (see `train.py`), `recto-en-1.npz`, and `eval.json.gz` (books and questions for measuring).
The student reproduces the vectors of recto-en-1 (the teacher) for English texts and for their translations.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from tokenizers import Tokenizer, models

from training.train import MAX_TOKENS, Model, Tensor, Weights, load_model, say, straight_through
from training.vocabulary import merge_rules

FIRST, SIZE = 50_281, 1 << 16
GROUP = 64  # numbers of a row that share a scale
_LENGTHS = (1, 1, 1, 1, 1, 1, 1, 2, 4, 9)  # neighbouring pairs that are one text
_MOST = 288  # tokens of a text in training
_LONGEST = MAX_TOKENS - 2
_MICRO = 1 << 17  # padded tokens that are computed at once
_WIDTH = 16
_FILE = 15_000_000  # bytes
_MEASURED = frozenset(("ar", "de", "es", "fa", "fr", "hi", "ja", "ko", "pt", "ru", "tr", "ur", "zh"))


def shipped_weights(model: Model, path: Path) -> Weights:
    """Return the weights of a file that ships; recto-en-1 has the tables of the pack, recto-1 its own."""
    weights = {name: value.clone() for name, value in model.weights.items()}
    body = {name: torch.tensor(value, device=model.device) for name, value in np.load(path).items()}
    if "word.q" in body:
        rows, scales = body.pop("word.q").float(), body.pop("word.s").float()
        weights["word_emb"] = (rows.view(SIZE, -1, GROUP) * scales[:, :, None]).view(SIZE, -1)
        weights["pos_emb"] = F.pad(body.pop("positions"), (0, 0, model.arch.position_offset, 0))
        weights["type_emb"] = torch.zeros_like(weights["type_emb"])
    factors = {name: value[0] for name, value in model.calibration.items()}
    hidden, last = model.arch.hidden, f"l{model.arch.layers - 1}"

    def linear(name: str) -> Tensor:
        return body[f"{name}.w8"].float() * body[f"{name}.scales"][:, None] / factors[name]

    for layer in (f"l{number}" for number in range(model.arch.layers)):
        if layer == last:
            weight = torch.cat([linear(f"{layer}.q"), linear(f"{layer}.kv")])
            bias = torch.cat([body[f"{layer}.q.b"], body[f"{layer}.kv.b"]])
        else:
            weight, bias = linear(f"{layer}.qkv"), body[f"{layer}.qkv.b"].clone()
        weight[-hidden:] *= factors[f"{layer}.ao"][:, None]
        bias[-hidden:] *= factors[f"{layer}.ao"]
        weights[f"{layer}.qkv.w"], weights[f"{layer}.qkv.b"] = weight, bias
        for part in ("ao", "f1", "f2"):
            weights[f"{layer}.{part}.w"] = linear(f"{layer}.{part}")
            weights[f"{layer}.{part}.b"] = body[f"{layer}.{part}.b"]
        for part in ("aln.w", "aln.b", "fln.w", "fln.b"):
            weights[f"{layer}.{part}"] = body[f"{layer}.{part}"]
    for part in ("emb_ln.w", "emb_ln.b"):
        weights[part] = body[part]
    return weights


def extended_tokenizer(old: Tokenizer, merges: Path) -> Tokenizer:
    """Return the tokenizer with the new rules."""
    description = json.loads(old.to_str())
    vocabulary, rules = description["model"]["vocab"], description["model"]["merges"]
    token = FIRST
    for left, right in json.loads(merges.read_text()):
        if left + right not in vocabulary:
            vocabulary[left + right] = token
            token += 1
        rules.append([left, right] if isinstance(rules[0], list) else f"{left} {right}")
    return Tokenizer.from_str(json.dumps(description))


class Texts:
    """Tokenized texts, one after the other: neighbouring texts are one slice."""

    def __init__(self, rows: Sequence[np.ndarray], device: str) -> None:
        lengths = np.array([0, *map(len, rows)])
        flat = np.concatenate([*rows, np.zeros(1, np.uint16)]).astype(np.int32)
        self.flat = torch.from_numpy(flat).to(device)
        self.starts = torch.from_numpy(lengths.cumsum()).to(device)


Slices = tuple[Texts, Tensor, Tensor]


class Corpus:
    """Pairs, questions and English passages, tokenized; batches are made on the device."""

    def __init__(
        self, folder: Path, old: Tokenizer, new: Tokenizer, device: str, options: argparse.Namespace
    ) -> None:
        self.device, limit = device, options.limit
        self.passage_share = options.passages
        pairs: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {}
        passages: list[np.ndarray] = []
        known = 0
        for path in sorted(folder.glob("corpus-*.json.xz")):
            content = json.loads(lzma.decompress(path.read_bytes()))
            english = arrays(old, content["english"])
            passages += arrays(old, content["passages"])
            for language, all_pairs in content["pairs"].items():
                found = all_pairs[: limit or None]
                rows = arrays(new, [text for _, text in found])
                kept = (
                    (known + place, english[place], row) for (place, _), row in zip(found, rows, strict=True)
                )
                pairs.setdefault(language, []).extend(kept)
            known += len(english)
            say(f"# {path.name}: {sum(map(len, pairs.values()))} pairs")
        for path in sorted(folder.glob("english*.json*")):
            data = path.read_bytes()
            passages += arrays(old, json.loads(lzma.decompress(data) if path.suffix == ".xz" else data))
        names = [name for name in pairs if not name.startswith("q-")]
        asked = [row for name, rows in pairs.items() if name.startswith("q-") for row in rows]
        every = [row for name in names for row in pairs[name]] + asked
        self.ids = torch.tensor([number for number, _, _ in every], device=device)
        self.english = Texts([row for _, row, _ in every], device)
        self.translated = Texts([row for _, _, row in every], device)
        self.passages = Texts(passages or [np.zeros(1, np.uint16)], device)
        counts = [len(pairs[name]) for name in names]
        sizes = np.array(
            [n**0.4 * (3 if name in _MEASURED else 1) for n, name in zip(counts, names, strict=True)]
        )
        # The last group are the questions, with a sixteenth of a batch.
        shares = [*sizes / sizes.sum(), *([1 / 16] if asked else [])]
        self.shares = torch.tensor(shares, device=device)
        bounds = np.cumsum([0, *counts, *([len(asked)] if asked else [])])
        self.first = torch.tensor(bounds[:-1], device=device)
        self.end = torch.tensor(bounds[1:], device=device)
        self.asked = len(asked)

    def batch(self, size: int) -> tuple[list[Slices], list[Slices], list[Slices], Tensor]:
        """Return slices of English texts, those of them that have to stay, translations, and ids of texts."""
        device = self.device
        group = torch.multinomial(self.shares, size, replacement=True)
        first, end = self.first[group], self.end[group]
        start = first + (torch.rand(size, device=device) * (end - first)).long()
        lengths = torch.tensor(_LENGTHS, device=device)[torch.randint(len(_LENGTHS), (size,), device=device)]
        if self.asked:
            lengths[group == len(self.shares) - 1] = 1
        stop = torch.minimum(start + lengths, end)
        for _ in range(3):
            long = (self.english.starts[stop] - self.english.starts[start] > _MOST) | (
                self.translated.starts[stop] - self.translated.starts[start] > _MOST
            )
            stop = torch.where(long, start + (stop - start) // 2, stop).maximum(start + 1)
        count = len(self.passages.starts) - 1
        passage = torch.randint(count, (round(size * self.passage_share),), device=device)
        ids = self.ids[start] * 16 + (stop - start)
        passages, few = (self.passages, passage, passage + 1), size // 4
        english = [(self.english, start, stop), passages]
        own = [(self.english, start[:few], stop[:few]), passages]
        return english, own, [(self.translated, start, stop)], ids


def padded(slices: Sequence[Slices], most: int = _MOST) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return padded groups of texts of similar length: their places, tokens and lengths."""
    groups, before = [], 0
    for texts, first, stop in slices:
        start = texts.starts[first]
        lengths = (texts.starts[stop] - start).clamp(max=most)
        order = lengths.argsort()
        sizes = (lengths[order] + 2).tolist()
        low = 0
        while low < len(sizes):
            high = low + 1
            while high < len(sizes) and (high + 1 - low) * sizes[high] <= _MICRO:
                high += 1
            places = order[low:high]
            width = -(-sizes[high - 1] // _WIDTH) * _WIDTH
            column = torch.arange(width, device=start.device)
            length = lengths[places][:, None]
            # <s>, the tokens, </s>, padding
            ids = texts.flat[(start[places][:, None] + column - 1).clamp(0, len(texts.flat) - 1)].long()
            ids = torch.where(column == 0, 0, ids)
            ids = torch.where(column > length, torch.where(column == length + 1, 2, 1), ids)
            groups.append((places + before, ids, length[:, 0] + 2))
            low = high
        before += len(sizes)
    return groups


def arrays(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the tokens of texts, without special ones."""
    return [np.array(row, np.uint16) for row in encoded(tokenizer, texts)]


def encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of texts, without special ones."""
    found: list[list[int]] = []
    for start in range(0, len(texts), 20_000):
        some = tokenizer.encode_batch_fast(list(texts[start : start + 20_000]), add_special_tokens=False)
        found.extend(one.ids for one in some)
    return found


def lowered(model: Model) -> Weights:
    """Return the weights in the precision of training; rounded as Recto's graphs have them, if asked for."""
    kind = torch.float32 if model.device == "cpu" else torch.bfloat16
    found, weights = {}, dict(model.weights)
    if model.rounding != "none":
        for name, factors in rounding_factors(model).items():
            smooth = weights[f"{name}.w"] * factors
            scales = (smooth.detach().abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
            weights[f"{name}.w"] = straight_through(smooth / scales) * scales / factors
    for name, value in weights.items():
        found[name] = value if name == "word_emb" else value.to(kind)
    return found


def rounding_factors(model: Model) -> Weights:
    """Return the factors of the inputs of each linear layer; in the last, query and keys have their own."""
    factors = {name: value[0] for name, value in model.calibration.items()}
    last, hidden = f"l{model.arch.layers - 1}", model.arch.hidden
    query, rest = factors.pop(f"{last}.q"), factors.pop(f"{last}.kv")
    factors[f"{last}.qkv"] = torch.cat([query.expand(hidden, -1), rest.expand(2 * hidden, -1)])
    return factors


def vectors(model: Model, groups: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return the normalised vectors of padded groups, in the order of their places."""
    weights = lowered(model)
    parts = [forward(model, weights, ids, lengths) for _, ids, lengths in groups]
    return torch.cat(parts)[torch.cat([group[0] for group in groups]).argsort()]


def forward(model: Model, weights: Weights, ids: Tensor, lengths: Tensor) -> Tensor:
    """Compute the vectors of padded rows."""
    arch = model.arch
    count, width = ids.shape
    mask = (torch.arange(width, device=ids.device) < lengths[:, None])[:, None, None]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (arch.hidden,), weights[f"{name}.w"], weights[f"{name}.b"], eps=1e-12)

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.w"], weights[f"{name}.b"])

    start = arch.position_offset
    x = F.embedding(ids, weights["word_emb"]).to(weights["pos_emb"].dtype)
    x = norm(x + weights["pos_emb"][start : start + width] + weights["type_emb"][0], "emb_ln")
    shape = (count, width, 3, arch.heads, arch.hidden // arch.heads)
    for layer in (f"l{number}" for number in range(arch.layers)):
        parts = linear(x, f"{layer}.qkv").view(shape).permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(1, 2).reshape(x.shape)
        x = norm(x + linear(mixed, f"{layer}.ao"), f"{layer}.aln")
        x = norm(x + linear(F.gelu(linear(x, f"{layer}.f1")), f"{layer}.f2"), f"{layer}.fln")
    return F.normalize(x[:, 0].float(), dim=-1)


def rounded_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows as int8 with a scale for each group of numbers."""
    groups = table.view(len(table), -1, GROUP)
    scales = groups.abs().amax(2).clamp(min=1e-9) / 127
    return (groups / scales[:, :, None]).round().clamp(-127, 127).to(torch.int8), scales


def embed_texts(model: Model, texts: Sequence[str]) -> Tensor:
    """Return the vectors of texts."""
    rows = Texts([row[:_LONGEST] for row in arrays(model.tokenizer, texts)], model.device)
    places = torch.arange(len(texts), device=model.device)
    with torch.no_grad():
        return vectors(model, padded([(rows, places, places + 1)], _LONGEST))


def measure(label: str, model: Model, path: Path, kept: dict[str, Tensor], only: Sequence[str] = ()) -> None:
    """Print page hit@1, hit@5 and MRR of every set, dense; `kept` has the teacher's vectors of the books."""
    books = json.loads(gzip.decompress(path.read_bytes()))
    made: dict[str, Tensor] = {}
    found: dict[str, np.ndarray] = {}
    for name, book in books.items():
        on = book.get("on", name)
        if only and on not in only:
            continue
        source = books[on]
        if on not in made:
            made[on] = embed_texts(
                model, [f"{h}\n\n{t}" for h, t in zip(source["hp"], source["text"], strict=True)]
            )
            if on not in kept:
                kept[on] = made[on]
            cosine = float((made[on] * kept[on]).sum(1).mean())
            if not on.startswith("fa-"):
                say(f"#   {on}: cosine with the teacher {cosine:.4f}")
        asked = [question for question in book["qs"] if question["pos"]]
        scores = embed_texts(model, [question["q"] for question in asked]) @ made[on].T
        pages = {page: number for number, page in enumerate(dict.fromkeys(source["src"]))}
        of = torch.tensor([pages[page] for page in source["src"]], device=model.device)
        best = torch.full((len(asked), len(pages)), -9.0, device=model.device)
        best = best.scatter_reduce(1, of.expand(len(asked), -1), scores, "amax").cpu().numpy()
        values = []
        for row, question in zip(best, asked, strict=True):
            ranks = [
                int((row > row[pages[page]]).sum()) if page in pages else 999 for page in question["gold"]
            ]
            decisive = max(ranks) if question["match"] == "all" else min(ranks)
            values.append((decisive < 1, decisive < 5, 1 / (min(ranks) + 1)))
        found[name] = np.array(values, float).mean(0)

    def text(value: Any) -> str:
        return "/".join(f"{number:.3f}" for number in value)

    for title, names in (
        ("English", [name for name in found if not name.startswith(("fa-", "x-"))]),
        ("native", [name for name in found if name.startswith("fa-")]),
        ("English book", [name for name in found if name.startswith("x-")]),
    ):
        if names:
            say(f"{label} {title}: {text(np.mean([found[name] for name in names], 0))}")
            say("   " + "  ".join(f"{name} {text(found[name])}" for name in names))


def train(options: argparse.Namespace) -> None:
    """Train, measure and save."""
    folder, device = options.directory, options.device
    teacher = load_model(folder / "pack.hmsemb", device)
    old = teacher.tokenizer
    new = extended_tokenizer(old, folder / "merges.json")
    corpus = Corpus(folder, old, new, device, options)
    teacher.weights = shipped_weights(teacher, folder / "recto-en-1.npz")
    table = teacher.weights["word_emb"]
    grown = torch.zeros(SIZE, teacher.arch.hidden, device=device)
    grown[: len(table)] = table
    fill_rows(grown, old, new)
    kept: dict[str, Tensor] = {}
    if options.measure_teacher:
        measure("teacher", teacher, folder / "eval.json.gz", kept)
    if options.minutes:
        weights = {name: value.clone() for name, value in teacher.weights.items()} | {
            "word_emb": grown.clone()
        }
        if options.start and options.start.is_file():
            weights = shipped_weights(teacher, options.start)
        elif options.start:
            load(weights, options.start)
        student = Model(teacher.arch, new, weights, teacher.calibration, device)
        run(student, teacher, corpus, options)
        save(student, options.out)
        student.rounding = "weights"
        measure("student", student, folder / "eval.json.gz", kept)


def fill_rows(grown: Tensor, old: Tokenizer, new: Tokenizer) -> None:
    """Start each new row with the mean of the rows of its old tokens."""
    description = json.loads(old.to_str())
    whole = Tokenizer(models.BPE(description["model"]["vocab"], merge_rules(description)))
    added = [(name, token) for name, token in new.get_vocab().items() if token >= FIRST]
    for (_, token), encoding in zip(added, whole.encode_batch([name for name, _ in added]), strict=True):
        grown[token] = grown[encoding.ids].mean(0)


def run(student: Model, teacher: Model, corpus: Corpus, options: argparse.Namespace) -> None:
    """Train for the minutes of the options."""
    device, weights = student.device, student.weights
    body = [name for name in weights if name not in ("pos_emb", "type_emb", "word_emb")]
    trained = [([weights[name] for name in body], options.body_lr)]
    if options.lr:
        trained.append(([weights["word_emb"]], options.lr))
    for parameters, _ in trained:
        for parameter in parameters:
            parameter.requires_grad_()
    groups: list[dict[str, Any]] = [
        {"params": parameters, "lr": rate, "base": rate} for parameters, rate in trained
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0, betas=(0.9, 0.98), fused=device != "cpu")
    began, step, seen = perf_counter(), 0, []
    end = began + 60 * options.minutes
    numbers = torch.arange(options.batch, device=device)
    other = ~torch.eye(options.batch, dtype=torch.bool, device=device)
    while (now := perf_counter()) < end:
        done = (now - began) / (end - began)
        student.rounding = "weights" if done >= options.rounded else "none"
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * min(1.0, (step + 1) / 100) * (1 - (1 - options.last) * done)
        english, own, translated, ids = corpus.batch(options.batch)
        with torch.no_grad():
            target = vectors(teacher, padded(english))
        mine, count = vectors(student, padded(translated)), options.batch
        cosine = (mine * target[:count]).sum(1)
        twins = (ids[:, None] == ids[None]) & other
        scores = (mine @ target[:count].T / 0.05).masked_fill(twins, -9e9)
        stayed = (vectors(student, padded(own)) * torch.cat([target[: count // 4], target[count:]])).sum(1)
        loss = 4 * (1 - cosine).mean() + 0.3 * F.cross_entropy(scores, numbers)
        loss = loss + options.english * (1 - stayed).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for parameters, _ in trained:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        seen.append(torch.stack([cosine.detach().mean(), stayed.detach().mean()]))
        if step % options.report == 0:
            values = torch.stack(seen).mean(0).tolist()
            seconds = perf_counter() - began
            say(f"# step {step}, {seconds:.0f} s: cosine {values[0]:.4f}, English {values[1]:.4f}")
            seen = []
    for value in weights.values():
        value.requires_grad_(requires_grad=False)
    torch.save(dict(weights), options.out / "checkpoint.pt")
    rows, scales = rounded_rows(weights["word_emb"])
    weights["word_emb"] = (rows.float() * scales[:, :, None]).view(SIZE, -1)
    say(f"# {step} steps of {options.batch} translations")


def save(student: Model, out: Path) -> None:
    """Write the model as one archive in parts below 16 MB: rows as int8, the rest in half precision."""
    rows, scales = rounded_rows(student.weights["word_emb"])
    content = {"rows": rows.view(SIZE, -1).cpu().numpy(), "scales": scales.half().cpu().numpy()}
    content |= {n: v.half().cpu().numpy() for n, v in student.weights.items() if n != "word_emb"}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **content)
    data = buffer.getvalue()
    for number, start in enumerate(range(0, len(data), _FILE)):
        (out / f"recto-1-{number}.part").write_bytes(data[start : start + _FILE])
    say(f"# saved {len(data) / 1e6:.1f} MB")


def load(weights: Weights, start: Path) -> None:
    """Continue from what `save` wrote in a folder."""
    data = b"".join(part.read_bytes() for part in sorted(start.glob("*.part")))
    device = weights["word_emb"].device
    content = {
        name: torch.from_numpy(value).to(device).float() for name, value in np.load(io.BytesIO(data)).items()
    }
    rows, scales = content.pop("rows"), content.pop("scales")
    weights["word_emb"] = (rows.view(SIZE, -1, GROUP) * scales[:, :, None]).view(SIZE, -1)
    weights.update(content)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory for results")
    parser.add_argument(
        "--start", type=Path, help="continue from the parts in this folder, or a file that ships"
    )
    parser.add_argument("--minutes", type=float, default=6, help="of training, each; default %(default)s")
    parser.add_argument(
        "--lr", type=float, default=1e-3, help="of the rows, 0 keeps them; default %(default)s"
    )
    parser.add_argument("--body-lr", type=float, default=1e-4, help="of the body; default %(default)s")
    parser.add_argument("--english", type=float, default=12.0, help="weight of English; default %(default)s")
    parser.add_argument(
        "--passages", type=float, default=0.25, help="English passages a translation; default %(default)s"
    )
    parser.add_argument("--batch", type=int, default=1024, help="translations of a step; default %(default)s")
    parser.add_argument("--measure-teacher", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--last", type=float, default=0.0, help="share of the rates at the end; default 0")
    parser.add_argument("--rounded", type=float, default=2.0, help="round from this share of the time on")
    parser.add_argument("--limit", type=int, default=0, help="only so many pairs of a language, for a trial")
    parser.add_argument("--report", type=int, default=500, help="steps between reports; default %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    chosen = parse(None)
    chosen.out.mkdir(parents=True, exist_ok=True)
    train(chosen)
