"""Docusaurus sites: the addresses that the real tool gave to a hard site, and what is known of its configuration without running it."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.book.parsing import read
from recto.book.sources import SourceOptions, open_source
from recto.book.sources.docusaurus.javascript import Unknown, get, read_exported
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.errors import ConfigurationError, InvalidArgument
from recto.settings import option_flags
from recto.types.book import Page
from tests.book.files import write, write_pages

SITE = Path(__file__).parent / "sites" / "docusaurus"
VARIANTS: dict[str, dict[str, str]] = json.loads((SITE / "variants.json").read_text("utf-8"))


def built(variant: str) -> list[dict[str, Any]]:
    """Return the pages that Docusaurus published."""
    pages = json.loads((SITE / "expected" / f"{variant}.json").read_text("utf-8"))["pages"]
    return [page for page in pages if not page["unlisted"]]


def site(folder: Path, variant: str = "plain") -> Path:
    """Copy the site with the configuration of a variant, as it was built."""
    target = folder / "torture"
    shutil.copytree(SITE, target, ignore=shutil.ignore_patterns("expected", "variants.json"))
    text = (SITE / "docusaurus.config.js").read_text("utf-8")
    for old, new in VARIANTS[variant].items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return write(target, {"docusaurus.config.js": text})


def small_site(folder: Path, config: str, *names: str) -> Path:
    return write(write_pages(folder, *(names or ("docs/01-intro.md",))), {"docusaurus.config.js": config})


def pages(path: Path, **options: Any) -> list[Page]:
    return list(open_book(path, SiteOptions(**options)).pages())


def urls(path: Path, **options: Any) -> list[str]:
    return [page.url for page in pages(path, **options)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_urls_are_those_that_docusaurus_built(tmp_path: Path, variant: str) -> None:
    root = site(tmp_path, variant)
    expected: dict[tuple[str, str], set[str]] = defaultdict(set)
    for page in built(variant):
        expected[page["locale"], page["version"]].add(page["url"])
    for (locale, version), addresses in expected.items():
        loaded = pages(root, locale=locale, version=version)
        # An instance without this version is read in its own last one.
        mine = {page.url for page in loaded if page.version == version}
        assert mine == addresses, (locale, version)
        assert len({page.path for page in loaded}) == len(loaded)
    last = {page["url"] for page in built(variant) if page["last"] and page["locale"] == "en"}
    assert set(urls(root)) == last, "the last version is the default"


@pytest.mark.parametrize("variant", ["plain", "at-the-root", "no-slash", "last-is-current"])
def test_urls_of_several_versions_and_locales(tmp_path: Path, variant: str) -> None:
    source = open_book(site(tmp_path, variant), SiteOptions(version="all", locale="all"))
    loaded = list(source.pages())
    assert len({page.path for page in loaded}) == len({page.url for page in loaded}) == len(loaded)
    expected = {page["url"]: page for page in built(variant)}
    for page in loaded:
        same = expected[page.url]
        assert (page.locale or "en", page.version) == (same["locale"], same["version"])
    # A page that is not translated is read once, for the readers of all locales that do not have it.
    seen = Counter((locale, page.version) for page in loaded for locale in page.locales or ["en"])
    assert seen == Counter((page["locale"], page["version"]) for page in expected.values())
    last = {page["version"] for page in expected.values() if page["last"]}
    assert {name for name, is_current in source.info.versions if is_current} == last
    first = {page.path: page.url for page in pages(tmp_path / "torture")}
    assert {page.path: page.url for page in loaded if page.path in first} == first


def test_other_versions_and_locales_have_the_same_modules(tmp_path: Path) -> None:
    root = write(site(tmp_path), {"recto.toml": '[modules]\nstart = ["01-module-one"]\n'})
    loaded = {page.path: page for page in pages(root, version="2.0,current", locale="fr,en")}
    assert loaded["@current/01-module-one/01-first.mdx"].module_keys[:2] == ("start", "module-one")
    assert loaded["@fr/@current/01-module-one/01-first.mdx"].module == "start"
    assert loaded["@current/intro.md"].module == loaded["intro.md"].module == "intro"
    assert loaded["@current/labs/01-bench.md"].module == loaded["labs/01-bench.md"].module == "labs"
    assert loaded["labs/01-bench.md"].version == "spring"  # the version that readers of these docs see
    assert loaded["intro.md"].locales == ("en",)
    assert loaded["01-module-one/01-first.md"].locales == ("en", "fr")
    assert not [path for path in loaded if "1.0" in path or "@de" in path]


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"version": "2.0,2.1"}, "version 2.1", "Did you mean 2.0? The site has: current, 2.0, 1.0, spring."),
        ({"locale": "fr,es"}, "locale es", "en, fr, de"),
        ({"locale": "es"}, "locale es", "en, fr, de"),
    ],
)
def test_unknown_editions(tmp_path: Path, options: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"There is no {message} of this site") as error:
        pages(site(tmp_path), **options)
    assert hint in error.value.hint


def test_translation_replaces_its_page_only(tmp_path: Path) -> None:
    loaded = {page.path: page for page in pages(site(tmp_path), locale="fr", version="2.0")}
    assert loaded["intro.md"].text.startswith("# Bonjour 2.0")
    assert loaded["01-module-one/01-first.md"].text.startswith("# First of 2.0")
    assert {page.locale for page in loaded.values()} == {"fr"}
    current = pages(tmp_path / "torture", locale="fr", version="current")
    assert "only-french.md" not in {page.path for page in current}


def test_drafts_are_skipped_and_counted_and_module_keys_include_the_label(tmp_path: Path) -> None:
    source = open_book(site(tmp_path), SiteOptions(version="current"))
    keys = {page.path: page.module_keys for page in source.pages()}
    paths = set(keys)
    left_out = "draft.md unlisted.md _partial.md _private/inner.md left-out/gone.md .hidden.md UPPER.MD"
    assert not paths & set(left_out.split())
    assert "Left out: 1 draft page." in source.notes
    assert "Left out: 1 unlisted page." in source.notes
    assert keys["01-module-one/01-first.mdx"] == ("module-one", "01-module-one", "the first module")
    assert keys["02-module-two/README.md"] == ("module-two", "02-module-two", "second module")
    assert (keys["intro.md"], keys["labs/01-bench.md"][0]) == (("intro",), "labs")


@pytest.mark.parametrize(
    ("below", "count"),
    [("docs", 45), ("docs/01-module-one", 7), ("docs/01-module-one/nested/02-deep", 2), ("docs/intro.md", 1)],
)
def test_part_of_the_docs_has_the_same_paths_and_urls(tmp_path: Path, below: str, count: int) -> None:
    root = site(tmp_path)
    whole = {page.path: page.url for page in pages(root, version="current")}
    part = {page.path: page.url for page in pages(root / below)}
    assert len(part) == count
    assert part.items() <= whole.items()


def test_directory_of_an_older_version(tmp_path: Path) -> None:
    root, base = site(tmp_path), "https://books.example/torture"
    assert urls(root / "versioned_docs/version-1.0/intro.md") == [f"{base}/docs/one/intro"]
    assert urls(root / "labs_versioned_docs/version-spring/garden") == [f"{base}/the-labs/garden/"]
    note = "docs is version current, but the site's default is version 2.0"
    assert any(note in one for one in open_book(root / "docs").notes)
    assert urls(root / "docs", version="2.0") == urls(root, version="2.0")[:2]
    with pytest.raises(InvalidArgument, match="belongs to version current, not 2.0"):
        open_book(root / "docs" / "01-module-one", SiteOptions(version="2.0"))
    with pytest.raises(InvalidArgument, match="only from the directory of the site"):
        open_book(root / "docs", SiteOptions(version="all"))


def test_paths_of_further_docs_have_a_prefix(tmp_path: Path) -> None:
    plugins = "[['content-docs', {id: 'lab', path: 'labs', routeBasePath: 'l'}]]"
    config = f"module.exports = {{url: 'https://x.org', plugins: {plugins}, presets: ['classic']}}"
    root = small_site(tmp_path, config, "docs/a.md", "labs/a.md")
    loaded = {page.path: page.url for page in pages(root)}
    assert loaded == {"a.md": "https://x.org/docs/a", "labs/a.md": "https://x.org/l/a"}
    write_pages(root, "docs/labs/a.md")
    assert [page.path for page in pages(root)] == ["a.md", "labs/a.md", "@lab/a.md"]


CONFIG = "module.exports = {url: 'https://x.org', baseUrl: '/b/', presets: [['classic', {docs: {}}]]};"


@pytest.mark.parametrize(
    ("old", "new", "key", "flag"),
    [
        ("'https://x.org'", "site()", "url", "--site-url"),
        ("'/b/'", "base[process.cwd()]", "baseUrl", "--site-url"),
        ("baseUrl", "trailingSlash: f(), baseUrl", "trailingSlash", "--trailing-slash"),
        ("docs: {}", "docs: {routeBasePath: f()}", "docs.routeBasePath", "--route-base-path"),
        ("{}", "{...common, id: 'default', path: 'docs'}", "docs.routeBasePath", "--route-base-path"),
    ],
)
def test_computed_value_is_an_error(tmp_path: Path, old: str, new: str, key: str, flag: str) -> None:
    root = small_site(tmp_path, CONFIG.replace(old, new))
    with pytest.raises(ConfigurationError, match=f"{key} cannot be read without running it") as error:
        open_book(root)
    assert flag in error.value.hint


def test_literals_count_beside_parts_that_cannot_be_read(tmp_path: Path) -> None:
    config = CONFIG.replace("url:", "i18n, url:").replace("presets", "themeConfig: theme(), presets")
    root = small_site(tmp_path, f"import i18n from 'elsewhere'; {config}")
    source = open_book(root)
    assert [page.url for page in source.pages()] == ["https://x.org/b/docs/intro"]
    assert source.notes == [
        "i18n cannot be read without running it (i18n); the site's own language and address are used."
    ]


def test_flags_replace_computed_values(tmp_path: Path) -> None:
    config = "module.exports = {url: f(), baseUrl: g(), trailingSlash: h(), presets: [['classic', {docs: {routeBasePath: i()}}]]};"
    root = small_site(tmp_path, config)
    loaded = urls(root, url="https://y.org/base/", trailing_slash=True, route_base_path="handbook")
    assert loaded == ["https://y.org/base/handbook/intro/"]
    loaded = urls(root, url="https://y.org", trailing_slash=False, route_base_path="/")
    assert loaded == ["https://y.org/intro"]


def test_computed_versions_are_noted(tmp_path: Path) -> None:
    config = CONFIG.replace("docs: {}", "docs: {lastVersion: newest(), onlyIncludeVersions: some()}")
    root = small_site(tmp_path, config, "docs/a.md", "versioned_docs/version-1/a.md")
    assert open_book(root).notes == []  # without versions.json there is but one
    (root / "versions.json").write_text('["1"]', "utf-8")
    source = open_book(root)
    assert [page.url for page in source.pages()] == ["https://x.org/b/docs/a"]
    assert source.notes == [
        "docs.onlyIncludeVersions cannot be read without running it (some()); taken as left out.",
        "docs.lastVersion cannot be read without running it (newest()); taken as left out.",
    ]
    assert urls(root, version="current") == ["https://x.org/b/docs/next/a"]


def test_comments_that_highlight_code_are_left_out(tmp_path: Path) -> None:
    code = "```js\n// highlight-next-line\na\n  {/* highlight-start */}\nb\n# highlight-end\n```\n"
    root = small_site(tmp_path, CONFIG, "docs/a.md")
    write(root, {"docs/a.md": f"# A\n\n{code}\n// highlight-start\n"})
    (page,) = pages(root)
    assert page.text == "# A\n\n```js\na\nb\n```\n\n// highlight-start\n"


def test_a_wrapped_partial_keeps_its_own_fences(tmp_path: Path) -> None:
    root = small_site(tmp_path, CONFIG, "docs/a.mdx")
    wrapped = "# A\n\n```mdx-code-block\nimport Part from './_p.mdx';\n\n<Part />\n```\n"
    write(root, {"docs/a.mdx": wrapped, "docs/_p.mdx": "```\nlight\n```\n\n## Wick\n\nText.\n"})
    (page,) = pages(root)
    assert [section.headings for section in read(page).sections] == [("A",), ("A", "Wick")]


def test_posts_of_blogs_are_counted(tmp_path: Path) -> None:
    plugins = "plugins: [['@docusaurus/plugin-content-blog', {path: 'news'}]], presets"
    names = ("docs/a.md", "blog/b.md", "blog/2024/c.mdx", "blog/authors.yml", "news/d.md")
    root = small_site(tmp_path, CONFIG.replace("presets", plugins), *names)
    assert open_book(root).notes == ["Left out: 3 posts of the blog."]
    write(root, {"docusaurus.config.js": CONFIG.replace("docs: {}", "docs: {}, blog: false")})
    assert open_book(root).notes == []


def test_what_plugins_and_components_show_is_noted(tmp_path: Path) -> None:
    plugins = "remarkPlugins: [[require('npm2yarn'), {sync: true}], remarkMath, tabs, () => 1]"
    root = small_site(tmp_path, CONFIG.replace("docs: {}", f"docs: {{{plugins}}}"), "docs/a.md")
    text = (
        "import Chart from '@site/src/chart';\nimport {Cards, Icon} from '@theme/cards';\nimport Part from './_p.mdx';\n\n"
        "# A\n\n<Chart data={data} />\n\n<Cards />\n\n<Part />\n\n`<No />` <Badge text='New' />\n\n<Demo></Demo>\n\n"
        "<Grid>\n  Stars\n  </Card>\n  <Card title='Moons'>\n  Io\n</Grid>\n\n```jsx\n<Nor />\n```\n"
    )
    write(root, {"docs/a.md": text, "docs/_p.mdx": "The part.\n"})
    source = open_book(root)
    (page,) = source.pages()
    assert source.notes == [
        "What plugins change in pages is not read: npm2yarn, tabs, a function of the site.",
        "1 included file resolved in 1 page.",
        "Components are not run, so what these show is missing: Chart (1 page), Demo (1 page).",
    ]
    assert "Stars\nMoons\n  Io" in "\n".join(block.text for block in read(page).sections[0].blocks)


def test_environment_is_taken_as_empty_and_noted(tmp_path: Path) -> None:
    root = small_site(tmp_path, CONFIG.replace("'/b/'", "process.env.BASE ?? '/c/'"))
    source = open_book(root)
    assert [page.url for page in source.pages()] == ["https://x.org/c/docs/intro"]
    assert source.notes == ['baseUrl depends on the environment; taken as "/c/"']


def test_without_a_site_url_pages_have_local_urls(tmp_path: Path) -> None:
    root = small_site(tmp_path, "module.exports = {presets: ['classic']}", "docs/module-1-ros2/01-nodes.md")
    assert urls(root) == ["local://docs/docs/module-1-ros2/01-nodes"]


def test_disabled_or_missing_docs(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no docs"):
        open_book(small_site(tmp_path, CONFIG.replace("docs: {}", "docs: false")))
    with pytest.raises(InvalidArgument) as error:
        open_book(small_site(tmp_path, CONFIG.replace("docs: {}", "docs: {path: 'other'}")))
    assert "There is no directory other" in error.value.hint


def test_docs_must_be_in_the_project(tmp_path: Path) -> None:
    write_pages(tmp_path, "handbook/01-a.md", "project/handbook/02-b.md")
    (tmp_path / "project" / ".git").mkdir()
    root = small_site(tmp_path / "project/site", CONFIG.replace("docs: {}", "docs: {path: '../handbook'}"))
    assert urls(root) == ["https://x.org/b/docs/b"]
    small_site(root, CONFIG.replace("docs: {}", "docs: {path: '../../handbook'}"))
    with pytest.raises(ConfigurationError, match="outside the repository"):
        open_book(root)


@pytest.mark.parametrize(
    ("form", "formats"),
    [("mdx", "mdx mdx markdown"), ("detect", "markdown mdx markdown"), ("md", "markdown markdown markdown")],
)
def test_markdown_format(tmp_path: Path, form: str, formats: str) -> None:
    config = CONFIG.replace("baseUrl", f"markdown: {{format: '{form}'}}, baseUrl")
    root = small_site(tmp_path, config, "docs/a.md", "docs/b.mdx")
    write(root, {"docs/c.mdx": "---\nmdx:\n  format: md\n---\n# C\n"})
    assert " ".join(page.format for page in pages(root)) == formats


def test_pages_with_the_same_url_are_noted(tmp_path: Path) -> None:
    source = open_book(small_site(tmp_path, CONFIG, "docs/a/index.md", "docs/a/README.md"))
    assert len(list(source.pages())) == 2
    assert source.notes == ["2 pages have the same URL https://x.org/b/docs/a/."]


@pytest.mark.parametrize(("default", "locale"), [("ur", "ur"), ("en", "")])
def test_a_site_in_one_language_has_its_locale(tmp_path: Path, default: str, locale: str) -> None:
    i18n = f"i18n: {{defaultLocale: '{default}', locales: ['{default}']}}, baseUrl"
    root = small_site(tmp_path, CONFIG.replace("baseUrl", i18n))
    assert {page.locale for page in pages(root)} == {locale}


def test_an_empty_route_is_repeated_in_the_next_run(tmp_path: Path) -> None:
    """It is the root of the site; other options are not stated if they are empty."""
    root = small_site(tmp_path, CONFIG.replace("/b/", "/"), "docs/a.md")
    source = open_source(str(root), SourceOptions(route_base_path="", title=""), None, print)
    assert [page.url for page in source.pages()] == ["https://x.org/a"]
    assert source.info.options == (("route_base_path", ""),)
    assert option_flags(source.info.options) == ["--route-base-path ''"]


JSON = {
    "./data.json": '{"name": "book", "list": [1, "two"], "deep": {"er": null}}',
    "./part/index.mjs": "import two from './two'; export const one = 1; export default {x: one, y: two};",
    "./part/./two.js": "import {one} from './index.mjs'; export default {x: one};",
    "./common.js": "module.exports = {x: 1};",
}


def evaluated(text: str, *path: str) -> Any:
    return get(read_exported(text, JSON.__getitem__), *path)


def value(expression: str) -> Any:
    return evaluated(f"module.exports = {{x: {expression}}};", "x")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'a\\'b\\n\\u00e9\\x41\\u{1F600}'", "a'b\né" + "A😀"),
        ('"it\'s // no comment"', "it's // no comment"),
        ("`a${'b' + `c`}d`", "abcd"),
        ("1_000 /* one */", 1000.0),
        ("-0x10", -16.0),
        ("[1, , 2,]", [1.0, 2.0]),
        ("[1, ...f()]", [1.0, Unknown("f()")]),
        ("[true, false, null, undefined]", [True, False, None, None]),
        ("{'quoted-key': 1, 2: 'two', [`computed`]: 3,}", {"quoted-key": 1.0, "2": "two", "computed": 3.0}),
        ("/** @type {X} */ ({a: 1})", {"a": 1.0}),
        ("{a: 1} as const", {"a": 1.0}),
        ("{a: 1} satisfies Preset.Options<A | B>[]", {"a": 1.0}),
        ("'a' + 'b' + 1", "ab1"),
        ("!''", True),
        ("!!process.env.CI && 'yes'", False),
        ("process.env.BASE || '/'", "/"),
        ("process.env?.BASE ?? '/base/'", "/base/"),
        ("process.env.NODE_ENV === 'production' ? 'a' : 'b'", "a"),
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
    assert evaluated(f"module.exports = {{x: {expression}, y: 1}}", "y") == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "export default {x: 1}",
        "export const one = 1; export default ({x: one});",
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
        "import part from './part/index.mjs'; export default {x: part.x};",
        "import {one} from './part/index.mjs'; export default {x: one};",
        "import * as part from './part/index.mjs'; export default {x: part.one};",
        "const {x} = 1, part = require('./common'); module.exports = {x: part.x};",
    ],
)
def test_every_form_of_export_is_found(text: str) -> None:
    assert evaluated(text, "x") == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "let x = 1; x = 2; export default {x};",
        "const c = {x: 1}; c.x = f(); export default c;",
        "const c = {x: 1}; c[key] = f(); export default c;",
        "const x = x; export default {x};",
        "const a = {...b}, b = {...a}; export default {x: a.y};",
        "export default {x: 1, ...rest};",
        "export default function () { if (a) { return {x: 1}; } return f(); }",
        "export default wrap({x: 1});",
    ],
)
def test_reassigned_name_is_unknown(text: str) -> None:
    assert isinstance(evaluated(text, "x"), Unknown)


def test_variables_of_the_environment_have_the_given_value() -> None:
    text = "const base = process.env.BASE ?? '/'; export default {a: base, b: process.env['B'], c: process.env.NODE_ENV};"
    assert evaluated(text) == {"a": "/", "b": None, "c": "production"}
    assert read_exported(text, JSON.__getitem__, "x") == {"a": "x", "b": "x", "c": "production"}


def test_file_without_an_export_is_undefined() -> None:
    assert evaluated("const a = 1;") is evaluated("") is None


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
    evaluated(f"export default {{x: {text}}}")
    evaluated(f"export default {text}")


def test_exponential_values_are_unknown() -> None:
    doubled = "const a0 = ['x'];" + "".join(f"const a{n + 1} = [...a{n}, ...a{n}];" for n in range(40))
    assert isinstance(evaluated(f"{doubled} export default {{x: a40}}", "x"), Unknown)
    longer = "const a0 = 'xxxxxxxx';" + "".join(f"const a{n + 1} = a{n} + a{n};" for n in range(40))
    assert isinstance(evaluated(f"{longer} export default {{x: a40}}", "x"), Unknown)


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
        evaluated(whole, "x")
        evaluated(whole, "y", "z")
