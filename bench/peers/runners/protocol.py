"""The runner's protocol: one JSON object per line; only the system's own calls are timed."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.peers.runners.system import BookLoader, System

Answer = dict[str, Any]

_DIRECTORIES = re.compile(r"(?<!\S)/(?:[^\s/]+/)+")


def main(system: System) -> None:
    """Answer one query and exit (`cold`), or execute commands until told to exit."""
    if sys.argv[1] == "cold":
        cold(system, *sys.argv[2:])
        return
    serve(system)


def cold(system: System, folder: str, home: str, threads: str, top: str, question: str) -> None:
    """Answer one query in a fresh process."""
    from bench.peers.runners.embedding import model

    system.load()
    system.open(Path(folder), model(Path(home), int(threads), once=True))
    found = system.found(system.ask(question, int(top), None))
    print(json.dumps([id for id, _ in found]), flush=True)
    os._exit(0)  # the time that a library takes to shut down is not measured


def serve(system: System) -> None:
    """Execute commands, one per line; what a library prints goes to stderr."""
    handler = CommandHandler(system)
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        for line in sys.stdin:
            order = json.loads(line)
            if order["do"] == "exit":
                break
            try:
                answer = handler.answer(order)
            except Exception as error:  # noqa: BLE001 - it is shown in the table
                answer = {"error": reason(error)}
            print(json.dumps(answer), file=out, flush=True)
    os._exit(0)


def reason(error: BaseException) -> str:
    """Describe the root cause of an error, without the directories of this machine."""
    while error.__cause__:
        error = error.__cause__
    return f"{type(error).__name__}: {_DIRECTORIES.sub('', str(error))[:300]}"


class CommandHandler:
    """Executes commands, and keeps the system between them."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._embedding: Any = None

    def answer(self, order: dict[str, Any]) -> Answer:
        """Execute a command."""
        done: Answer = getattr(self, f"_{order.pop('do')}")(**order)
        return done

    def _load(self) -> Answer:
        return timed(self._system.load)

    def _embed(self, how: str, folder: str, home: str, threads: int) -> Answer:
        from bench.peers.runners.embedding import chosen

        self._embedding = chosen(how, folder, home, threads)
        if how == "model" and self._embedding.embedder is not None:
            self._embedding.embedder.warm_up()
        return {}

    def _index(self, pieces: str, folder: str) -> Answer:
        from bench.peers.runners.system import pieces as read_pieces

        given = list(read_pieces(Path(pieces)))
        self._system.load()
        spent = self._embedding.wall
        answer = timed(lambda: self._system.index(given, Path(folder), self._embedding))
        return {**answer, "embedding": self._embedding.wall - spent, "pieces": len(given)}

    def _read(self, docs: str, folder: str) -> Answer:
        self._system.load()
        return {"pieces": self._reader().read(Path(docs), Path(folder), self._embedding)}

    def _open(self, folder: str) -> Answer:
        self._system.load()
        return timed(lambda: self._system.open(Path(folder), self._embedding))

    def _ask(self, questions: list[str], top: int, module: str | None = None, warm: int = 0) -> Answer:
        """Run all queries; the first `warm` ones run once more before, untimed."""
        for question in questions[:warm]:
            self._system.ask(question, top, module)
        walls, cpus, embeddings, found = [], [], [], []
        for question in questions:
            spent = self._embedding.wall
            wall, cpu = perf_counter(), process_time()
            answer = self._system.ask(question, top, module)
            cpus.append(process_time() - cpu)
            walls.append(perf_counter() - wall)
            embeddings.append(self._embedding.wall - spent)
            found.append(self._system.found(answer))
        return {"wall": walls, "cpu": cpus, "embedding": embeddings, "found": found}

    def _texts(self, questions: list[str], top: int) -> Answer:
        """Return the texts that a language model gets for each question."""
        reader = self._reader()
        return {"texts": [reader.texts(self._system.ask(question, top, None)) for question in questions]}

    def _memory(self) -> Answer:
        return memory()

    def _reader(self) -> BookLoader:
        if not isinstance(self._system, BookLoader):
            raise NotImplementedError("the system has no loader and no splitter")
        return self._system


def timed(work: Callable[[], object]) -> Answer:
    """Return the wall and CPU seconds of some work, including child processes."""
    cpu, wall = _cpu(), perf_counter()
    work()
    return {"wall": perf_counter() - wall, "cpu": _cpu() - cpu}


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def memory() -> Answer:
    """Return this process's memory in bytes: all resident pages, and anonymous pages only."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return {"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "private": None}
    fields = {
        words[0]: int(words[1]) * 1024
        for words in map(str.split, lines)
        if len(words) == 3 and words[2] == "kB"
    }
    return {"rss": fields["Rss:"], "private": fields["Anonymous:"]}
