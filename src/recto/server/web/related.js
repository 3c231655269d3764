// Selected text on a page of the book, and the button that asks for what goes with it.

import { announce } from "./announce.js";
import { byId } from "./dom.js";
import { bounded, go } from "./state.js";

const LEAST = 3; // characters

export function begin() {
  const tool = byId("related-tool");
  document.addEventListener("selectionchange", place);
  addEventListener("resize", place);
  tool.addEventListener("pointerdown", (event) => event.preventDefault()); // else the selection would be gone before the click
  tool.addEventListener("click", relateSelected);
  byId("recto").addEventListener("click", (event) => {
    const passage = event.target.closest(".relate")?.closest(".passage");
    if (passage) relate(textOf(passage));
  });
}

export function selected() {
  const selection = getSelection();
  const sheet = byId("recto");
  if (!selection.rangeCount || selection.isCollapsed || sheet.hidden) return "";
  const inside = sheet.contains(selection.anchorNode) && sheet.contains(selection.focusNode);
  const text = selection.toString().trim();
  return inside && text.length >= LEAST ? text : "";
}

/** Ask for what goes with the selected text, or else with the passage that is marked; tells whether there was either. */
export function relateSelected() {
  const marked = byId("recto").querySelector(".passage:focus-within, .passage.here");
  const text = selected() || (marked ? textOf(marked) : "");
  if (text) relate(text);
  return text !== "";
}

/** Let go of a selection; tells whether there was one. */
export function unselect() {
  const had = selected() !== "";
  if (had) getSelection().removeAllRanges();
  return had;
}

function relate(text) {
  getSelection().removeAllRanges();
  go({ selection: bounded(text), ask: false, limit: 10 });
}

function textOf(passage) {
  return passage.querySelector(".body").innerText;
}

function place() {
  const tool = byId("related-tool");
  const was = tool.hidden;
  tool.hidden = !selected();
  if (tool.hidden) return;
  const boxes = getSelection().getRangeAt(0).getClientRects();
  const last = boxes[boxes.length - 1] ?? getSelection().getRangeAt(0).getBoundingClientRect();
  const left = Math.min(last.right, document.documentElement.clientWidth - tool.offsetWidth - 12);
  tool.style.left = `${Math.max(12, left) + scrollX}px`;
  tool.style.top = `${last.bottom + scrollY + 6}px`;
  if (was) announce("Text is selected. The key r shows related passages.");
}
