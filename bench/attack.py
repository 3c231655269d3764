"""Measure how one attacker slows well-behaved clients down: `python -m bench.attack`.

64 clients search one after the other, each from its own loopback address. Meanwhile, one attacker sends the
most expensive requests that the service allows, over many connections. The table compares the latency of the
clients with and without the attacker, in turn, and counts how many of them were refused. The service has a
rate limit, as a public service should.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from bench.common import QUESTIONS, index_sample, new_parser, print_figures, run_server

CLIENTS = 64
ATTACKER = "127.9.9.9"
RATE = 600  # requests per minute and address, as docs/how-to/serve.md recommends for a public service
_WORD = "kinematics "


def _post(path: str, **body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def _text(length: int) -> str:
    return f"{random.random()} {_WORD * length}"[:length]


ATTACKS: dict[str, Callable[[], bytes]] = {
    "long batches": lambda: _post("/v1/batch", queries=[_text(2000) for _ in range(8)], top_k=100),
    "many queries": lambda: _post("/v1/batch", queries=[_text(500) for _ in range(32)], top_k=31),
    "abandoned batches": lambda: _post("/v1/batch", queries=[_text(2000) for _ in range(8)], top_k=100),
    "rendered results": lambda: _post("/v1/search", query=_text(40), top_k=100, html=True, group_by="page"),
    "long selections": lambda: _post("/v1/related", selection=_text(60_000), top_k=100, html=True),
    "mistyped pages": lambda: _get(f"/v1/pages/{random.random()}"),
}
_ABANDONED = "abandoned batches"


@dataclass
class Seen:
    """What a group of clients saw."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def p95(self) -> float:
        """The 95th percentile of the latencies, in milliseconds."""
        return statistics.quantiles(self.seconds, n=20)[-1] * 1e3 if len(self.seconds) > 20 else 0.0


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


async def _client(port: int, address: str, make: Callable[[], bytes], end: float, seen: Seen) -> None:
    while perf_counter() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        except OSError:
            await asyncio.sleep(0.05)
            continue
        try:
            while perf_counter() < end:
                began = perf_counter()
                status = await _exchange(reader, writer, make())
                seen.seconds.append(perf_counter() - began)
                seen.statuses[status] += 1
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def exchange_all(port: int, requests: Iterable[bytes], clients: int = 16) -> Counter[int]:
    """Send all requests over several connections, and count the statuses."""
    left, statuses = iter(requests), Counter[int]()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in left:
            try:
                statuses[await _exchange(reader, writer, request)] += 1
            except (OSError, asyncio.IncompleteReadError):
                statuses[0] += 1
            if writer.is_closing() or reader.at_eof():
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    async def main() -> None:
        await asyncio.gather(*(client() for _ in range(clients)))

    asyncio.run(main())
    return statuses


async def _abandon(port: int, make: Callable[[], bytes], end: float) -> None:
    while perf_counter() < end:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
            writer.write(make())
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.close()
        except OSError:
            await asyncio.sleep(0.05)


async def _search(port: int, seconds: float, clients: int) -> Seen:
    seen, end = Seen(), perf_counter() + seconds
    questions = iter(lambda: _post("/v1/search", query=random.choice(QUESTIONS)), b"")
    await asyncio.gather(
        *(_client(port, f"127.0.1.{number + 1}", questions.__next__, end, seen) for number in range(clients))
    )
    return seen


async def _attack(port: int, name: str, seconds: float, connections: int) -> None:
    end, make = perf_counter() + seconds, ATTACKS[name]
    if name == _ABANDONED:
        await asyncio.gather(*(_abandon(port, make, end) for _ in range(connections)))
    else:
        await asyncio.gather(*(_client(port, ATTACKER, make, end, Seen()) for _ in range(connections)))


@contextmanager
def _attacker(port: int, name: str, seconds: float, connections: int) -> Iterator[None]:
    """Attack from another process, so that the clients of both sides do not share a thread."""
    command = [
        sys.executable,
        "-m",
        "bench.attack",
        "--attack",
        name,
        *map(str, (port, seconds, connections)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.wait(seconds + 60)


def main() -> None:
    """Run the attacks and print a table."""
    parser = new_parser(__doc__, "bench.attack")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each phase (default 8)")
    parser.add_argument("--connections", type=int, default=64, help="of the attacker (default 64)")
    parser.add_argument("--only", choices=ATTACKS, action="append", help="run only this attack")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--attack", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        name, port, seconds, connections = options.attack
        asyncio.run(_attack(int(port), name, float(seconds), int(connections)))
        return
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        index_sample(home)
        with run_server(home, "--rate", str(RATE)) as port:
            asyncio.run(_search(port, 2, CLIENTS))
            for name in options.only or ATTACKS:
                quiet = asyncio.run(_search(port, options.seconds, CLIENTS))
                with _attacker(port, name, options.seconds + 2, options.connections):
                    asyncio.run(asyncio.sleep(1))
                    attacked = asyncio.run(_search(port, options.seconds, CLIENTS))
                figures[f"{name}: p95 quiet, ms"] = round(quiet.p95)
                figures[f"{name}: p95 under attack, ms"] = round(attacked.p95)
                figures[f"{name}: ratio (goal <= 3)"] = round(attacked.p95 / quiet.p95, 2)
                figures[f"{name}: clients refused (goal 0)"] = (
                    sum(attacked.statuses.values()) - attacked.statuses[200]
                )
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
