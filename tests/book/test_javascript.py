"""JavaScript configurations are evaluated without running them: literals are known, calls are not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.book.sources.docusaurus.javascript import Unknown, get, read_exported

JSON = {"./data.json": '{"name": "book", "list": [1, "two"], "deep": {"er": null}}'}


def read(text: str, *path: str) -> Any:
    return get(read_exported(text, JSON.__getitem__), *path)


def value(expression: str) -> Any:
    return read(f"module.exports = {{x: {expression}}};", "x")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'a\\'b\\n\\u00e9\\x41\\u{1F600}'", "a'b\né" + "A😀"),
        ('"it\'s // no comment"', "it's // no comment"),
        ("`plain`", "plain"),
        ("`a${'b' + `c`}d`", "abcd"),
        ("1_000 /* one */", 1000.0),
        ("-0x10", -16.0),
        (".5e1", 5.0),
        ("[1, , 2,]", [1.0, 2.0]),
        ("[true, false, null, undefined]", [True, False, None, None]),
        (
            "{'quoted-key': 1, 2: 'two', [`computed`]: 3, trailing: 4,}",
            {"quoted-key": 1.0, "2": "two", "computed": 3.0, "trailing": 4.0},
        ),
        ("({a: 1})", {"a": 1.0}),
        ("/** @type {X} */ ({a: 1})", {"a": 1.0}),
        ("{a: 1} as const", {"a": 1.0}),
        ("{a: 1} satisfies Preset.Options<A | B>[]", {"a": 1.0}),
        ("'a' + 'b' + 1", "ab1"),
        ("!''", True),
        ("!!process.env.CI && 'yes'", False),
        ("process.env.BASE || '/'", "/"),
        ("process.env['BASE'] ?? '/base/'", "/base/"),
        ("process.env?.BASE ?? '/base/'", "/base/"),
        ("process.env.NODE_ENV === 'production' ? 'a' : 'b'", "a"),
        ("process.env.X == null", True),
        ("1 === '1' ? 'a' : 2 !== 3 ? 'b' : 'c'", "b"),
        ("{a: /[/'\"]\\/}/g, b: 1}.b", 1.0),
        ("{method() { return '}' }, async *gen() {}, get x() { return 1 }, b: 1}.b", 1.0),
        ("{f: (a, b) => ({c: a}), g: async x => x, h: function () { return `}` }, b: 1}.b", 1.0),
        ("{f: (a: string): Promise<void> => {}, b: 1}.b", 1.0),
        ("{...{a: 1, b: 2}, b: 3}", {"a": 1.0, "b": 3.0}),
        ("[...[1], ...(process.env.X ? [2] : [])]", [1.0]),
        ("require.resolve('@docusaurus/preset-classic')", "@docusaurus/preset-classic"),
        ("path.join(__dirname, 'docs', 'en')", "./docs/en"),
        ("require('./data.json').list[1]", "two"),
    ],
)
def test_literals_and_pure_expressions_are_evaluated(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        *("f('a', [1])", "a.b.c", "new URL('x').href", "`a${f()}`", "(() => { return 1 })()", "cond ? 1 : 2"),
        *("'a' + f()", "<Config>('x')", "require('./gone.json')", "require('/etc/passwd')", "await load()"),
    ],
)
def test_computed_expression_is_unknown(expression: str) -> None:
    assert value(f"{expression}, y: 1") == Unknown(expression)
    assert read(f"module.exports = {{x: {expression}, y: 1}}", "y") == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "export default {x: 1}",
        "module.exports = {x: 1};",
        "const config: Config = {x: 1}\nexport default config",
        "import type {Config} from '@docusaurus/types';\nconst config = {x: one} satisfies Config;\nconst one = 1;\nexport default config;",
        "export default function () { return {x: 1}; }",
        "export default async function createConfig(): Promise<Config> { const x = 1; return {x}; }",
        "async function create() { const other = {x: 2}; const y = {x: 1}; return y }\nmodule.exports = create;",
        "module.exports = async () => { const fs = await import('fs'); return {x: 1}; };",
        "export default () => ({x: 1});",
        "const create = () => ({x: 1})\nexport default create",
        "export default defineConfig({x: 1});",
        "#!/usr/bin/env node\n'use strict'\nvar a = 1, b = {x: a}\nmodule.exports = b",
        "import d from './data.json' with {type: 'json'};\nexport default {x: d.list[0]};",
        "import {list as l} from './data.json';\nexport default {x: l[0]};",
        "import * as d from './data.json';\nexport default {x: d.list['0']};",
    ],
)
def test_every_form_of_export_is_found(text: str) -> None:
    assert read(text, "x") == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "let x = 1; x = 2; export default {x};",
        "const c = {x: 1}; c.x = f(); export default c;",
        "const c = {x: {y: 1}}; c.x.y = f(); export default c;",
        "const c = {x: 1}; c[key] = f(); export default c;",
        "let x = 1; x++; export default {x};",
        "const x = x; export default {x};",
        "const a = {...b}, b = {...a}; export default {x: a.y};",
        "export default {x: 1, ...rest};",
        "export default function () { if (a) { return {x: 1}; } return f(); }",
        "export default wrap({x: 1});",
    ],
)
def test_reassigned_name_is_unknown(text: str) -> None:
    assert isinstance(read(text, "x"), Unknown)


def test_variables_of_the_environment_have_the_given_value() -> None:
    text = "const base = process.env.BASE ?? '/'; export default {a: base, b: process.env['B'], c: process.env.NODE_ENV};"
    assert read(text) == {"a": "/", "b": None, "c": "production"}
    assert read_exported(text, JSON.__getitem__, "x") == {"a": "x", "b": "x", "c": "production"}


def test_file_without_an_export_is_undefined() -> None:
    assert read("const a = 1;") is read("") is None


@pytest.mark.parametrize(
    "text",
    [
        *(part * 10_000 for part in ("[", "{a:", "!", "a ? ", "1 + ", "x.", "x => ", "/")),
        "(" * 10_000 + ")" * 10_000,
        "`${" * 1_000,
        "'" * 10_001,
    ],
)
def test_deeply_nested_text_is_read_in_bounded_time(text: str) -> None:
    read(f"export default {{x: {text}}}")
    read(f"export default {text}")


def test_exponential_values_are_unknown() -> None:
    doubled = "const a0 = ['x'];" + "".join(f"const a{n + 1} = [...a{n}, ...a{n}];" for n in range(40))
    assert isinstance(read(f"{doubled} export default {{x: a40}}", "x"), Unknown)
    longer = "const a0 = 'xxxxxxxx';" + "".join(f"const a{n + 1} = a{n} + a{n};" for n in range(40))
    assert isinstance(read(f"{longer} export default {{x: a40}}", "x"), Unknown)


FRAGMENTS = st.sampled_from(
    ["export default ", "module.exports = ", "const a = ", "a", "{", "}", "[", "]", "(", ")", ",", ":", ";", "?", "=>", "...", "'s'",
     "`t${", "}`", "1", "/", "/r/g", "//", "/*", "*/", "\n", "!", "&&", "??", "+", "as ", "T<", ">", "function ", "return ", "async ",
     "import ", "from ", "'./data.json'", ".", "?.", "=", "class ", "new ", "process.env.X", "\\", '"', "'", "`", "$", "#", "\u2028",
     "get ", "require(", "|"]
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(FRAGMENTS, max_size=60).map("".join) | st.text(max_size=200))
def test_any_text_is_accepted(text: str) -> None:
    for whole in (text, f"export default {{x: {text}, y: 1}}", f"const a = {text}\nexport default {{x: a}}"):
        read(whole, "x")
        read(whole, "y", "z")
