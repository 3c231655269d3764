// Markdown as a book's passages hold it, turned into elements. It makes nodes, never markup from text, so nothing in a book can run.

import { h, isWeb, outward } from "./dom.js";
import { leads } from "./state.js";

const DEEPEST = 6; // quotes and lists within each other; deeper ones stay text
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/u;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$/u;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/u;
const QUOTE = /^ {0,3}> ?/u;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/u;
const CONTAINER = /^ {0,3}:::+ *([\w-]+)(?:\[([^\]]*)\]| +(.*))?$/u;
const CONTAINER_END = /^ {0,3}:::+ *$/u;
const DELIMITERS = /^ {0,3}\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/u;

/** Read a text as blocks: `{kind, text, …}`; `text` is what a reader sees of it, for finding words in it. */
export function blocks(source, depth = 0) {
  const lines = source.split("\n");
  const found = [];
  let at = 0;
  const take = (test) => {
    const taken = [];
    while (at < lines.length && test(lines[at])) taken.push(lines[at++]);
    return taken;
  };
  while (at < lines.length) {
    const line = lines[at];
    const nested = depth < DEEPEST;
    let match;
    if (!line.trim()) {
      at += 1;
    } else if ((match = FENCE.exec(line))) {
      const [, marks, info] = match;
      const end = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`, "u");
      at += 1;
      const body = take((next) => !end.test(next));
      at += 1;
      found.push({ kind: "code", text: body.join("\n"), title: /title=(?:"([^"]*)"|'([^']*)')/u.exec(info)?.slice(1).find(Boolean) ?? "" });
    } else if ((match = HEADING.exec(line))) {
      at += 1;
      found.push({ kind: "heading", level: match[1].length, text: match[2].replace(/\s*\{#[^}]*\}$/u, "") });
    } else if (RULE.test(line)) {
      at += 1;
      found.push({ kind: "rule", text: "" });
    } else if (nested && (match = CONTAINER.exec(line))) {
      at += 1;
      const body = take((next) => !CONTAINER_END.test(next));
      at += 1;
      const name = match[1].toLowerCase();
      found.push({ kind: "aside", title: match[2] ?? match[3] ?? name[0].toUpperCase() + name.slice(1), ...inner(body.join("\n"), depth) });
    } else if (line.includes("|") && lines[at + 1]?.includes("-") && DELIMITERS.test(lines[at + 1])) {
      const rows = take((next) => next.includes("|")).map(cells);
      rows.splice(1, 1);
      found.push({ kind: "table", rows, text: rows.flat().join(" ") });
    } else if (nested && QUOTE.test(line)) {
      const body = take((next) => next.trim() && QUOTE.test(next)).map((next) => next.replace(QUOTE, ""));
      found.push({ kind: "quote", ...inner(body.join("\n"), depth) });
    } else if (nested && ITEM.test(line)) {
      const list = readList(lines, at, depth);
      at = list.end;
      found.push(list.block);
    } else if (/^ {4}/u.test(line)) {
      found.push({ kind: "code", text: take((next) => /^ {4}/u.test(next)).map((next) => next.slice(4)).join("\n"), title: "" });
    } else {
      const first = lines[at++];
      const rest = take((next) => next.trim() && !opens(next, nested));
      found.push({ kind: "paragraph", text: [first, ...rest].map((next) => next.trim()).join("\n") });
    }
  }
  return found;
}

function inner(source, depth) {
  const children = blocks(source, depth + 1);
  return { children, text: children.map((child) => child.text).join("\n") };
}

function opens(line, nested) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  return nested && (QUOTE.test(line) || ITEM.test(line) || CONTAINER.test(line));
}

function cells(row) {
  const inside = row.trim().replace(/^\|/u, "").replace(/\|$/u, "");
  return inside.split(/(?<!\\)\|/u).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function readList(lines, start, depth) {
  const [, indent, mark] = ITEM.exec(lines[start]);
  const ordered = /\d/u.test(mark);
  const items = [];
  let at = start;
  while (at < lines.length) {
    const match = ITEM.exec(lines[at]);
    if (!match || match[1].length > indent.length + 3 || /\d/u.test(match[2]) !== ordered || RULE.test(lines[at])) break;
    const width = match[1].length + match[2].length + Math.min(match[3].length || 1, 4);
    const body = [lines[at++].slice(width)];
    while (at < lines.length) {
      const line = lines[at];
      const deeper = /^ */u.exec(line)[0].length >= Math.min(width, match[1].length + 2);
      const blank = !line.trim();
      if (blank && !(lines[at + 1] && /^ */u.exec(lines[at + 1])[0].length >= width)) break;
      if (!blank && !deeper && (opens(line, true) || !lines[at - 1].trim())) break;
      body.push(blank ? "" : line.slice(Math.min(width, /^ */u.exec(line)[0].length)));
      at += 1;
    }
    items.push(inner(body.join("\n"), depth));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? "")) at += 1;
  }
  const first = ordered ? Number.parseInt(mark, 10) : 1;
  return { end: at, block: { kind: "list", ordered, first, items, text: items.map((item) => item.text).join("\n") } };
}

/** Make elements of blocks. `links` turns an address as written into a change of state, or null; `heading` makes a heading. */
export function render(read, { links = () => null, heading = smallHeading } = {}) {
  const options = { links, heading };
  return read.map((block) => element(block, options));
}

function element(block, options) {
  const prose = (text) => inline(text, options.links);
  switch (block.kind) {
    case "code":
      return h("figure", { class: "code" }, block.title && h("figcaption", {}, block.title), h("pre", { tabindex: "0" }, h("code", {}, block.text)));
    case "heading":
      return options.heading(block, prose(block.text));
    case "rule":
      return h("hr");
    case "aside":
      return h("div", { class: "aside", role: "note" }, h("p", { class: "aside-title" }, block.title), ...render(block.children, options));
    case "quote":
      return h("blockquote", {}, ...render(block.children, options));
    case "table":
      return table(block.rows, prose);
    case "list": {
      const start = block.ordered && block.first !== 1 ? block.first : null;
      return h(block.ordered ? "ol" : "ul", { start }, ...block.items.map((item) => listItem(item, options)));
    }
    default:
      return h("p", {}, ...prose(block.text));
  }
}

function listItem(item, options) {
  const [first, ...rest] = item.children;
  if (first?.kind !== "paragraph") return h("li", {}, ...render(item.children, options));
  return h("li", {}, ...inline(first.text, options.links), ...render(rest, options));
}

function table([head, ...rows], prose) {
  const row = (tag, given) => h("tr", {}, ...head.map((_, column) => h(tag, tag === "th" ? { scope: "col" } : {}, ...prose(given[column] ?? ""))));
  const body = h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, ...rows.map((given) => row("td", given))));
  return h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, body);
}

function smallHeading(block, prose) {
  return h("p", { class: "small-heading" }, ...prose);
}

const TOKENS = [
  [/\\([!-/:-@[-`{-~])/uy, ([, character]) => character],
  [/(`+)(?!`)([\s\S]*?[^`])\1(?!`)/uy, ([, , code]) => h("code", {}, code.replace(/^ (.*) $/su, "$1"))],
  [/!\[([^\]\n]*)\]\(([^()\s]*)[^)\n]*\)/uy, ([, words, address]) => picture(words, address)],
  [/\[((?:[^[\]\\\n]|\\.|\[[^[\]\n]*\])*)\]\(<?((?:[^()\s<>]|\([^()\s]*\))*)>?(?:\s+["'(][^\n]*?["')])?\)/uy, link],
  [/<(https?:\/\/[^\s<>]+)>/uy, ([, address]) => outward(address, address)],
  [/https?:\/\/[^\s<>()[\]`*]*[^\s<>()[\]`*.,;:!?'"]/uy, ([address]) => outward(address, address)],
  [/(\*\*|__)(?=\S)([\s\S]*?\S)\1(?!\*)/uy, ([, , text], links) => h("strong", {}, ...inline(text, links))],
  [/\*(?=[^\s*])([^*]*[^\s*])\*(?!\*)/uy, ([, text], links) => h("em", {}, ...inline(text, links))],
  [/(?<![\p{L}\p{N}])_(?=[^\s_])([^_]*[^\s_])_(?![\p{L}\p{N}])/uy, ([, text], links) => h("em", {}, ...inline(text, links))],
  [/~~(?=\S)([^~]*\S)~~/uy, ([, text], links) => h("del", {}, ...inline(text, links))],
  [/ {2,}\n|\\\n/uy, () => h("br")],
];
const STARTS = /[\\`![<*_~h ]/gu; // characters that a token can begin with

/** Make nodes of a line of text with its emphasis, code and links. */
export function inline(text, links = () => null) {
  const made = [];
  let plain = "";
  let at = 0;
  while (at < text.length) {
    STARTS.lastIndex = at;
    const next = STARTS.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    at = next;
    if (at >= text.length) break;
    const token = tokenAt(text, at);
    if (!token) {
      plain += text[at++];
      continue;
    }
    const node = token.make(token.match, links);
    at += token.match[0].length;
    if (typeof node === "string") {
      plain += node;
      continue;
    }
    if (plain) made.push(plain);
    plain = "";
    made.push(node);
  }
  if (plain) made.push(plain);
  return made;
}

function tokenAt(text, at) {
  for (const [pattern, make] of TOKENS) {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match) return { match, make };
  }
  return null;
}

function link([, words, address], links) {
  const within = links(address);
  if (within) return h("a", leads(within), ...inline(words));
  return outward(isWeb(address) ? address : "", ...inline(words));
}

/** Pictures are elsewhere, and this page asks no one else: their words stand for them. */
function picture(words, address) {
  return outward(address, h("span", { class: "picture" }, `Picture: ${words || "without description"}`));
}
