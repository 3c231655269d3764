// What the keyboard does: to the question, through the results, one step back.

import { byId } from "./dom.js";
import { relateSelected, unselect } from "./related.js";
import { go, state } from "./state.js";

const OFF = "recto-single-keys-off";

export function begin() {
  const box = byId("single-keys");
  try {
    box.checked = localStorage.getItem(OFF) === null;
  } catch {
    // Storage may be forbidden; the keys are on then.
  }
  box.addEventListener("change", () => {
    try {
      if (box.checked) localStorage.removeItem(OFF);
      else localStorage.setItem(OFF, "1");
    } catch {
      // The choice then holds until the page is left.
    }
  });
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  document.addEventListener("keydown", pressed);
}

function pressed(event) {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return; // it has keys of its own
  if (handle(event)) event.preventDefault();
}

function handle({ key, target }) {
  const writing = target.matches("input:not([type=checkbox]), select, textarea");
  if (key === "Escape") return stepBack(target);
  if (key === "ArrowDown" || key === "ArrowUp") return walk(target, key === "ArrowDown" ? 1 : -1);
  if (writing || !byId("single-keys").checked) return false;
  if (key === "/") return toQuestion();
  if (key === "r") return relateSelected();
  if (key === "?") {
    byId("help").showModal();
    return true;
  }
  return false;
}

export function toQuestion() {
  const question = byId("q");
  if (state().view) go({ view: "" });
  if (!question.checkVisibility()) go({ page: "", anchor: "", passage: null, selection: "", ask: false });
  question.focus();
  question.select();
  return true;
}

/** From the question into the results, and on from one to the next. */
function walk(target, step) {
  const results = [...byId("list").querySelectorAll(".result, .contents a")].filter((link) => link.checkVisibility());
  const at = results.indexOf(target);
  if (at < 0 && target.id !== "q" && target.id !== "list-title") return false;
  const next = at < 0 ? (step > 0 ? 0 : -1) : at + step;
  if (next < 0) {
    byId("q").focus();
    return true;
  }
  const link = results[Math.min(next, results.length - 1)];
  link?.focus();
  (link?.closest(".entry") ?? link)?.scrollIntoView({ block: "nearest" });
  return link !== undefined;
}

function stepBack(target) {
  if (unselect()) return true;
  const now = state();
  if (now.view) go({ view: "" });
  else if (target.closest("#facets, #page-filter, .result, .contents")) return toQuestion();
  else if (now.selection) go({ selection: "", ask: false });
  else if (now.page) go({ page: "", anchor: "", passage: null });
  else return false;
  return true;
}
