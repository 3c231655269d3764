"""How a website is read: how much of it, how fast, and how long one waits."""

from __future__ import annotations

from dataclasses import dataclass

from recto import __version__


@dataclass(frozen=True, slots=True)
class CrawlOptions:
    """Seconds and bytes; `timeout` is for a whole request, from connecting to the last byte."""

    max_pages: int = 2000
    max_bytes: int = 4 << 20
    delay: float = 0.5
    max_delay: float = 10.0
    timeout: float = 30.0
    tries: int = 3
    backoff: float = 1.0
    max_wait: float = 60.0
    allow_private: bool = False
    user_agent: str = f"recto/{__version__}"
