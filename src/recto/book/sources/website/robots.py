"""Parse robots.txt (RFC 9309)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

LARGEST = 500 << 10
_TOKEN = re.compile(r"[A-Za-z_-]+")
_MOST_RULES = 5000


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules for one agent; a rule is (allowed, pattern)."""

    rules: tuple[tuple[bool, str], ...] = ()
    delay: float = 0.0
    sitemaps: tuple[str, ...] = ()

    def allows(self, url: str) -> bool:
        """Return whether a URL may be fetched: the longest matching pattern wins, then `allow`."""
        parts = urlsplit(url)
        path = _normalised((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        matching = [(len(pattern), allowed) for allowed, pattern in self.rules if _matches(pattern, path)]
        return max(matching)[1] if matching else True


def parse_robots(text: str, agent: str) -> Robots:
    """Return the rules of an agent, else those for all agents."""
    rules: dict[str, list[tuple[bool, str]]] = {}
    delays: dict[str, float] = {}
    sitemaps: list[str] = []
    named: list[str] = []
    in_rules = False
    for line in text.removeprefix("\ufeff")[:LARGEST].splitlines():
        key, found, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not found:
            continue
        if key == "user-agent":
            token = _TOKEN.match(value)
            named = [*([] if in_rules else named), "*" if value == "*" else token[0].lower() if token else ""]
            in_rules = False
            rules.setdefault(named[-1], [])
        elif key in ("allow", "disallow"):
            in_rules = True
            for name in named:
                if value and len(rules[name]) < _MOST_RULES:
                    rules[name].append((key == "allow", _normalised(value)))
        elif key == "crawl-delay":
            in_rules = True
            delays |= dict.fromkeys(named, _seconds(value))
        elif key == "sitemap":
            sitemaps.append(value)
    name = agent.lower() if agent.lower() in rules else "*"
    return Robots(tuple(rules.get(name, ())), delays.get(name, 0.0), tuple(dict.fromkeys(sitemaps)))


def _seconds(value: str) -> float:
    return float(value) if re.fullmatch(r"\d{1,6}(?:\.\d{1,6})?", value) else 0.0


def _normalised(path: str) -> str:
    """Normalise percent-encoding, so that patterns and paths can be compared."""
    return quote(unquote(path, errors="surrogateescape"), safe="/*$?&=:@!,;~+'()%", errors="surrogateescape")


def _matches(pattern: str, path: str) -> bool:
    """Return whether a pattern matches the start of a path; `*` is any text, `$` the end."""
    ends = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    if not others:
        return not ends or path == first
    place = len(first)
    for part in others[:-1] if ends else others:
        found = path.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return not ends or (path.endswith(others[-1]) and len(path) - len(others[-1]) >= place)
