// Keyboard shortcuts: go to the search field, move through the results, go back one step.

import { byId } from "./dom.js";
import { focusFirst } from "./list.js";
import { clearSelection, showRelated } from "./page.js";
import { NO_PAGE, go, state } from "./state.js";

const DISABLED = "recto-single-keys-off";

export function start() {
  const box = byId("single-keys");
  try {
    box.checked = localStorage.getItem(DISABLED) === null;
  } catch {
    // Storage may be forbidden; the keys are enabled then.
  }
  box.addEventListener("change", () => {
    try {
      if (box.checked) localStorage.removeItem(DISABLED);
      else localStorage.setItem(DISABLED, "1");
    } catch {
      // The choice is then kept until the page is left.
    }
  });
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return; // dialogs handle their own keys
    if (handle(event)) event.preventDefault();
  });
}

function handle({ key, target }) {
  if (key === "Escape") return goBack(target);
  if (key === "ArrowDown" || key === "ArrowUp") return moveFocus(target, key === "ArrowDown" ? 1 : -1);
  const isTyping = target.matches("input:not([type=checkbox]), select, textarea");
  const isReached = key === "/" && target.id === "q" && !target.value; // the key has nothing left to do
  if ((isTyping && !isReached) || !byId("single-keys").checked) return false;
  if (key === "/") return focusQuery();
  if (key === "r") return showRelated();
  if (key !== "?") return false;
  byId("help").showModal();
  return true;
}

function focusQuery() {
  const field = byId("q");
  if (state().view) go({ view: "" });
  if (!field.checkVisibility()) go(NO_PAGE);
  field.focus();
  field.select();
  return true;
}

/** Move the focus from the search field into the results, and through them. */
function moveFocus(target, step) {
  if (target.id === "q" && step > 0 && target.value.trim() && target.value.trim() !== state().q) {
    focusFirst(); // the shown results are not those of the typed query
    byId("search").requestSubmit();
    return true;
  }
  const all = byId("list").querySelectorAll(".result, .contents a");
  const links = [...all].filter((link) => link.checkVisibility());
  const index = links.indexOf(target);
  if (index < 0 && target.id !== "q" && target.id !== "list-title") return false;
  const next = index < 0 ? (step > 0 ? 0 : -1) : index + step;
  if (next < 0) {
    byId("q").focus();
    return true;
  }
  const link = links[Math.min(next, links.length - 1)];
  link?.focus();
  (link?.closest(".entry") ?? link)?.scrollIntoView({ block: "nearest" });
  return link !== undefined;
}

function goBack(target) {
  if (clearSelection()) return true;
  const now = state();
  if (now.view) go({ view: "" });
  else if (target.closest("#modules, #page-filter, .result, .contents")) return focusQuery();
  else if (now.selection) go({ selection: "", ask: false });
  else if (now.page) go(NO_PAGE);
  else return false;
  return true;
}
