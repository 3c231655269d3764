// Draw hits, with links that open the published page at the passage.

import { directionOf, h } from "../dom.js";
import { markMatches, matchPattern } from "../highlight.js";

const MAX_PER_PAGE = 3;
const MAX_FRAGMENT = 10; // words
const PROSE = /^[\p{L}\p{N}*_`[("“]/u;
const FENCE = /^\s*(```|~~~)/u;

/** Return the version and the language of the page, which a site may replace without loading another page. */
export function editionOf({ version, lang }) {
  const stated = document.querySelector("meta[name='docsearch:version']")?.content;
  return [version ?? stated, lang ?? document.documentElement.lang].filter(Boolean).join(",") || null;
}

/** Return the hits of each page, best first; hits that are probably unrelated count only if there are no others. */
export function groupByPage({ results, groups }) {
  const pages = groups.map(({ ranks }) => distinctSections(ranks.map((rank) => results[rank - 1])));
  const related = pages.map((hits) => hits.filter(isRelated)).filter((hits) => hits.length);
  return (related.length ? related : pages).map((hits) => hits.slice(0, MAX_PER_PAGE));
}

const isRelated = ({ above_noise: aboveNoise, matches }) => aboveNoise !== false || matches.length > 0;

function distinctSections(hits) {
  const seen = new Set();
  return hits.filter(({ url }) => !seen.has(url) && seen.add(url));
}

/** Return the title of a hit's section and the headings above it on the page. */
export function sectionOf({ headings, title }) {
  const path = headings[0] === title ? headings.slice(1) : headings;
  return { section: path.at(-1) ?? "", above: path.slice(0, -1) };
}

/** Return the elements of a breadcrumb. */
export function breadcrumb(steps) {
  const separator = () => h("span", { class: "separator", "aria-hidden": "true" }, "›");
  return steps.filter(Boolean).flatMap((step, index) => (index ? [separator(), step] : [step]));
}

/** Return the snippet of a hit with the matching words marked. */
export function snippetOf(hit) {
  const element = h("span", { class: "snippet", dir: directionOf(hit) }, hit.snippet);
  markMatches(element, matchPattern(hit.matches));
  return element;
}

/** Return inline Markdown as text; code stays as it is. */
function plainText(markdown) {
  const parts = markdown.split(/(`+[^`]+`+)/u);
  return parts.map((part, index) => (index % 2 ? part.replaceAll("`", "") : withoutMarkup(part))).join("").trim();
}

function withoutMarkup(text) {
  return text
    .replace(/!?\[([^\]]*)\]\([^)]*\)/gu, "$1")
    .replace(/\*\*|__|(?<![\p{L}\p{N}\\])[*_](?=\S)|(?<=\S)[*_](?![\p{L}\p{N}])/gu, "")
    .replace(/\s*\|\s*/gu, " · ")
    .replace(/<\/?[a-z][^>]*>/giu, "")
    .replace(/\\([\\`*_{}[\]()#+.!|<>-])/gu, "$1");
}

/** Return the URL that opens a hit, or "" if its page is not on the web. */
export function linkOf(hit, { from, to }) {
  let url = hit.url;
  if (from && url.startsWith(from)) url = to + url.slice(from.length);
  let link;
  try {
    link = new URL(url, document.baseURI);
  } catch {
    return "";
  }
  if (!/^https?:$/u.test(link.protocol)) return "";
  const text = quotedText(hit);
  if (!text) return link.href;
  const encoded = encodeURIComponent(text).replaceAll("-", "%2D"); // a hyphen has a meaning in the fragment
  return `${link.href}${link.hash ? "" : "#"}:~:text=${encoded}`;
}

/** Return neighbouring words of the published page with as many matches as possible. */
function quotedText({ text, matches }) {
  const pattern = matchPattern(matches);
  let best = "";
  let most = -1;
  let isCode = false;
  for (const line of text.split("\n")) {
    if (FENCE.test(line)) isCode = !isCode;
    if (isCode || !PROSE.test(line)) continue;
    for (const [run] of plainText(line).matchAll(/[\p{L}\p{N}][\p{L}\p{N} ,-]*[\p{L}\p{N}]/gu)) {
      const words = run.split(" ");
      const found = pattern ? [...run.matchAll(pattern)] : [];
      if (words.length < 3 || found.length <= most) continue;
      most = found.length;
      best = shorten(words, found[0]?.index ?? 0);
    }
  }
  return best;
}

/** Return at most ten words, from near the first match. */
function shorten(words, index) {
  const before = words.join(" ").slice(0, index).split(" ").length - 1;
  const start = Math.max(0, Math.min(before, words.length - MAX_FRAGMENT));
  return words.slice(start, start + MAX_FRAGMENT).join(" ");
}

/** Say how many passages and pages were found. */
export function countOf(pages, t) {
  const passages = pages.reduce((sum, hits) => sum + hits.length, 0);
  if (passages === 1) return t("foundOne");
  return pages.length === 1 ? t("foundFlat", { passages }) : t("found", { passages, pages: pages.length });
}

/** Return the message for a failed request; the details are for the site's operator. */
export function errorText(error, t) {
  if (error.status === 429) return t("limited", { seconds: error.retryAfter || 5 });
  if ([401, 403, 404].includes(error.status)) {
    console.warn(`Recto: ${error.message} ${error.hint ?? ""}`.trim());
    return t("refused");
  }
  if (error.status === 400 || error.status === 413) return t("tooLong");
  if (error.status === 503 || error.status === 502 || error.status === 504) return t("busy");
  return t(error.status === 0 || error.status === 408 ? "offline" : "failed");
}
