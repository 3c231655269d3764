"""Serve the judging page: on loopback, for one suite, with a token that is made at each start."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Lock
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from recto.errors import InvalidArgument, RectoError
from recto.evaluation.pooling import GRADES, Pool, PooledQuestion, grade_of, record, restore, summarize
from recto.evaluation.suites import Expectation, Suite, load_suite
from recto.plugins import Notify
from recto.search.display import chunk_matches, pick, words_to_match
from recto.server.auth import ApiKeys
from recto.server.http import ServeOptions
from recto.server.http.app import WEB, middleware
from recto.server.http.errors import STATUSES, framework_refusal, loads
from recto.server.http.monitoring import Metrics
from recto.server.http.views import render_markdown
from recto.server.limits import Refusal, respond
from recto.server.listening import base_url, listen, server_config

_HOST = "127.0.0.1"
_DRAIN_SECONDS = 2.0


class Judging:
    """Shows a pool, and records grades in the suite's file, which is read anew for each answer."""

    def __init__(self, path: Path, pool: Pool) -> None:
        self._path = path
        self._pool = pool
        self._lock = Lock()
        self._undo: list[tuple[int, int, dict[str, Any]]] = []

    def overview(self) -> dict[str, Any]:
        """Return the questions with their numbers of candidates and of judged ones."""
        suite = load_suite(self._path)
        expectations = _by_key(suite)
        questions = []
        for one in self._pool.questions:
            expectation = expectations.get(one.expectation.key, one.expectation)
            judged = sum(grade_of(expectation, each) is not None for each in one.candidates)
            questions.append({"query": one.expectation.query, "total": len(one.candidates), "judged": judged})
        return {"name": suite.name, "file": str(self._path), "questions": questions}

    def question(self, number: int) -> dict[str, Any]:
        """Return a question with its candidates; nothing says which configuration found them."""
        question = self._question(number)
        expectation = _by_key(load_suite(self._path)).get(question.expectation.key, question.expectation)
        lexical = self._pool.results[0][0].retriever.analyze(expectation.query)
        words = words_to_match(expectation.query, lexical)
        return {
            "query": expectation.query,
            "candidates": [
                pick(one.chunks[0].to_dict(), ("section", "headings", "module_title", "url"))
                | {
                    "html": "".join(render_markdown(chunk.text) for chunk in one.chunks),
                    "matches": sorted({word for chunk in one.chunks for word in chunk_matches(chunk, words)}),
                    "grade": grade_of(expectation, one),
                }
                for one in question.candidates
            ],
        }

    def grade(self, number: int, candidate: int, grade: int) -> dict[str, Any]:
        """Record a grade."""
        question = self._question(number)
        if not 0 <= candidate < len(question.candidates) or grade not in GRADES:
            raise InvalidArgument("There is no such candidate or grade", hint="Grades are 0, 1 and 2.")
        with self._lock:
            before = record(self._path, question, question.candidates[candidate], grade)
            self._undo.append((number, candidate, before))
        return {"question": number, "candidate": candidate, "grade": grade}

    def undo(self) -> dict[str, Any]:
        """Take the last grade of this session back."""
        with self._lock:
            if not self._undo:
                raise InvalidArgument("There is nothing to undo", hint="Grade a result first.")
            number, candidate, before = self._undo[-1]
            question = self._question(number)
            restore(self._path, question, before)
            self._undo.pop()
        expectation = _by_key(load_suite(self._path))[question.expectation.key]
        grade = grade_of(expectation, question.candidates[candidate])
        return {"question": number, "candidate": candidate, "grade": grade}

    def summary(self) -> dict[str, Any]:
        """Return the measures of each configuration."""
        summary = summarize(self._pool, load_suite(self._path))
        return {"configurations": [{"name": name, "measures": values} for name, values in summary]}

    def _question(self, number: int) -> PooledQuestion:
        if not 0 <= number < len(self._pool.questions):
            raise InvalidArgument("There is no such question", hint="Load the page again.")
        return self._pool.questions[number]


def _by_key(suite: Suite) -> dict[str, Expectation]:
    return {expectation.key: expectation for expectation in suite.expectations}


def judge_app(judging: Judging, token: str) -> Starlette:
    """Return the application; all but its files needs the token, as `Authorization: Bearer TOKEN`."""

    async def page(_request: Request) -> Response:
        return FileResponse(WEB / "judge.html")

    def returning(call: Callable[..., dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return respond(await asyncio.to_thread(call, **request.path_params))

        return handle

    async def grade(request: Request) -> Response:
        fields = await _read_numbers(request, "question", "candidate", "grade")
        return respond(await asyncio.to_thread(judging.grade, *fields))

    return Starlette(
        routes=[
            Route("/", page),
            Mount("/static", StaticFiles(directory=WEB)),
            Route("/judge/questions", returning(judging.overview)),
            Route("/judge/questions/{number:int}", returning(judging.question)),
            Route("/judge/grades", grade, methods=["POST"]),
            Route("/judge/undo", returning(judging.undo), methods=["POST"]),
            Route("/judge/summary", returning(judging.summary)),
        ],
        middleware=middleware(ServeOptions(keys=(token,)), Metrics(), ApiKeys((token,))),
        exception_handlers={RectoError: _recto_error, HTTPException: _framework_error},
    )


async def _read_numbers(request: Request, *names: str) -> list[int]:
    body = loads(await request.body())
    values = [body.get(name) for name in names] if isinstance(body, dict) else []
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) != len(names):
        raise InvalidArgument(f"The body needs the numbers {', '.join(names)}", hint="Send them as JSON.")
    return numbers


async def _recto_error(_request: Request, error: Any) -> Response:
    """Return the whole message: the only reader is the person who started the command."""
    return Refusal(STATUSES[error.kind], error.message, error.hint).response()


async def _framework_error(_request: Request, error: Any) -> Response:
    return framework_refusal(error).response()


def serve_judging(judging: Judging, port: int, notify: Notify) -> None:
    """Serve the page until a signal arrives."""
    token = secrets.token_urlsafe(24)
    with listen(_HOST, port) as listener:
        # Browsers do not send the part after `#`, so the token is in no log and in no Referer header.
        notify(f"Judge at {base_url(listener)}/#{token}")
        notify("Each grade is saved at once. Press Ctrl-C to stop.")
        uvicorn.Server(server_config(judge_app(judging, token), _DRAIN_SECONDS)).run(sockets=[listener])
