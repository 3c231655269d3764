// Draw the results of a search: grouped by page, with path, score, excerpt, and the page's other sections.

import { reportOpened } from "./api.js";
import { scoreBar } from "./charts.js";
import { directionOf, externalLink, h, parseHtml } from "./dom.js";
import { excerpt, markMatches, matchPattern } from "./highlight.js";
import { notice } from "./messages.js";
import { linkTo } from "./state.js";
import { plural } from "./text.js";

const MAX_TOP_K = 100;
export const NOT_COVERED = "The book does not seem to cover this.";

/** Return the elements for a response of the service. */
export function drawResponse(response, topK) {
  const groups = groupHits(response);
  const parts = response.warnings.map((text) => h("p", { class: "warning" }, text));
  for (const [word, meant] of Object.entries(response.corrections)) {
    const text = `“${word}” is not in the book. Searched for ${disjunction(meant)}.`;
    parts.push(h("p", { class: "correction" }, text));
  }
  if (!groups.length) return [...parts, noResults(response)];
  const draw = (some) => some.length > 0
    && h("ol", { class: "entries", role: "list" }, ...some.map((one) => entry(one, response.noise_floor)));
  const fold = (summary, ...children) =>
    h("details", { class: "fold", open: topK > 10 }, h("summary", {}, summary), ...children);
  const isFull = (response.groups.length || response.results.length) >= topK && topK < MAX_TOP_K;
  const changes = linkTo({ top_k: Math.min(MAX_TOP_K, topK + 10) });
  const more = isFull
    && h("p", { class: "more" }, h("a", { class: "button", id: "more", ...changes }, "More results"));
  if (!response.covered) {
    const nearest = `Show the nearest passages (${plural(groups.length, "page")})`;
    return [...parts, h("p", { class: "not-covered" }, NOT_COVERED), fold(nearest, draw(groups), more)];
  }
  // Below the last page with a passage above the noise floor, nothing is likely to be relevant.
  const end = groups.findLastIndex((group) => !group.every(isWeak)) + 1 || groups.length;
  const weaker = groups.slice(end);
  if (!weaker.length) return [...parts, draw(groups), more].filter(Boolean);
  const summary = `Show ${plural(weaker.length, "weaker result")}`;
  return [...parts, draw(groups.slice(0, end)), fold(summary, draw(weaker), more)];
}

/** Return the number of results in words. */
export function countResults(response) {
  if (!response.results.length) return "No passages";
  return `${plural(response.results.length, "passage")} on ${plural(groupHits(response).length, "page")}`;
}

/** Open the details elements that contain a result. */
export function unfold(element) {
  let details = element.closest("details");
  while (details) {
    details.open = true;
    details = details.parentElement.closest("details");
  }
}

/** Return the hits of each page, best first. */
function groupHits({ results, groups }) {
  if (!groups.length) return [...Map.groupBy(results, (hit) => hit.page_url).values()];
  return groups.map(({ ranks }) => ranks.map((rank) => results[rank - 1]));
}

function disjunction(words) {
  return new Intl.ListFormat("en", { type: "disjunction" }).format(words.map((word) => `“${word}”`));
}

function noResults({ outcome, message }) {
  if (outcome !== "filtered_out") return notice("Nothing matches.", [message, "Try other words."]);
  const link = h("a", { class: "button", ...linkTo({ modules: [], url: "", version: "" }) }, "Search the whole book");
  return notice("The filters exclude every passage.", [message], link);
}

function entry([best, ...rest], noiseFloor) {
  const sections = new Map(rest.toReversed().map((hit) => [hit.url, hit])); // the best hit of each
  const others = rest.filter((hit) => hit.url !== best.url && sections.get(hit.url) === hit);
  const { title, path } = location(best);
  const separator = () => h("span", { class: "separator", "aria-hidden": "true" }, "›");
  const steps = path.flatMap((heading) => [separator(), heading]);
  const score = h("p", { class: "score" },
    h("span", {}, ...scoreText(best)),
    noiseFloor !== null && scoreBar(best.score, noiseFloor),
    isWeak(best) && h("span", { class: "verdict" }, "weak"));
  return h("li", { class: isWeak(best) ? "entry weak" : "entry", ...dataOf(best) },
    h("p", { class: "path" }, h("span", { class: "module" }, best.module_title), ...steps),
    h("h3", { dir: directionOf(best) }, resultLink(best, title)),
    score,
    ...chunkText(best, title),
    others.length > 0 && h("details", { class: "others" },
      h("summary", {}, `${plural(others.length, "more section")} on this page`),
      h("ol", { role: "list" }, ...others.map(otherSection))));
}

function otherSection(hit) {
  const snippet = h("p", { class: "snippet", dir: directionOf(hit) }, hit.snippet);
  markMatches(snippet, matchPattern(hit.matches));
  const score = h("span", { class: "count" }, ...scoreText(hit));
  return h("li", { class: isWeak(hit) ? "other weak" : "other", ...dataOf(hit) },
    h("p", { class: "other-head" }, resultLink(hit, location(hit).title), score), snippet);
}

const scoreText = ({ score }) => [h("span", { class: "visually-hidden" }, "Score "), score.toFixed(3)];
const isWeak = (hit) => hit.above_noise === false;
const dataOf = (hit) => ({ "data-page": hit.page_url, "data-chunk": hit.chunk_index });

function resultLink(hit, title) {
  const changes = { page: hit.page_url, anchor: hit.anchor, chunk: hit.chunk_index };
  const link = h("a", { class: "result", ...linkTo(changes) }, title);
  link.addEventListener("click", () => reportOpened(hit));
  return link;
}

/** Return the heading of a hit, and the headings above it. */
function location({ headings, title: page }) {
  const title = headings.at(-1) || page || "Untitled";
  const above = headings.slice(0, -1);
  return { title, path: above.length || title === page || !page ? above : [page] };
}

/** Return the excerpt of a hit, with a button that shows its whole text. */
function chunkText(hit, title) {
  const pattern = matchPattern(hit.matches);
  const blocks = parseHtml(hit.html).map(asSmallHeading);
  const { shown, before, after } = excerpt(blocks, pattern);
  const box = h("div", { dir: directionOf(hit) });
  const button = h("button", { type: "button", class: "quiet" });
  const draw = (isWhole) => {
    const visible = isWhole ? blocks : shown;
    const repeatsTitle = visible[0]?.className === "small-heading" && visible[0].textContent === title;
    box.className = before && !isWhole ? "chunk-text cut" : "chunk-text";
    box.replaceChildren(...(repeatsTitle ? visible.slice(1) : visible));
    button.setAttribute("aria-expanded", String(isWhole));
    button.textContent = isWhole ? "Show less" : "Show the whole passage";
  };
  button.addEventListener("click", () => draw(button.getAttribute("aria-expanded") !== "true"));
  for (const block of blocks) markMatches(block, pattern);
  draw(false);
  return [box, h("p", { class: "source" }, externalLink(hit.url, hit.url), (before || after) && button)];
}

/** Headings in an excerpt are not headings of this page. */
function asSmallHeading(block) {
  return /^H\d$/u.test(block.tagName) ? h("p", { class: "small-heading" }, ...block.childNodes) : block;
}
