// Draws passages that were found: title, place in the book, the telling part, and the score against the level of noise.

import { scoreBar } from "./charts.js";
import { counted, h, isWeb, outward } from "./dom.js";
import { excerpt, mark, telling } from "./highlight.js";
import { blocks, render } from "./markdown.js";
import { notice } from "./notices.js";
import { leads } from "./state.js";

const MOST = 100;

/** Make everything below the list's title for an answer of the service. */
export function drawAnswer(answer, { question, limit }) {
  const { results, noise } = answer;
  const pattern = telling(question);
  const above = results.filter((one) => one.above_noise !== false);
  const below = results.filter((one) => one.above_noise === false);
  const parts = answer.warnings.map((words) => h("p", { class: "warning" }, words));
  if (!results.length) parts.push(nothing(answer));
  if (above.length) parts.push(entries(above, noise, pattern));
  if (below.length) parts.push(noiseNote(above.length, noise), entries(below, noise, pattern));
  if (results.length >= limit && limit < MOST) {
    const more = Math.min(MOST, limit + 10);
    parts.push(h("p", { class: "more" }, h("a", { class: "button", id: "more", ...leads({ limit: more }) }, "More results")));
  }
  return parts;
}

/** Say how much was found, for the eye and the ear. */
export function summary({ results, noise }) {
  if (!results.length) return "No passages";
  const above = results.filter((one) => one.above_noise).length;
  return counted(results.length, "passage") + (noise === null ? "" : above === results.length ? ", all above the noise level" : `, ${above} above the noise level`);
}

function nothing(answer) {
  const filtered = answer.outcome === "filtered_out";
  const changes = filtered ? { modules: [], url: "" } : { limit: 10 };
  const everywhere = h("a", { class: "button", ...leads(changes) }, "Search the whole book");
  const title = filtered ? "The filters leave nothing to search in." : "Nothing matches.";
  const advice = filtered ? [] : ["Ask in other words, or for something that the book is about."];
  return notice(title, [answer.message, ...advice].filter(Boolean), filtered ? everywhere : null);
}

function noiseNote(above, noise) {
  const said = above
    ? `Below the noise level of ${noise.toFixed(2)}. Questions that have nothing to do with the book reach such scores too.`
    : `Nothing stands out: all scores are below the noise level of ${noise.toFixed(2)}. The book may not answer this; ask in other words.`;
  return h("p", { class: "noise-note" }, said);
}

function entries(results, noise, pattern) {
  return h("ol", { class: "entries", role: "list", start: results[0].rank }, ...results.map((one) => entry(one, noise, pattern)));
}

function entry(one, noise, pattern) {
  const below = one.above_noise === false;
  const { title, path } = place(one);
  const open = { page: one.page_url, anchor: one.anchor, passage: one.chunk_index };
  return h("li", { class: below ? "entry below" : "entry", "data-page": one.page_url, "data-passage": one.chunk_index },
    h("p", { class: "path" }, h("span", { class: "module" }, one.module), ...path.flatMap((heading) => [h("span", { class: "step", "aria-hidden": "true" }, "›"), heading])),
    h("h3", {}, h("a", { class: "result", ...leads(open) }, title)),
    h("p", { class: "score" }, h("span", { "aria-hidden": "true" }, one.score.toFixed(3)), scoreBar(one.score, noise), below && h("span", { class: "verdict" }, "below noise")),
    ...passage(one, title, pattern));
}

/** A passage is called by its own heading; what leads to it is its path. */
function place({ headings, page_title: page }) {
  const title = headings.at(-1) || page || "Untitled";
  const before = headings.slice(0, -1);
  return { title, path: before.length || title === page || !page ? before : [page] };
}

function passage({ text, link }, title, pattern) {
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
  return [box, h("p", { class: "source" }, isWeb(link) ? outward(link, link) : h("span", {}, link), (before || after) && toggle)];
}
