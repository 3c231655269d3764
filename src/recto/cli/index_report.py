"""What an index run did or would do, for people and for scripts."""

from __future__ import annotations

import json
from typing import Any

from recto.cli.render import in_line
from recto.indexer import IndexReport
from recto.plan import Plan
from recto.previous import PageState
from recto.types import Estimate

_SHOWN_NOTES = 10


def plan_text(plan: Plan, collection: str, estimate: Estimate | None, *, verbose: bool) -> str:
    """Describe a plan."""
    lines = [f"Plan for '{collection}' (nothing is written):", *_changes(plan)]
    if estimate is None:
        lines.append("  Embedding: on this machine, without calls or cost")
    else:
        cost = "price unknown" if estimate.dollars is None else f"about ${estimate.dollars:.4f}"
        lines.append(f"  Embedding: {counted(estimate.calls, 'API call')}, {_minutes(estimate.minutes)} at trial limits, {cost}")
    lines += _modules(plan)
    return "\n".join([*lines, *(_pages(plan) if verbose else ())])


def report_text(report: IndexReport, seconds: float, *, verbose: bool) -> str:
    """Describe a run."""
    plan, info = report.plan, report.info
    if not report.published:
        head = f"Nothing has changed: {counted(len(plan.indexed), 'page')}, {counted(info.chunks, 'chunk')} in '{info.collection}'"
        lines = [f"{head} ({info.generation}), checked in {seconds:.1f}s"]
    else:
        head = f"Indexed {counted(len(plan.indexed), 'page')} as {counted(info.chunks, 'chunk')} into '{info.collection}'"
        lines = [f"{head} ({info.generation}) in {seconds:.1f}s", *_changes(plan), *_modules(plan)]
    return "\n".join([*lines, *(_pages(plan) if verbose else ())])


def report_line(report: IndexReport, seconds: float) -> str:
    """Describe a run in one line, for one that is one of many."""
    changed = [page.path for page in report.plan.pages if page.state in (PageState.NEW, PageState.CHANGED, PageState.GONE)]
    names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return f"{report.info.generation}: {names or 'settings'}; {counted(report.plan.texts, 'passage')} embedded in {seconds:.1f}s"


def plan_json(plan: Plan, collection: str, estimate: Estimate | None) -> str:
    """Return a plan as JSON."""
    data = {"collection": collection, "dry_run": True, **_plan_data(plan)}
    data["estimate"] = estimate and {"api_calls": estimate.calls, "trial_minutes": estimate.minutes, "dollars": estimate.dollars}
    return json.dumps(data, indent=2)


def report_json(report: IndexReport, seconds: float) -> str:
    """Return a report as JSON."""
    info = report.info
    data = {
        "collection": info.collection,
        "generation": info.generation,
        "published": report.published,
        **_plan_data(report.plan),
        "noise": info.noise,
        "duration_s": round(seconds, 3),
        "fingerprint": info.fingerprint.to_dict() if info.fingerprint else None,
    }
    return json.dumps(data, indent=2)


def notes(plan: Plan) -> list[str]:
    """Return what a person should know besides, cut where it is a lot."""
    rest = len(plan.notes) - _SHOWN_NOTES
    return [*plan.notes[:_SHOWN_NOTES], *([f"… and {rest} more; --json has them all."] if rest > 0 else [])]


def counted(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _plan_data(plan: Plan) -> dict[str, Any]:
    return {
        "pages": len(plan.indexed),
        "chunks": plan.chunks,
        "states": {state.value: plan.count(state) for state in PageState},
        "embedded": {"texts": plan.texts, "tokens": plan.tokens},
        "reused": plan.reused,
        "modules": {name: chunks for name, (_, chunks) in plan.modules().items()},
        "module_titles": dict(plan.module_titles()),
        "failed": [str(failure) for failure in plan.failed],
        "notes": list(plan.notes),
    }


def _changes(plan: Plan) -> list[str]:
    states = ", ".join(f"{plan.count(state)} {state}" for state in PageState if plan.count(state))
    return [
        f"  Pages: {states}",
        f"  Passages: {plan.texts} to embed ({plan.tokens:,} tokens), {plan.reused} reused",
    ]


def _modules(plan: Plan) -> list[str]:
    counts = plan.modules()
    titles = [(name, in_line(title if title and title != name else "")) for name, title in plan.module_titles()]
    width = max([len("Module"), *(len(name) for name, _ in titles)])
    rows = (f"  {name:<{width}}  {counts[name][0]:>5}  {counts[name][1]:>6}  {title}".rstrip() for name, title in titles)
    return [f"  {'Module':<{width}}  Pages  Chunks  Title", *rows]


def _pages(plan: Plan) -> list[str]:
    return [f"  {page.state:<9}  {page.chunks:>4}  {page.path}  {page.url}" for page in plan.pages]


def _minutes(minutes: float) -> str:
    return "less than a minute" if minutes < 1 else f"about {counted(round(minutes), 'minute')}"
