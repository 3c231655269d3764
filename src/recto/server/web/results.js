// Draws what was found, page by page: title, place in the book, the telling part, the score, and the page's other sections.

import { scoreBar } from "./charts.js";
import { counted, h, isWeb, outward } from "./dom.js";
import { excerpt, mark, matching } from "./highlight.js";
import { blocks, render } from "./markdown.js";
import { notice } from "./notices.js";
import { leads } from "./state.js";

const MOST = 100;
export const NOT_COVERED = "The book does not seem to cover this.";

/** Make everything below the list's title for an answer of the service. */
export function drawAnswer(answer, limit) {
  const groups = grouped(answer);
  const parts = answer.warnings.map((words) => h("p", { class: "warning" }, words));
  parts.push(...Object.entries(answer.corrections).map(([word, meant]) => h("p", { class: "correction" }, `“${word}” is not in the book. Searched for ${either(meant)}.`)));
  if (!groups.length) return [...parts, nothing(answer)];
  const list = [h("ol", { class: "entries", role: "list" }, ...groups.map((group) => entry(group, answer.noise_floor)))];
  if (groups.length >= limit && limit < MOST) {
    const more = Math.min(MOST, limit + 10);
    list.push(h("p", { class: "more" }, h("a", { class: "button", id: "more", ...leads({ limit: more }) }, "More results")));
  }
  if (answer.covered) return [...parts, ...list];
  const nearest = h("details", { class: "weak", open: limit > 10 }, h("summary", {}, `Show the nearest passages (${counted(groups.length, answer.groups.length ? "page" : "passage")})`), ...list);
  return [...parts, h("p", { class: "not-covered" }, NOT_COVERED), nearest];
}

/** Say how much was found, for the eye and the ear. */
export function summary({ results, groups }) {
  if (!results.length) return "No passages";
  return counted(results.length, "passage") + (groups.length ? ` on ${counted(groups.length, "page")}` : "");
}

/** Open what an entry is folded into. */
export function reveal(entry) {
  for (let fold = entry.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

/** The hits of each page, best first; without groups, every hit for itself. */
function grouped({ results, groups }) {
  return groups.length ? groups.map(({ ranks }) => ranks.map((rank) => results[rank - 1])) : results.map((one) => [one]);
}

const either = (words) => new Intl.ListFormat("en", { type: "disjunction" }).format(words.map((word) => `“${word}”`));

function nothing(answer) {
  const filtered = answer.outcome === "filtered_out";
  const changes = filtered ? { modules: [], url: "" } : { limit: 10 };
  const everywhere = h("a", { class: "button", ...leads(changes) }, "Search the whole book");
  const title = filtered ? "The filters leave nothing to search in." : "Nothing matches.";
  const advice = filtered ? [] : ["Ask in other words, or for something that the book is about."];
  return notice(title, [answer.message, ...advice].filter(Boolean), filtered ? everywhere : null);
}

function entry([best, ...rest], noise) {
  const others = rest.filter((one, place) => one.url !== best.url && rest.findIndex(({ url }) => url === one.url) === place);
  const { title, path } = place(best);
  const pattern = matching(best.matches);
  return h("li", { class: weak(best) ? "entry below" : "entry", ...address(best) },
    h("p", { class: "path" }, h("span", { class: "module" }, best.module), ...path.flatMap((heading) => [h("span", { class: "step", "aria-hidden": "true" }, "›"), heading])),
    h("h3", {}, link(best, title)),
    h("p", { class: "score" }, h("span", {}, h("span", { class: "unseen" }, "Score "), best.score.toFixed(3)), best.dense !== null && scoreBar(best.dense, noise), weak(best) && h("span", { class: "verdict" }, "weak")),
    ...passage(best, title, pattern),
    others.length > 0 && h("details", { class: "others" }, h("summary", {}, `${counted(others.length, "more section")} on this page`), h("ol", { role: "list" }, ...others.map(other))));
}

/** A further section of a page: its heading and the telling part of its best passage. */
function other(one) {
  const snippet = h("p", { class: "snippet" }, one.snippet);
  mark(snippet, matching(one.matches));
  return h("li", { class: weak(one) ? "other below" : "other", ...address(one) },
    h("p", { class: "other-head" }, link(one, place(one).title), h("span", { class: "count" }, h("span", { class: "unseen" }, "Score "), one.score.toFixed(3))), snippet);
}

const weak = (one) => one.above_noise === false;
const address = (one) => ({ "data-page": one.page_url, "data-passage": one.chunk_index });
const link = (one, title) => h("a", { class: "result", ...leads({ page: one.page_url, anchor: one.anchor, passage: one.chunk_index }) }, title);

/** A passage is called by its own heading; what leads to it is its path. */
function place({ headings, title: page }) {
  const title = headings.at(-1) || page || "Untitled";
  const before = headings.slice(0, -1);
  return { title, path: before.length || title === page || !page ? before : [page] };
}

function passage({ text, url }, title, pattern) {
  const read = blocks(text);
  const { shown, before, after } = excerpt(read, pattern);
  const box = h("div", { class: before ? "passage-text cut" : "passage-text" });
  const fill = (chosen) => {
    const stated = chosen[0]?.kind === "heading" && chosen[0].text === title; // it stands above already
    box.replaceChildren(...render(stated ? chosen.slice(1) : chosen));
    mark(box, pattern);
  };
  const toggle = h("button", { type: "button", class: "quiet", "aria-expanded": "false" }, "Whole passage");
  toggle.addEventListener("click", () => {
    const open = toggle.getAttribute("aria-expanded") !== "true";
    fill(open ? read : shown);
    box.classList.toggle("cut", !open && before);
    toggle.setAttribute("aria-expanded", String(open));
    toggle.textContent = open ? "Less" : "Whole passage";
  });
  fill(shown);
  return [box, h("p", { class: "source" }, isWeb(url) ? outward(url, url) : h("span", {}, url), (before || after) && toggle)];
}
