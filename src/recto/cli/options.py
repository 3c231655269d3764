"""Options that several commands share, with the errors of the query contract."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from recto.errors import InvalidArgument
from recto.search.query import FLAGS, check_top_k, make_options, make_request
from recto.types.request import OPTIONS, Option, options_of
from recto.types.search import MODES, GroupBy, Mode

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")


def repeated(flag: str, name: str, metavar: str, help: str) -> Callable[[Command], Command]:
    """Return an option that can be given several times."""
    return click.option(flag, name, multiple=True, metavar=metavar, help=f"{help} Can be repeated.")


def value_option(
    flag: str, metavar: str, help: str, default: str = "", *, name: str | None = None, **more: Any
) -> Callable[[Command], Command]:
    """Return an option whose default is only described."""
    names = (flag, name) if name else (flag,)
    return click.option(*names, metavar=metavar, help=help, show_default=default or None, **more)


def file_option(flag: str, help: str, *, required: bool = False) -> Callable[[Command], Command]:
    """Return an option that takes the path of a file."""
    return click.option(flag, type=click.Path(path_type=Path), metavar="FILE", required=required, help=help)


def file_argument(name: str) -> Callable[[Command], Command]:
    """Return an argument that is the path of a file."""
    return click.argument(name, type=click.Path(path_type=Path))


def number(
    flag: str, kind: click.ParamType[Any], default: float, metavar: str, help: str
) -> Callable[[Command], Command]:
    """Return an option that takes a number and shows its default."""
    return click.option(flag, type=kind, default=default, show_default=True, metavar=metavar, help=help)


def collection_option(
    help: str, default: str = "", flag: str = "--collection"
) -> Callable[[Command], Command]:
    """Return an option that takes the name of a collection."""

    def check(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
        from recto.settings import check_collection_name  # not at the top, because it slows `--help` down

        return None if name is None else check_collection_name(name, flag)

    return value_option(flag, "NAME", help, default, callback=check)


collection = collection_option("Use this collection instead of COLLECTION_NAME.")
verbose = click.option("--verbose", is_flag=True, help="Show detailed output including chunk text.")
as_json = click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
suite = file_option("--suite", "Use the questions in this file.")
log = click.option(
    "--log",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Read this query log instead of RECTO_QUERY_LOG.",
)
log_days = value_option(
    "--days", "INT", "Only queries of the last days.", "all", type=click.IntRange(1, 10_000)
)
html = file_option("--html", "Also write a report as one HTML file.")


def search_option(name: str, **more: Any) -> Callable[[Command], Command]:
    """Return the flag of a search option."""
    (option,) = (option for option in OPTIONS if option.name == name)
    settings: dict[str, Any] = {"help": option.flag_help or option.help, "metavar": option.metavar or None}
    if option.type is int:
        settings |= {"callback": _whole_number(option), "default": str(option.default), "show_default": True}
    elif option.type is Mode:
        settings |= {"type": click.Choice(MODES), "default": option.default, "show_default": True}
    elif option.type is GroupBy:
        settings |= {"flag_value": "page"}
    elif option.type is tuple:
        settings |= {"multiple": True}
    else:
        settings |= {"type": option.type}
    return click.option(option.flag, option.name, **settings | more)


def _whole_number(option: Option) -> Callable[[click.Context, click.Parameter, str], int]:
    """Return the function that reads a whole number, with the error message of the query contract."""

    def read(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
        message = f"{option.flag} must be between {option.minimum} and {option.maximum}"
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", value):
            raise InvalidArgument(message, hint=f"{value[:40]!r} is not a whole number.")
        check_top_k(int(value), name=option.flag)
        return int(value)

    return read


top_k = search_option("top_k")
mode = search_option("mode")


def search_options(*leave_out: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Add the flags of a search; the command gets them, and its QUERY if it has one, as `request`."""
    names = [option.name for option in options_of("cli") if option.name not in leave_out]

    def add_options(command: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(command)
        def with_request(**values: Any) -> Result:
            given: Any = {name: values.pop(name) for name in names}
            given["module"] = split_names(given["module"])
            if "query" in values:
                request = make_request(values.pop("query"), FLAGS, **given)
            else:
                request = make_options(FLAGS, **given)
            return command(request=request, **values)

        return _add(with_request, *map(search_option, names))

    return add_options


def index_options(command: Command) -> Command:
    """Add the options that say what to index, under which name, and how the site is published."""
    return _add(
        command,
        collection_option("Publish under this name.", "COLLECTION_NAME, else the name of the book"),
        value_option(
            "--questions",
            "FILE",
            "Section questions of the book.",
            "recto-questions.jsonl in the book's root",
        ),
        value_option("--title", "TEXT", "Title of the book.", "the title of the site, or of the first page"),
        repeated("--module", "modules", "NAME", "Index only this module again and keep the others."),
        value_option("--site-url", "URL", "Published URL of the book, such as https://example.org/book/."),
        value_option(
            "--generator",
            "NAME",
            "Generator of the site, such as mdbook, or `plain` for none.",
            "recognised by the site's configuration",
        ),
        click.option("--new-urls", is_flag=True, help="Accept that most pages get other URLs."),
        value_option("--route-base-path", "PATH", "Docusaurus: `routeBasePath` of the docs plugin."),
        click.option(
            "--trailing-slash/--no-trailing-slash", default=None, help="Whether URLs end with a slash."
        ),
        value_option(
            "--docs-version",
            "NAME",
            "Docusaurus: version to index, several separated by commas, or `all`.",
            "the one that readers see",
            name="version",
        ),
        value_option(
            "--locale",
            "NAME",
            "Docusaurus, MkDocs, Hugo, Starlight, VitePress: language to index. Docusaurus, MkDocs: several "
            "separated by commas, or `all`.",
            "the site's default",
        ),
    )


def crawl_options(command: Command) -> Command:
    """Add the options for reading a website."""
    pages, seconds = click.IntRange(1, 1_000_000), click.FloatRange(0, 60)
    private = "Website or repository: allow addresses of this machine and of private networks."
    return _add(
        command,
        value_option("--max-pages", "INT", "Website: maximum number of pages.", "2000", type=pages),
        value_option("--delay", "SECONDS", "Website: wait between requests.", "0.5", type=seconds),
        click.option("--allow-private", is_flag=True, help=private),
    )


def split_names(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return module names that were given one by one or separated by commas."""
    return tuple(name.strip() for group in modules for name in group.split(","))


def _add(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
